"""Making a bad update of a run again, to see which number was not finite and where it came from."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verigrad.batch import Batch
from verigrad.config import load_config
from verigrad.errors import RunFolderError
from verigrad.escaping import one_line
from verigrad.policies.base import Policy
from verigrad.tasks import Task
from verigrad.training.bad_updates import (
    first_bad_gradient,
    first_bad_parameter,
    values_of,
    whole_norm,
)
from verigrad.training.folder import existing_run
from verigrad.training.recorded import Recorded, load_recorded, recorded_updates
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import load_tensors
from verigrad.training.step import accumulate


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A recorded update that was made again, up to its gradient."""

    recorded: Recorded
    loss: float
    gradient_norm: float

    bad_parameter: str | None
    """The first weight tensor with a number that is not finite."""

    bad_gradient: str | None
    """The same of the gradient."""

    bad_token: str | None
    """The first token with such a number, in words: its completion, its place, which number."""

    completions: tuple[str, ...]
    """A line per row of the batch: problem, advantage, text."""

    @property
    def is_same(self) -> bool:
        """Whether loss and norm are those of the run, bit for bit (NaN is NaN)."""
        run = self.recorded.bad
        return (repr(self.loss), repr(self.gradient_norm)) == (
            repr(run.loss),
            repr(run.gradient_norm),
        )


def replay(folder: Path, step: int, *, task: Task | None = None) -> list[Replay]:
    """Make the updates that a run skipped in a step again, from its records.

    The batch and the weights are those of the run, and so are its configuration and decisions, so
    the numbers are the same bits on the same machine with the same versions.

    Args:
        folder: the run folder; nothing in it is changed.
        step: the step, from 1.
        task: the task, for a run that was started from Python with one.

    Raises:
        RunFolderError: the folder holds no run, or no such record, or a damaged one.
        UserError: the task or the model cannot be used any more.
    """
    run = existing_run(folder)
    found = recorded_updates(run.bad_updates)
    if step not in found:
        there = f"those of steps {', '.join(map(str, found))}" if found else "none"
        raise RunFolderError(
            f"{folder} has no recorded update of step {step}; only updates that were skipped "
            f"because they were not finite are recorded, and {there} are there"
        )
    recorded = [load_recorded(path) for path in found[step]]
    decisions = run.read_decisions()
    setup = prepare(load_config(run.config), task, decisions)
    return [_again(one, setup) for one in recorded]


def describe(result: Replay) -> str:
    """What came of a replay, in words."""
    recorded, bad = result.recorded, result.recorded.bad
    same = "the same" if result.is_same else "NOT the same: another machine or other versions"
    lines = {
        "update": f"number {recorded.number} of step {recorded.step}, of the weights after "
        f"{recorded.policy_version} updates",
        "in the run": f"loss {bad.loss:g}, gradient norm {bad.gradient_norm:g}",
        "now": f"loss {result.loss:g}, gradient norm {result.gradient_norm:g} ({same})",
        "likely cause": bad.cause,
        "first parameter not finite": result.bad_parameter or "none",
        "first gradient not finite": result.bad_gradient or "none",
        "first token not finite": result.bad_token or "none",
    }
    width = max(map(len, lines))
    told = [f"{name:<{width}}  {one_line(text)}" for name, text in lines.items()]
    completions = [f"  {one_line(line)}" for line in result.completions]
    return "\n".join([*told, "completions", *completions])


def _again(recorded: Recorded, setup: Setup) -> Replay:
    policy, device = setup.policy, setup.decisions.device
    _load(policy, recorded.weights)
    batch = _on(recorded.batch, device)
    policy.module.zero_grad(set_to_none=True)
    temperature = setup.config.sampling.temperature
    done = accumulate(
        policy,
        batch,
        setup.algorithm,
        temperature=temperature,
        token_budget=recorded.token_budget,
        entropy_coefficient=recorded.entropy_coefficient,
    )
    if done is None:
        raise RunFolderError(
            f"nothing trains in the recorded update of step {recorded.step}, so it is not the one "
            "that the run skipped; the configuration or the record has been changed"
        )
    norm, gradient = float(whole_norm(policy)), first_bad_gradient(policy)
    with torch.no_grad():
        log_probs = policy.score(batch, temperature).log_probs
    return Replay(
        recorded=recorded,
        loss=float(done.output.loss),
        gradient_norm=norm,
        bad_parameter=first_bad_parameter(policy),
        bad_gradient=gradient,
        bad_token=_first_bad_token(policy, batch, log_probs),
        completions=tuple(_completion(policy, batch, row) for row in range(len(batch.mask))),
    )


def _load(policy: Policy, weights: dict[str, Tensor]) -> None:
    try:
        load_tensors(policy, weights)
    except (KeyError, RuntimeError) as error:
        raise RunFolderError(
            f"the recorded weights are not those of the run's model ({type(error).__name__}: "
            f"{error}); put model and config.toml back as the run had them"
        ) from error


def _on(batch: Batch, device: str) -> Batch:
    moved: dict[str, Any] = {
        name: value.to(device) for name, value in vars(batch).items() if isinstance(value, Tensor)
    }
    return replace(batch, **moved)


def _first_bad_token(policy: Policy, batch: Batch, log_probs: Tensor) -> str | None:
    """In order of row and place, of all numbers that a token has."""
    numbers = {"log-prob": log_probs} | values_of(batch)
    wrong = torch.stack([~value.isfinite() & batch.mask for value in numbers.values()])
    places = wrong.any(dim=0).nonzero().tolist()
    if not places:
        return None
    row, place = places[0]
    kinds = [name for name, bad in zip(numbers, wrong[:, row, place].tolist(), strict=True) if bad]
    token = int(batch.token_ids[row, place])
    said = ", ".join(f"{name} {float(numbers[name][row, place])}" for name in kinds)
    return (
        f"number {place + 1} of completion {row + 1}, token {token} "
        f"({policy.decode([token])!r}): {said}"
    )


def _completion(policy: Policy, batch: Batch, row: int) -> str:
    length = int(batch.lengths[row])
    text = policy.decode(batch.token_ids[row, :length].tolist())
    problem = batch.prompts[int(batch.group_index[row])].problem_id
    advantage = float(batch.advantages[row][batch.mask[row]].sum() / batch.mask[row].sum())
    return f"{row + 1}. problem {problem!r}, advantage {advantage:g}, {length} tokens: {text!r}"
