"""``verigrad replay``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verigrad.cli.app import app, write
from verigrad.errors import UserError


@app.command(sort_key=5)
def replay(
    run: Annotated[Path, Parameter(name="RUN")],
    step: Annotated[str, Parameter(name="STEP")],
    /,
) -> int:
    """Make an update again that a run skipped because its numbers were not finite.

    verigrad replay runs/toy-1 12

    Args:
        run: The folder of the run; it is not changed.
        step: The step in which an update was skipped; findings.json names one.
    """
    if not (step.isascii() and step.isdigit()):
        raise UserError(f"replay: STEP is {step!r}; it must be the number of a step, such as 12")
    from verigrad.training.replay import describe
    from verigrad.training.replay import replay as again

    return write("\n\n".join(map(describe, again(run, int(step)))))
