"""The metrics of one step; ``docs/metrics.md`` explains each key.

A metric without data is None. Everything but ``time/*`` and ``memory/*`` is the same, bit for bit,
in a run that is repeated or resumed.
"""

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from verigrad.diagnosis import Metrics
from verigrad.errors import BadNumbersError
from verigrad.evaluation import Evaluation, summarise
from verigrad.machine import resident
from verigrad.tasks.mixture import TASK
from verigrad.training.records import read_lines
from verigrad.training.step import Update
from verigrad.types import FULL_MARKS, FailureKind, Finish, Group, Status

TIMES = (
    "step", "generate", "verify", "train", "evaluate",
    "verify_median", "verify_p95", "verify_max", "verify_restarts",
)  # fmt: skip
"""What is timed in a step."""


def step_metrics(
    step: int,
    groups: Sequence[Group],
    update: Update | None,
    *,
    skipped: int = 0,
    policy_version: int,
    entropy_coefficient: float | None = None,
    token_budget: int,
    evaluation: Evaluation | None,
    evaluated: Sequence[Group] = (),
    parts: Sequence[str] = (),
    times: Mapping[str, float],
) -> Metrics:
    """Everything that is logged about a step.

    Args:
        step: counted from 1; 0 is the evaluation before training.
        groups: the step's groups.
        update: what the optimiser did, or None if nothing trained.
        skipped: updates that were not made because they were not finite.
        policy_version: optimiser updates so far, this step's included.
        entropy_coefficient: weight of the entropy bonus in this step; None without one.
        token_budget: most tokens in one pass, after this step.
        evaluation: on held-out problems after this step, if there was one.
        evaluated: the groups of that evaluation.
        parts: the names of the tasks of a mixture.
        times: seconds, by name.
    """
    return {
        "step": step,
        **_rollout_metrics(groups),
        **_reward_part_metrics(groups),
        **_task_metrics(groups, evaluated, parts),
        **_verification_metrics(groups),
        **_update_metrics(update),
        "updates/skipped": skipped,
        "optimizer/updates": policy_version,
        "optimizer/entropy_coefficient": entropy_coefficient,
        **_evaluation_metrics(evaluation),
        **_time_metrics(groups, times),
        "memory/peak": peak_memory(),
        "memory/resident": resident(),
        "memory/token_budget": token_budget,
    }


def _rollout_metrics(groups: Sequence[Group]) -> dict[str, int | float | None]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [reward for group in groups for reward in group.rewards]
    lengths = [len(rollout.completion.token_ids) for rollout in rollouts]
    statuses = [rollout.verdict.status for rollout in rollouts]
    # A failed verification says nothing about the policy, so such a group is neither.
    full = [group for group in groups if group.rewards]
    return {
        **_mean_and_deviation("reward", rewards),
        "groups/total": len(groups),
        "groups/with_signal": sum(group.has_signal for group in groups),
        "groups/all_right": sum(min(group.rewards) >= FULL_MARKS for group in full),
        "groups/all_wrong": sum(max(group.rewards) <= 0 for group in full),
        "verdicts/scored": statuses.count(Status.SCORED),
        "verdicts/unparsable": statuses.count(Status.UNPARSABLE),
        "verdicts/failed": statuses.count(Status.FAILED),
        "completions/total": len(rollouts),
        "completions/truncated": sum(r.completion.finish is Finish.TRUNCATED for r in rollouts),
        "completions/mean_length": statistics.fmean(lengths) if lengths else None,
        "tokens/generated": sum(lengths),
        "tokens/prompt": sum(len(g.rollouts[0].prompt.token_ids) for g in groups),
    }


def _verification_metrics(groups: Sequence[Group]) -> dict[str, int | float | None]:
    """How many verifications were made, and how many failed in each way; None without any."""
    verdicts = [rollout.verdict for group in groups for rollout in group.rollouts]
    kinds = [verdict.kind for verdict in verdicts]
    counts = {"calls": len(verdicts), **{str(kind): kinds.count(kind) for kind in FailureKind}}
    return {f"verify/{name}": count if verdicts else None for name, count in counts.items()}


def _reward_part_metrics(groups: Sequence[Group]) -> dict[str, float | None]:
    """Of each named part of the rewards, over the verdicts that have it."""
    parts: dict[str, list[float]] = {}
    for rollout in (rollout for group in groups for rollout in group.scored):
        for name, value in rollout.verdict.components.items():
            parts.setdefault(name, []).append(value)
    found: dict[str, float | None] = {}
    for name, values in sorted(parts.items()):
        # A part may be anything, and only what trains has to be a finite number.
        finite = [value for value in values if math.isfinite(value)]
        found |= _mean_and_deviation(f"reward/part/{name}", finite)
    return found


def _task_metrics(
    groups: Sequence[Group], evaluated: Sequence[Group], names: Sequence[str]
) -> dict[str, float | None]:
    """Of each task of a mixture, the rewards of the step and the accuracy of the evaluation."""
    found: dict[str, float | None] = {}
    for name in names:
        rewards = [reward for group in _of_task(groups, name) for reward in group.rewards]
        summary = summarise(_of_task(evaluated, name))
        found |= _mean_and_deviation(f"reward/task/{name}", rewards)
        found[f"eval/task/{name}/accuracy"] = summary.accuracy if summary else None
    return found


def _of_task(groups: Sequence[Group], name: str) -> list[Group]:
    return [group for group in groups if group.problem.metadata.get(TASK) == name]


def _mean_and_deviation(area: str, rewards: Sequence[float]) -> dict[str, float | None]:
    try:
        return {
            f"{area}/mean": statistics.fmean(rewards) if rewards else None,
            f"{area}/deviation": statistics.stdev(rewards) if len(rewards) > 1 else None,
        }
    except OverflowError as error:
        raise BadNumbersError(
            f"the rewards of a step lie between {min(rewards):g} and {max(rewards):g}, too large "
            "to be averaged; have the verifier return smaller ones"
        ) from error


def _update_metrics(update: Update | None) -> dict[str, int | float | None]:
    output = update.output if update else None
    return {
        "tokens/trained": output.tokens if output else 0,
        "tokens/trained_prompt": update.prompt_tokens if update else 0,
        "loss/total": float(output.loss) / update.updates if output and update else None,
        "policy/entropy": output.entropy / output.tokens if output else None,
        "policy/kl": None if output is None or output.kl is None else output.kl / output.tokens,
        "policy/clipped": output.clipped / output.tokens if output else None,
        "policy/mismatch": output.mismatch / output.tokens if output else None,
        "policy/largest_mismatch": output.largest_mismatch if output else None,
        "optimizer/gradient_norm": update.gradient_norm if update else None,
        "optimizer/passes": update.passes if update else 0,
    }


def _evaluation_metrics(evaluation: Evaluation | None) -> dict[str, int | float | None]:
    names = Evaluation.__dataclass_fields__
    return {f"eval/{name}": getattr(evaluation, name, None) for name in names}


def _time_metrics(
    groups: Sequence[Group], times: Mapping[str, float]
) -> dict[str, int | float | None]:
    seconds = {f"time/{name}": times.get(name) for name in TIMES}
    tokens = sum(len(r.completion.token_ids) for g in groups for r in g.rollouts)
    work = times.get("generate", 0.0) + times.get("verify", 0.0) + times.get("train", 0.0)
    return {**seconds, "time/tokens_per_second": tokens / work if work else None}


def read_metrics(path: Path) -> list[Metrics]:
    """The lines of a run's metrics that a summary can be made of, less damaged ones."""
    return [line for line in read_lines(path) if _is_whole(line)]


def _is_whole(line: Mapping[str, object]) -> bool:
    evaluation = [line.get(f"eval/{name}") for name in Evaluation.__dataclass_fields__]
    others = [line.get(name) for name in ("reward/mean", "time/step")]
    numbers = [value for value in (*evaluation, *others) if value is not None]
    none_or_all = evaluation.count(None) in (0, len(evaluation))
    return (
        none_or_all
        and type(line.get("step")) is int
        and all(type(value) in (int, float) for value in numbers)
    )


def peak_memory() -> int | None:
    """Most bytes this process has had resident so far; None where the system does not say."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
