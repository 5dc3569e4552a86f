"""Updates whose loss or gradient is not finite: what they were, and the likely cause in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verigrad.batch import Batch
from verigrad.errors import BadNumbersError
from verigrad.policies.base import Policy

SCORES = {
    "sampling_log_probs": "the sampler",
    "old_log_probs": "the policy",
    "reference_log_probs": "the reference policy",
}
"""The log-probs of a batch, and who gave them."""

FACTORS = ("advantages", "weights", "correction", "kl_weights", "entropy_weights")
"""What else multiplies into the loss, token by token."""

LARGE = 1e6
"""Advantages beyond this are named as the cause: ordinary ones are about 1."""


@dataclass(frozen=True, kw_only=True)
class BadUpdate:
    """An update that was not made: no parameter, moment or count of the optimiser has changed."""

    loss: float
    """May be NaN or infinite."""

    gradient_norm: float
    """Before clipping; may be NaN or infinite. This or the loss is."""

    cause: str
    """The likely cause, and what to do."""


def first_bad(tensors: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """The name of the first tensor that holds a number that is not finite."""
    found = (name for name, value in tensors if value is not None and not value.isfinite().all())
    return next(found, None)


def first_bad_parameter(policy: Policy) -> str | None:
    """The first parameter that holds a number that is not finite."""
    return first_bad((name, value.detach()) for name, value in policy.module.named_parameters())


def first_bad_gradient(policy: Policy) -> str | None:
    """The same of the gradients that are there."""
    return first_bad((name, value.grad) for name, value in policy.module.named_parameters())


def values_of(batch: Batch) -> dict[str, Tensor]:
    """The numbers per token that a batch brings to the loss, by the name of the field."""
    found = {name: getattr(batch, name) for name in (*SCORES, *FACTORS)}
    return {name: value for name, value in found.items() if value is not None}


def likely_cause(policy: Policy, batch: Batch, loss: Tensor) -> str:
    """Why the loss of a batch or its gradient is not finite, from what goes into them.

    Args:
        policy: with the gradient of the batch in its parameters.
        batch: of the update.
        loss: of the same.
    """
    parameter, field = first_bad_parameter(policy), first_bad(values_of(batch).items())
    if parameter is not None:
        return (
            f"the weights are not finite already, first in {parameter}: an update before this one "
            "was too large, so go back to a checkpoint before it, with a smaller "
            "optimizer.learning_rate"
        )
    if field in SCORES:
        return (
            f"{SCORES[field]} gives a token of the batch no finite log-prob; its weights are "
            "damaged or too large, for which a smaller optimizer.learning_rate is the usual cure"
        )
    if field == "advantages":
        return "the batch's advantages are not finite; have the verifier return smaller rewards"
    if field is not None:
        return (
            f"the batch's {field} are not finite; check the function of the algorithm that gives it"
        )
    largest = float(batch.advantages.abs().max())
    if largest > LARGE:
        return f"advantages reach {largest:g}; have the verifier return rewards of about 1"
    if not loss.isfinite():
        return (
            "the policy has moved so far from the one that sampled that the loss overflows; "
            "lower optimizer.learning_rate or make fewer updates per step"
        )
    where = first_bad_gradient(policy)
    what = "the norm of the gradient" if where is None else f"the gradient of {where}"
    return f"the loss is finite, but {what} overflows; lower optimizer.learning_rate"


def stop_after(bad: Sequence[BadUpdate], row: int, allowed: int, step: int) -> None:
    """Stop when too many updates in a row were not made: more of the same would not be either.

    Args:
        bad: those of the step.
        row: how many in a row by now.
        allowed: the run stops at so many.
        step: the step.

    Raises:
        BadNumbersError: with the likely cause of the latest.
    """
    if not bad or row < allowed:
        return
    latest = bad[-1]
    raise BadNumbersError(
        f"step {step}: the loss is {latest.loss:g} and the gradient norm is "
        f"{latest.gradient_norm:g}; both must be finite, so the update was not made, the "
        f"{row}. in a row, and optimizer.max_bad_updates is {allowed}. Likely cause: "
        f"{latest.cause}. To see the batch: verigrad replay RUN {step}"
    )


def whole_norm(policy: Policy) -> Tensor:
    """The norm of the whole gradient."""
    gradients = [value.grad for value in policy.module.parameters() if value.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)
