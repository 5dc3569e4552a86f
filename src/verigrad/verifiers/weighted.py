"""A reward made of named parts."""

import inspect
import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verigrad.errors import ConfigError
from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers.boundary import is_bounded, verify
from verigrad.verifiers.layout import Format
from verigrad.verifiers.solutions import solution_of

Answer = float | bool | Verdict | None


class Part(Protocol):
    """A verifier that may also say None: this completion is not mine to judge."""

    def __call__(self, completion: str, reference: Any, /) -> Answer | Awaitable[Answer]:
        """Return a reward, a verdict, or None where the part does not apply."""
        ...


@dataclass(frozen=True, slots=True)
class Weighted:
    """The sum of weight times reward over named parts.

    The verdict's components are the parts' own rewards, before weighting. A part that fails makes
    the verdict failed, unless its weight is 0: such a part is only logged. A part that does not
    apply (None) is left out; if no part with a weight is left, the verdict is failed. It is
    unparsable when every part with a weight is.
    """

    parts: Mapping[str, tuple[float, Part]]

    def __post_init__(self) -> None:
        """Refuse weights that are not finite numbers, and sums without any weight."""
        for name, (weight, part) in self.parts.items():
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not number or not math.isfinite(weight):
                raise ConfigError(
                    f"the weight of part {name!r} is {weight!r}; expected a finite number"
                )
            if not callable(part):
                raise ConfigError(f"part {name!r} is {part!r:.80}; expected a function")
        if not any(weight for weight, _ in self.parts.values()):
            raise ConfigError("no part has a weight other than 0, so that every reward would be 0")

    @property
    def is_bounded(self) -> bool:
        """It needs no process of its own if none of its parts does."""
        return all(is_bounded(part) for _, part in self.parts.values())

    def solution(self, reference: Any) -> str | None:
        """The solution of the first part that has one, in the layout of a part that asks for one.

        None where no part has one, or where a layout is a pattern.
        """
        parts = [part for weight, part in self.parts.values() if weight > 0]
        layouts = [part for part in parts if isinstance(part, Format)]
        found = (solution_of(part, reference) for part in parts if part not in layouts)
        answer = next((text for text in found if text is not None), None)
        for layout in layouts:
            answer = layout.solution(reference) if answer is None else layout.around(answer)
        return answer

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion with every part."""
        verdicts: dict[str, Verdict] = {}
        for name, (weight, part) in self.parts.items():
            verdict = _apply(part, completion, reference)
            if verdict is None:
                continue
            if verdict.status is Status.FAILED:
                if weight:
                    return Verdict.failed(
                        f"part {name!r}: {verdict.detail}", verdict.kind or FailureKind.EXCEPTION
                    )
                continue
            verdicts[name] = verdict
        return self._sum(verdicts)

    def _sum(self, verdicts: Mapping[str, Verdict]) -> Verdict:
        counted = {name: verdict for name, verdict in verdicts.items() if self.parts[name][0]}
        if not counted:
            return Verdict.failed("no part with a weight applies to this completion")
        rewards = {name: verdict.reward or 0.0 for name, verdict in verdicts.items()}
        unparsable = all(verdict.status is Status.UNPARSABLE for verdict in counted.values())
        return Verdict(
            status=Status.UNPARSABLE if unparsable else Status.SCORED,
            reward=sum(self.parts[name][0] * rewards[name] for name in counted),
            components=rewards,
            weights={name: float(self.parts[name][0]) for name in rewards},
            detail="; ".join(
                f"{name}: {verdict.detail}" for name, verdict in verdicts.items() if verdict.detail
            ),
        )


def weighted(parts: Mapping[str, tuple[float, Part]]) -> Weighted:
    """A verifier whose reward is the weighted sum of named parts.

    Example:
        weighted({"right": (1.0, Math()), "layout": (0.2, Format(template="think_answer"))})

    Args:
        parts: the weight and the verifier of each part, by name.

    Raises:
        ConfigError: a weight is not a finite number, or none differs from 0.
    """
    return Weighted(dict(parts))


def _apply(part: Part, completion: str, reference: Any) -> Verdict | None:
    """The part's verdict, failed if it raises; None if it does not apply."""
    applies = True

    def noted(answer: Answer) -> float | bool | Verdict:
        nonlocal applies
        applies = answer is not None
        return 0.0 if answer is None else answer

    async def awaited(answer: Awaitable[Answer]) -> float | bool | Verdict:
        return noted(await answer)

    def call(
        text: str, expected: Any
    ) -> float | bool | Verdict | Awaitable[float | bool | Verdict]:
        answer = part(text, expected)
        return awaited(answer) if inspect.isawaitable(answer) else noted(answer)

    verdict = verify(call, completion, reference)
    return verdict if applies else None
