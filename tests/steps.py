"""One step of a small table: its rows, what measures them, the batch, and a run of it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from builders import STOP, Rows, make_group
from running import TOY

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, Measure, make_batch
from verigrad.config import load_config
from verigrad.engines import LocalEngine
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.folder import make_folder
from verigrad.training.judging import Judge
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import TrainerState
from verigrad.training.step import measure
from verigrad.training.trainer import Trainer
from verigrad.types import Completion, Group, Problem, Prompt
from verigrad.verifiers.runner import Runner

TEMPERATURE = 0.7

STEP: list[Rows] = [
    [((1, 2, 3, 4), 1.0), ((2, 0), 0.25), ((4, 4, 0), 0.0), ((1, 0), 0.5)],
    [((3, 1, 0), 0.0), ((2, 2, 2, 1), 1.0)],
    [((1,), 0.0), ((2, 3, 3, 0), 0.5), ((4, 1, 2, 0), 0.75)],
]
"""Nine rows of 4, 2, 3, 2, 3, 4, 1, 4 and 4 tokens."""

LIVE = make_group(0, [((1, 2, STOP), 1.0), ((3, STOP), 0.0)])
DEAD = make_group(1, [((2, STOP), 0.0), ((1, 1, 1, 1), 0.0)])

KL = ("--algorithm.kl", "ratio_k3", "--algorithm.kl_beta", "0.1")
"""Arguments of the command that hold a run to where it began."""


def groups_of(step: list[Rows] = STEP) -> list[Group]:
    return [make_group(row, rows) for row, rows in enumerate(step)]


def measured_by(
    policy: TabularPolicy, reference: TabularPolicy | None = None, *, budget: int = 9
) -> Measure:
    """Scores the tokens of a step as the trainer does."""
    return lambda tokens: measure(
        policy, reference, tokens, temperature=TEMPERATURE, token_budget=budget
    )


def batch_by(
    policy: TabularPolicy,
    algorithm: Algorithm,
    groups: Sequence[Group] | None = None,
    *,
    reference: TabularPolicy | None = None,
) -> Batch:
    """The batch of STEP, or of other groups, measured by a policy and a reference."""
    batch = make_batch(
        groups_of() if groups is None else groups,
        algorithm,
        measure=measured_by(policy, reference),
        dtype=torch.float64,
    )
    assert batch is not None
    return batch


def setup_of(*arguments: str) -> Setup:
    """The toy task, three problems of four completions per step unless said otherwise."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    small = [("sampling.problems", "3"), ("sampling.completions", "4"), ("run.steps", "1")]
    return prepare(load_config(TOY, [*small, *pairs]))


def run_of(folder: Path, *arguments: str) -> tuple[Setup, TrainerState, Trainer]:
    """A run of it."""
    setup = setup_of(*arguments)
    state = new_state(setup)
    run = make_folder(str(folder), "run")
    engine = LocalEngine(setup.policy)
    return setup, state, Trainer(setup, state, engine, run, Progress(1, quiet=True))


def keys(*arguments: str) -> tuple[str, ...]:
    """Arguments of the command as keys of a configuration."""
    return tuple(argument.removeprefix("--") for argument in arguments)


def judge(
    runner: Runner,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    completions: Sequence[tuple[Completion, ...]],
) -> list[Group]:
    """The groups of completions that are all there."""
    judging = Judge(runner, problems)
    for slot, some in enumerate(completions):
        for number, completion in enumerate(some):
            judging.take(slot, number, completion)
    return judging.groups(prompts, completions)
