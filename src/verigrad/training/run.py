"""Training, resuming and evaluating, as the command and Python users call them."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verigrad.config import Config, load_config
from verigrad.engines import Draws, LocalEngine
from verigrad.errors import ConfigError, RunFolderError
from verigrad.evaluation import Evaluation, describe, summarise
from verigrad.hashing import Purpose
from verigrad.tasks import Prepared, Task, load_task
from verigrad.training.checkpoint import checkpoints, load_checkpoint
from verigrad.training.checks import check_device, check_lengths
from verigrad.training.folder import RunFolder, check_free, make_folder
from verigrad.training.problems import checked_split, describe_split, draws, problems_to_evaluate
from verigrad.training.progress import Progress, duration
from verigrad.training.records import read_lines, set_aside_after, side_by_side
from verigrad.training.setup import (
    Setup,
    device_for,
    greedy,
    load_policy,
    prepare,
)
from verigrad.training.state import TrainerState
from verigrad.training.step import judge
from verigrad.training.trainer import Outcome, Trainer
from verigrad.training.workers import workers_of
from verigrad.types import Sampling

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
        UserError: something in the configuration cannot be used; nothing has been written.
        TooManyFailuresError: more verdicts of a step failed than the configuration allows.
        BadNumbersError: a loss or gradient is not finite.
    """
    check_free(config.run.folder)
    progress = Progress(config.run.steps, quiet=quiet)
    setup = prepare(config, task)
    folder = make_folder(config.run.folder, setup.task.name)
    folder.write_start(config, setup.decisions, setup.reasons)
    _announce(progress, setup, folder)
    return _run(setup, new_state(setup), folder, progress)


def resume(
    folder: Path,
    changes: Sequence[tuple[str, str]] = (),
    *,
    task: Task | None = None,
    quiet: bool = False,
) -> RunResult:
    """Go on with a run from its newest checkpoint, as if it had never stopped.

    Args:
        folder: the run folder.
        changes: keys that may change (``run.steps`` upwards, ``evaluation`` and ``checkpoint``).
        task: the task, for a run that was started from Python with one.
        quiet: show nothing.

    Raises:
        RunFolderError: the folder holds no run, or its checkpoint cannot be used.
        ConfigError: a key may not change.
    """
    run = RunFolder(root=Path(folder).resolve())
    if not run.config.exists() or not run.environment.exists():
        raise RunFolderError(f"{folder} holds no run: it has no config.toml and environment.json")
    config = _changed(run, changes)
    decisions, reasons = run.read_decisions()
    setup = prepare(config, task, decisions)
    progress = Progress(config.run.steps, quiet=quiet)
    state = new_state(setup)
    saved = checkpoints(run.checkpoints)
    if saved:
        load_checkpoint(saved[-1], state)
    for path in (run.metrics, run.rollouts):
        # A run that resumes at step 0 evaluates the untrained policy again.
        set_aside_after(path, state.step or None)
    run.write_start(config, setup.decisions, reasons)
    progress.note(f"resuming {run.root} after step {state.step}; {setup.reasons['threads']}")
    if state.step == config.run.steps:
        progress.note("the run is finished already; to go on, raise run.steps")
    return _run(setup, state, run, progress)


def evaluate(model_or_run: str, config: Config) -> str:
    """Greedy and sampled accuracy of a model, or of a run's final policy, in words.

    Args:
        model_or_run: a run folder, or a model as in the configuration.
        config: names the task, how many problems, and how completions are sampled.

    Raises:
        UserError: the model, the run or the task cannot be used.
    """
    task = load_task(config.task, config.data)
    parts = checked_split(task, config)
    device = device_for(config)
    check_device(device)
    problems = problems_to_evaluate(parts, config)
    policy = load_policy(config, task, device, _model_in(model_or_run))
    prompts = [policy.encode(problem) for problem in problems]
    check_lengths(prompts, policy.max_positions, config.sampling.max_new_tokens)
    sampling = Sampling(
        temperature=config.sampling.temperature,
        max_new_tokens=config.sampling.max_new_tokens,
        stop_token_ids=policy.stop_token_ids,
    )
    side = "held-out" if parts.held_out else "training"
    lines = [f"{model_or_run} on {len(problems)} {side} problems of {task.name}"]
    engine = LocalEngine(policy)
    for name, how, number in (
        ("greedy", greedy(sampling), 1),
        (f"sampled at temperature {sampling.temperature:g}", sampling, config.sampling.completions),
    ):
        draws = Draws(seed=config.run.seed, purpose=Purpose.EVALUATE, step=0)
        groups = judge(
            task.verifier, problems, prompts, engine.generate(prompts, number, how, draws)
        )
        summary = summarise(groups)
        words = describe(summary) if summary else "every verification failed"
        lines.append(f"{name}, {number} each: {words}")
    return "\n".join(lines)


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
    )


def _run(setup: Setup, state: TrainerState, folder: RunFolder, progress: Progress) -> RunResult:
    with workers_of(setup) as pool:
        outcome = Trainer(setup, state, LocalEngine(setup.policy), folder, progress, pool).run()
    if outcome.finished:
        _save_final(setup, folder)
    records = read_lines(folder.metrics)
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
    """Write the trained policy beside its name, then rename it; an older one is replaced."""
    partial = folder.final.with_name("final.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    setup.policy.save(partial)
    if folder.final.exists():
        shutil.rmtree(folder.final)
    partial.rename(folder.final)


def _announce(progress: Progress, setup: Setup, folder: RunFolder) -> None:
    config = setup.config
    progress.note(
        f"{config.model.name} learns {setup.task.name} with {setup.algorithm.name}: "
        f"{config.run.steps} steps of {config.sampling.problems} problems x "
        f"{config.sampling.completions} completions; {describe_split(setup.split)}; "
        f"{setup.reasons['threads']}"
    )
    of_task = setup.task.notes if isinstance(setup.task, Prepared) else ()
    of_algorithm = (f"note: {note}" for note in setup.algorithm.notes)
    for note in (draws(config, setup.split), *of_task, *of_algorithm):
        progress.note(note)
    progress.note(f"everything is written to {folder.root}")


def _evaluations(
    records: Sequence[Mapping[str, Any]],
) -> tuple[Evaluation | None, Evaluation | None]:
    """The first and the last evaluation, if it came after the first."""
    lines = [line for line in records if line["eval/accuracy"] is not None]
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
    rewards = [line["reward/mean"] for line in records if line["reward/mean"] is not None]
    last = rewards[-min(200, len(rewards)) :]
    if last:
        progress.result(f"mean reward of the last {len(last)} steps: {sum(last) / len(last):.3f}")
    if before and after:
        progress.result(f"held-out before: {describe(before)}")
        progress.result(f"held-out after:  {describe(after)}")
        progress.comparison(side_by_side(folder.rollouts, step)[:SHOWN])
    seconds = sum(line["time/step"] or 0.0 for line in records)
    progress.result(f"{step} steps in {duration(seconds)}; the trained policy is {folder.final}")


def _changed(run: RunFolder, changes: Sequence[tuple[str, str]]) -> Config:
    """The run's configuration with changes that a resume may make."""
    before = load_config(run.config)
    after = load_config(run.config, changes)
    for name, _ in changes:
        path = name.replace("-", "_")
        if path != "run.steps" and path.split(".")[0] not in ("evaluation", "checkpoint"):
            raise ConfigError(
                f"{path} may not change in a resume, which goes on with the same run; only "
                "run.steps (upwards) and the keys of evaluation and checkpoint may"
            )
    if after.run.steps < before.run.steps:
        raise ConfigError(
            f"run.steps is {after.run.steps}, but the run has {before.run.steps}; a resume may "
            "only raise it"
        )
    return after


def _model_in(model_or_run: str) -> str:
    """The folder of a run's final policy, or the model itself."""
    run = RunFolder(root=Path(model_or_run))
    if not run.config.exists():
        return model_or_run
    if not run.final.exists():
        raise RunFolderError(
            f"{model_or_run} has no final policy yet; finish it with: verigrad train --resume "
            f"{model_or_run}"
        )
    return str(run.final.resolve())
