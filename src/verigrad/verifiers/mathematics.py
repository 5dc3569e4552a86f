r"""Is the answer of a completion the right one, as mathematics?"""

from dataclasses import dataclass
from typing import Any

from verigrad.types import Verdict
from verigrad.verifiers.tolerance import Tolerance


@dataclass(frozen=True, kw_only=True, slots=True)
class Math:
    r"""Reward 1 when the answer equals the reference in value: numbers, lists, sets, intervals, ...

    The answer is found by the convention of ``verigrad.verifiers.answer``. LaTeX and plain text are
    both read; nothing is executed. ``docs/verifiers.md`` lists what equals what.

    Example:
        Math()(r"Hence \boxed{\frac{x+5}{9}}", r"\frac{x}{9} + \frac{5}{9}")   -> reward 1
        Math()("The roots are 4 and -3.", "-3, 4")                             -> reward 1
    """

    abs_tol: float = 0.0
    """Largest difference from the reference that is still right."""

    rel_tol: float = 0.0
    """The same, as a share of the reference."""

    def __post_init__(self) -> None:
        """Refuse tolerances that are negative or not finite."""
        Tolerance(abs_tol=self.abs_tol, rel_tol=self.rel_tol)

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            TaskError: the reference is empty or cannot be read.
        """
        # SymPy takes a third of a second to import, so whoever needs no mathematics does not pay.
        from verigrad.verifiers.algebra.judging import judge_completion, read_reference

        tolerance = Tolerance(abs_tol=self.abs_tol, rel_tol=self.rel_tol)
        return judge_completion(completion, read_reference(reference), tolerance)
