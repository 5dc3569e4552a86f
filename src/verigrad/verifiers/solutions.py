"""A completion that must get full marks: what a reference looks like as an answer."""

from typing import Any


def solution_of(verifier: object, reference: Any) -> str | None:
    """A completion that is right, by what a verifier says of itself in ``solution(reference)``.

    One without that method is given the reference as text.

    Args:
        verifier: any verifier.
        reference: of a problem; one that the verifier can use.

    Returns:
        The completion, or None where the reference is none that could be written as one: a table, a
        pattern, a list of tests, nothing.
    """
    own = getattr(verifier, "solution", None)
    if own is None:
        return as_text(reference)
    answer: str | None = own(reference)
    return answer


def as_text(reference: Any) -> str | None:
    """Text or a number as text; None for anything else."""
    return str(reference) if isinstance(reference, str | int | float) else None
