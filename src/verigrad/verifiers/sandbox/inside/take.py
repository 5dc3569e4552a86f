"""Takes a job from a file in the working directory, in a sandbox that another tool has made."""

import json
import os
import sys

from . import seccomp
from .confine import set_limits
from .harness import perform

JOB = "job"
"""The file, which is gone when the program begins."""

_REPORT = 2


def take() -> None:
    """Run the job, and report to what is standard error at first; the program's goes nowhere."""
    with open(JOB, encoding="utf-8") as file:
        given = json.load(file)
    os.unlink(JOB)
    report = os.dup(_REPORT)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, _REPORT)
    os.close(nothing)
    sys.set_int_max_str_digits(0)
    set_limits(given["limits"], count_processes=False)
    seccomp.install(seccomp.program())
    sys.exit(perform(given["job"], report))
