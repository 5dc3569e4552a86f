"""``verigrad verify``."""

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verigrad.cli.app import app, write
from verigrad.cli.options import overrides, with_key_options
from verigrad.config import Config, config_from, load_config
from verigrad.errors import UserError

FOUND = 1
"""The exit code when a check found something."""


@app.command(sort_key=5)
@with_key_options("task", "verifier")
def verify(
    task_or_config: Annotated[str | None, Parameter(name="TASK_OR_CONFIG")] = None,
    /,
    *,
    examples: Path | None = None,
    problems: int | None = None,
    allow: float = 0.0,
    sandbox_check: Annotated[bool, Parameter(negative="")] = False,
    **changes: str,
) -> int:
    """Check a task's verifier before spending compute, or what a sandbox stops.

    verigrad verify addition
    verigrad verify run.toml --examples labelled.jsonl
    verigrad verify --sandbox-check

    Args:
        task_or_config: A built-in task, file.py:name, or a TOML file.
        examples: A JSONL file of completion, reference and the reward that is right.
        problems: How many problems' references to try, of each part of a mixture; by default all
            of them, and of a task without end the first.
        allow: The largest reward that a completion without an answer may get.
        sandbox_check: Try to break out of the sandbox that verifier.sandbox names, with "auto" out
            of each that works here, and say what it stops.
        changes: Values for single keys, over those of the file.
    """
    if task_or_config is None and not sandbox_check:
        raise UserError("verify needs a task or a CONFIG file, or --sandbox-check")
    if problems is not None and problems < 1:
        raise UserError(f"verify: --problems is {problems}; it must be 1 or more")
    if not 0 <= allow < math.inf:
        raise UserError(f"verify: --allow is {allow:g}; it must be a reward of at least 0")
    config = _config_of(task_or_config or "toy", overrides(changes))
    results = []
    if sandbox_check:
        results += _check_sandboxes(config.verifier.sandbox)
    if task_or_config is not None:
        results.append(_check_verifier(config, examples, problems, allow))
    code = write("\n".join(text for text, _ in results))
    return code or (0 if all(sound for _, sound in results) else FOUND)


def _config_of(name: str, changes: list[tuple[str, str]]) -> Config:
    """The configuration in a file, or one for a task by its name."""
    if name.endswith(".toml"):
        return load_config(Path(name), changes)
    mapping = {"task": name, "model": "tabular"}
    return config_from(mapping, source="command line", base=Path.cwd(), overrides=changes)


def _check_verifier(
    config: Config, examples: Path | None, problems: int | None, allow: float
) -> tuple[str, bool]:
    """What was found in words, and whether nothing was."""
    from verigrad.checking import check_up, describe, examples_of, read_examples
    from verigrad.checking.checkup import spread
    from verigrad.tasks import by_part, first_problems, task_of
    from verigrad.training.problems import checked_split
    from verigrad.verifiers.opening import opened

    labelled = None if examples is None else read_examples(examples)
    task = task_of(config)
    parts = by_part(task, checked_split(task, config))
    names = [part.name for part, _ in parts]
    faults = 0
    with opened(task.verifier, config.verifier) as verifier:
        lines = [task.name, *verifier.reasons.values()]
        for part, sides in parts:
            some = [*first_problems(sides.training, config.run.seed), *sides.held_out]
            rows = labelled
            if part is not task:
                lines.append(f"part {part.name}")
                rows = None if labelled is None else examples_of(part.name, names, labelled)
            some = some if problems is None else spread(some, problems)
            checkup = check_up(part, some, verifier.runner, examples=rows, allowed=allow)
            lines.append(describe(checkup))
            faults += checkup.faults
    return "\n".join(lines), not faults


def _check_sandboxes(name: str) -> list[tuple[str, bool]]:
    """What a sandbox stops; for "auto" which one programs run in, and what each stops.

    Raises:
        UserError: there is none for hostile programs, or the one that is named does not work.
    """
    from verigrad.verifiers.sandbox import SANDBOXES, SandboxUnavailableError, open_sandbox

    if name != "auto":
        return [_check_sandbox(name)]
    strongest = open_sandbox()
    strongest.close()
    results = [(f"programs run in the sandbox {strongest.name} ({strongest.strength})", True)]
    for each in SANDBOXES:
        try:
            results.append(_check_sandbox(each))
        except SandboxUnavailableError as error:
            results.append((str(error), True))
    return results


def _check_sandbox(name: str) -> tuple[str, bool]:
    """What a sandbox stops, and whether that is what it promises; one for accidents promises less.

    Every attack must be stopped by a sandbox that is made for hostile programs.
    """
    from verigrad.checking import describe_sandbox
    from verigrad.verifiers.sandbox import Strength
    from verigrad.verifiers.sandbox.check import check_sandbox

    checked = check_sandbox(name)
    sound = checked.strength is Strength.ACCIDENTS or all(f.stopped for f in checked.findings)
    return describe_sandbox(checked), sound
