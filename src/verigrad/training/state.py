"""Everything that changes while a run goes on, in one place, and how it becomes tensors and JSON.

A part of the trainer that keeps state of its own would be lost by a resume; so none does.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from verigrad.diagnosis import WINDOW, Finding, Metrics
from verigrad.policies.base import Policy


@dataclass(kw_only=True)
class TrainerState:
    """The mutable state of a run."""

    policy: Policy
    """Its parameters are the state."""

    optimizer: torch.optim.Optimizer
    """Its moments and counts are the state; its settings come from the configuration."""

    reference: Policy | None = None
    """The reference policy, where a run resets it: its parameters are state then too."""

    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, where it is steered towards a target."""

    token_budget: int
    """Most tokens in one pass; smaller than decided once memory has run short."""

    step: int = 0
    """Finished steps."""

    policy_version: int = 0
    """Optimiser updates made."""

    bad_updates: int = 0
    """Updates in a row, the latest ones, that were skipped because they were not finite."""

    recent: list[Metrics] = field(default_factory=list)
    """Metrics of the latest steps, which findings are made from."""

    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By cause: the latest finding, with the step at which the cause was first seen."""

    updating: bool = False
    """Whether a step has begun to change the policy; never so in a checkpoint."""

    @property
    def is_between_steps(self) -> bool:
        """Whether the policy is that of the last finished step: not so after a step's update."""
        done = self.recent[-1]["optimizer/updates"] if self.recent else 0
        return self.policy_version == done

    def finish_step(self, metrics: Metrics) -> None:
        """Count a step and remember its metrics."""
        self.step += 1
        self.recent = [*self.recent, metrics][-WINDOW:]

    def record(self, finding: Finding) -> bool:
        """Keep a finding; true when its cause is seen for the first time."""
        earlier = self.findings.get(finding.cause)
        first = earlier["first_step"] if earlier else finding.step
        self.findings[str(finding.cause)] = {"first_step": first, **asdict(finding)}
        return earlier is None

    def policy_tensors(self) -> dict[str, Tensor]:
        """The policy's tensors by name, a tensor with two names (tied weights) under the first."""
        return _by_first_name(self.policy.module.state_dict())

    def reference_tensors(self) -> dict[str, Tensor]:
        """Those of the reference policy; empty where it is no state."""
        return {} if self.reference is None else _by_first_name(self.reference.module.state_dict())

    def reset_reference(self) -> None:
        """Let the reference policy be the current one from now on."""
        if self.reference is not None:
            _copy(self.policy_tensors(), self.reference_tensors())

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's tensors as ``PARAMETER.NAME``, parameters by their number."""
        slots = self.optimizer.state_dict()["state"]
        return {
            f"{number}.{name}": value
            for number, values in slots.items()
            for name, value in values.items()
        }

    def plain(self) -> dict[str, Any]:
        """The rest, as JSON."""
        return {
            "step": self.step,
            "token_budget": self.token_budget,
            "policy_version": self.policy_version,
            "bad_updates": self.bad_updates,
            "entropy_coefficient": self.entropy_coefficient,
            "recent": self.recent,
            "findings": self.findings,
        }

    def restore(
        self,
        policy: dict[str, Tensor],
        optimizer: dict[str, Tensor],
        reference: dict[str, Tensor],
        plain: dict[str, Any],
    ) -> None:
        """Take over a saved state, in place.

        Raises:
            KeyError: the policy has other tensors than the saved one.
            RuntimeError: a tensor has another shape or type.
        """
        load_tensors(self.policy, policy)
        _copy(reference, self.reference_tensors())
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in optimizer.items():
            number, _, name = key.partition(".")
            slots.setdefault(int(number), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        self.step = plain["step"]
        self.token_budget = plain["token_budget"]
        self.policy_version = plain["policy_version"]
        self.bad_updates = plain["bad_updates"]
        self.entropy_coefficient = plain["entropy_coefficient"]
        self.recent = plain["recent"]
        self.findings = plain["findings"]


def load_tensors(policy: Policy, tensors: dict[str, Tensor]) -> None:
    """Give a policy the saved tensors of another one like it, in place.

    Raises:
        KeyError: it has other tensors than the saved one.
        RuntimeError: a tensor has another shape.
    """
    _copy(tensors, _by_first_name(policy.module.state_dict()))


def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name in target.keys() | source.keys():
            mine, saved = target[name], source[name]
            if (mine.shape, mine.dtype) != (saved.shape, saved.dtype):
                # copy_ would spread or round what it is given.
                raise RuntimeError(
                    f"{name} is {saved.dtype} {tuple(saved.shape)} there, and "
                    f"{mine.dtype} {tuple(mine.shape)} here"
                )
            mine.copy_(saved)


def _by_first_name(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    seen: set[tuple[int, torch.Size]] = set()
    first = {}
    for name, value in tensors.items():
        identity = (value.data_ptr(), value.shape)
        if identity not in seen:
            seen.add(identity)
            first[name] = value
    return first
