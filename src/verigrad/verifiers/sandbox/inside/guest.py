"""The first thing that an interpreter in WebAssembly does: it gets ready, and waits for its job.

The job is what it reads from standard input up to its end; what it reads after that is the
program's own. Standard error is where it reports.
"""

import json
import os

from .harness import Job, perform
from .prepare import prepare

REPORT = 2
"""The descriptor to report to; of what is written there only lines with the job's mark arrive."""


def main() -> int:
    """Run one job; returns the exit code."""
    prepare()
    text = bytearray()
    while some := os.read(0, 2**16):
        text += some
    job: Job = json.loads(text)
    return perform(job, REPORT)
