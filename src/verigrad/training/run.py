"""Training and evaluating, as the command and Python users call them."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from verigrad.checking import try_out
from verigrad.config import Config
from verigrad.engines import LocalEngine
from verigrad.evaluation import Evaluation, describe
from verigrad.flushing import flush_folder
from verigrad.tasks import Prepared, Task
from verigrad.training.contract import inputs, machine
from verigrad.training.disk import remove, writing
from verigrad.training.folder import RunFolder, check_free, make_folder
from verigrad.training.lock import locked
from verigrad.training.measuring import evaluate as evaluate
from verigrad.training.metrics import read_metrics
from verigrad.training.problems import describe_split, draws
from verigrad.training.progress import Progress, duration
from verigrad.training.records import side_by_side
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import TrainerState
from verigrad.training.trainer import Outcome, Trainer
from verigrad.verifiers.opening import Opened, opened
from verigrad.verifiers.runner import Runner

SHOWN = 3
"""How many completions are shown before and after."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came of a run."""

    folder: Path
    """Where everything is."""

    steps: int
    """Steps made, those before a resume included."""

    before: Evaluation | None
    """On held-out problems before training; None if nothing was evaluated."""

    after: Evaluation | None
    """The same after the last step."""

    exit_code: int
    """0, or 130 or 143 when a signal ended it early."""


def train(config: Config, *, task: Task | None = None, quiet: bool = False) -> RunResult:
    """Train from the beginning.

    Args:
        config: the run.
        task: a task of the caller's; None loads the one that the configuration names.
        quiet: show nothing.

    Raises:
        UserError: something in the configuration cannot be used, or the verifier does not give a
            reference full marks; nothing has been written.
        TooManyFailuresError: more verdicts of a step failed than the configuration allows.
        BadNumbersError: a loss or gradient is not finite.
    """
    check_free(config.run.folder)
    progress = Progress(config.run.steps, quiet=quiet)
    setup = prepare(config, task)
    with opened(setup.task.verifier, config.verifier) as verifier:
        warnings = try_out(setup.task, setup.split, config.run.seed, verifier, config.verifier)
        folder = make_folder(config.run.folder, setup.task.name)
        with locked(folder.root):
            # Another run may have taken the folder while this one was prepared.
            check_free(config.run.folder)
            folder.write_start(config, _environment(setup, verifier))
            _announce(progress, setup, folder, verifier, warnings)
            return run_on(setup, new_state(setup), folder, progress, verifier.runner)


def new_state(setup: Setup) -> TrainerState:
    """The state before the first step."""
    chosen = setup.config.optimizer
    optimizer = torch.optim.AdamW(
        setup.policy.module.parameters(),
        lr=chosen.learning_rate,
        betas=(chosen.beta1, chosen.beta2),
        eps=chosen.eps,
        weight_decay=chosen.weight_decay,
        fused=True,
    )
    divergence, bonus = setup.algorithm.divergence, setup.algorithm.entropy
    resets = divergence is not None and divergence.reset_every is not None
    return TrainerState(
        policy=setup.policy,
        optimizer=optimizer,
        reference=setup.reference if resets else None,
        entropy_coefficient=bonus.coefficient if bonus else 0.0,
        token_budget=setup.decisions.token_budget,
    )


def run_on(
    setup: Setup, state: TrainerState, folder: RunFolder, progress: Progress, runner: Runner
) -> RunResult:
    """Run from a state to the end, save the trained policy, and say what came of it."""
    engine = LocalEngine(setup.policy, setup.config.sampling.rows_at_once)
    outcome = Trainer(setup, state, engine, folder, progress, runner).run()
    if outcome.finished:
        _save_final(setup, folder)
    records = read_metrics(folder.metrics)
    before, after = _evaluations(records)
    _report(progress, folder, state.step, outcome, records)
    return RunResult(
        folder=folder.root,
        steps=state.step,
        before=before,
        after=after,
        exit_code=outcome.exit_code,
    )


def _save_final(setup: Setup, folder: RunFolder) -> None:
    """Write the trained policy beside its name, then rename it; an older one is replaced.

    Raises:
        StorageError: it cannot be written.
    """
    partial = folder.final.with_name("final.partial")
    with writing(folder.final):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        setup.policy.save(partial)
        flush_folder(partial)
        with suppress(FileNotFoundError):
            remove(folder.final)
        partial.rename(folder.final)


def _environment(setup: Setup, verifier: Opened) -> dict[str, Any]:
    """What ``environment.json`` says of a run that starts."""
    return machine(setup.decisions.device) | {
        "sandbox": verifier.sandbox,
        "decisions": asdict(setup.decisions),
        "reasons": setup.reasons | verifier.reasons,
        "inputs": inputs(setup.config, setup.task),
    }


def _announce(
    progress: Progress, setup: Setup, folder: RunFolder, verifier: Opened, warnings: Sequence[str]
) -> None:
    config = setup.config
    progress.note(
        f"{config.model.name} learns {setup.task.name} with {setup.algorithm.name}: "
        f"{config.run.steps} steps of {config.sampling.problems} problems x "
        f"{config.sampling.completions} completions; {describe_split(setup.split)}; "
        f"{setup.reasons['threads']}"
    )
    if setup.decisions.precision == "bfloat16":
        progress.note("layers compute in bfloat16; weights, gradients and the head are float32")
    if setup.preflight:
        progress.note(setup.preflight.words)
    of_task = setup.task.notes if isinstance(setup.task, Prepared) else ()
    of_algorithm = (f"note: {note}" for note in setup.algorithm.notes)
    for note in (draws(config, setup.split), *of_task, *of_algorithm):
        progress.note(note)
    tell(progress, verifier)
    for warning in warnings:
        progress.note(f"warning: {warning}")
    progress.note(f"everything is written to {folder.root}")


def tell(progress: Progress, verifier: Opened) -> None:
    """Say where the verifier runs, and what keeps programs in."""
    for words in verifier.reasons.values():
        progress.note(words)


def _evaluations(
    records: Sequence[Mapping[str, Any]],
) -> tuple[Evaluation | None, Evaluation | None]:
    """The first and the last evaluation, if it came after the first."""
    lines = [line for line in records if line.get("eval/accuracy") is not None]
    found = [
        Evaluation(**{name: line[f"eval/{name}"] for name in Evaluation.__dataclass_fields__})
        for line in lines
    ]
    before = found[0] if found and lines[0]["step"] == 0 else None
    after = found[-1] if found and lines[-1]["step"] > 0 else None
    return before, after


def _report(
    progress: Progress,
    folder: RunFolder,
    step: int,
    outcome: Outcome,
    records: Sequence[Mapping[str, Any]],
) -> None:
    if not outcome.finished:
        progress.note(
            f"stopped after step {step}; go on with: verigrad train --resume {folder.root}"
        )
        return
    before, after = _evaluations(records)
    rewards = [reward for line in records if (reward := line.get("reward/mean")) is not None]
    last = rewards[-min(200, len(rewards)) :]
    if last:
        progress.result(f"mean reward of the last {len(last)} steps: {sum(last) / len(last):.3f}")
    if before and after:
        progress.result(f"held-out before: {describe(before)}")
        progress.result(f"held-out after:  {describe(after)}")
        progress.comparison(side_by_side(folder.rollouts, step)[:SHOWN])
    seconds = sum(line.get("time/step") or 0.0 for line in records)
    progress.result(f"{step} steps in {duration(seconds)}; the trained policy is {folder.final}")
