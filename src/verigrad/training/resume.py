"""Going on with a run, as the command and Python users ask for it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verigrad.errors import RunFolderError
from verigrad.machine import cores
from verigrad.tasks import Task
from verigrad.training.checkpoint import load_newest, set_aside
from verigrad.training.contract import (
    changed,
    changed_inputs,
    fixed_keys,
    inexact,
    inputs,
    machine,
)
from verigrad.training.decisions import Decisions
from verigrad.training.folder import RunFolder, existing_run
from verigrad.training.lock import locked
from verigrad.training.progress import Progress
from verigrad.training.records import set_aside_after
from verigrad.training.run import RunResult, new_state, run_on, tell
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import TrainerState
from verigrad.verifiers.opening import Opened, opened


def resume(
    folder: Path,
    changes: Sequence[tuple[str, str]] = (),
    *,
    task: Task | None = None,
    accept_changed_files: bool = False,
    quiet: bool = False,
) -> RunResult:
    """Go on with a run from its newest good checkpoint, as if it had never stopped.

    Args:
        folder: the run folder.
        changes: keys that may change (``run.steps`` upwards, ``evaluation`` and ``checkpoint``).
        task: the task, for a run that was started from Python with one.
        accept_changed_files: go on although a task, verifier or data file is another one now.
        quiet: show nothing.

    Raises:
        RunFolderError: the folder holds no run or another process writes there, no checkpoint can
            be used, or a file has changed.
        ConfigError: a key may not change.
        StorageError: a file of the run cannot be written.
    """
    run = existing_run(folder)
    with locked(run.root):
        return _resume(run, changes, task, accept_changed_files, quiet)


def _resume(
    run: RunFolder,
    changes: Sequence[tuple[str, str]],
    task: Task | None,
    accept_changed_files: bool,
    quiet: bool,
) -> RunResult:
    config = changed(run.config, changes)
    environment = run.read_environment()
    setup = prepare(config, task, Decisions(**environment["decisions"]))
    other = changed_inputs(environment["inputs"], config, setup.task)
    if other and not accept_changed_files:
        raise RunFolderError(
            f"what the run is computed from has changed since it started: {', '.join(other)}; put "
            "it back, or go on with what is there now: --accept-changed-files "
            "(verigrad.resume(..., accept_changed_files=True))"
        )
    with opened(setup.task.verifier, config.verifier) as verifier:
        return _go_on(run, setup, environment, other, verifier, quiet)


def _go_on(
    run: RunFolder,
    setup: Setup,
    environment: dict[str, Any],
    other: Sequence[str],
    verifier: Opened,
    quiet: bool,
) -> RunResult:
    config = setup.config
    progress = Progress(config.run.steps, quiet=quiet)
    state = new_state(setup)
    unusable = load_newest(run.checkpoints, state, fixed_keys(config))
    reasons = [f"{name} has changed" for name in other] + _inexact(setup, environment, verifier)
    _announce_resume(progress, run, setup, state, unusable, reasons)
    tell(progress, verifier)
    for path in unusable:
        set_aside(path)
    for path in (run.metrics, run.rollouts):
        # A run that resumes at step 0 evaluates the untrained policy again.
        last = set_aside_after(path, state.step or None)
        if last != (state.step or None):
            progress.alert(
                f"{path} ends with step {last or 0}, and the run goes on after step {state.step}: "
                "lines have been removed since they were written, and cannot be made again"
            )
    resumed = {"after_step": state.step, "inexact": reasons}
    environment["resumes"] = [*environment["resumes"], resumed]
    environment["inputs"] = inputs(config, setup.task) if other else environment["inputs"]
    run.write_start(config, environment)
    return run_on(setup, state, run, progress, verifier.runner)


def _inexact(setup: Setup, environment: Mapping[str, Any], verifier: Opened) -> list[str]:
    """Why the resume may not give the bits that the run would have given."""
    now = machine(setup.decisions.device) | {"sandbox": verifier.sandbox}
    reasons = inexact(environment, now)
    if setup.decisions.threads > cores():
        reasons.append(
            f"{setup.decisions.threads} threads as the run that is resumed, but only {cores()} "
            "CPUs are here"
        )
    return reasons


def _announce_resume(
    progress: Progress,
    run: RunFolder,
    setup: Setup,
    state: TrainerState,
    unusable: Mapping[Path, str],
    reasons: Sequence[str],
) -> None:
    for path, problem in unusable.items():
        progress.alert(
            f"checkpoint {path} cannot be used and is set aside: {problem}; the steps since the "
            "one before it are made again"
        )
    progress.note(f"resuming {run.root} after step {state.step}")
    if setup.preflight:
        progress.note(setup.preflight.words)
    if state.token_budget < setup.decisions.token_budget:
        progress.note(f"memory ran short before: passes have at most {state.token_budget:,} tokens")
    if reasons:
        progress.alert(f"the resume is not exact: {'; '.join(reasons)}")
    if state.step == setup.config.run.steps:
        progress.note("the run is finished already; to go on, raise run.steps")
