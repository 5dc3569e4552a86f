"""Does the text after any reasoning match a pattern?"""

from dataclasses import dataclass
from typing import Any

from verigrad.types import Verdict
from verigrad.verifiers.answer import NoAnswer, final_text
from verigrad.verifiers.patterns import Mode, check_options, check_pattern, matches


@dataclass(frozen=True, kw_only=True, slots=True)
class Regex:
    r"""Reward 1 when the text after any reasoning matches a regular expression.

    White space at the ends is dropped first. Without a pattern the reference is the pattern.

    Example:
        Regex()("<think>hm</think> 2031-05-01", r"\d{4}-\d{2}-\d{2}")   -> reward 1
    """

    pattern: str | None = None
    """The regular expression, if it is the same for every problem."""

    mode: Mode = "fullmatch"
    """It matches the whole text, or is found in it ("search")."""

    flags: str = ""
    """Any of the letters i, m, s, x, as in Python."""

    def __post_init__(self) -> None:
        """Refuse a pattern that is none, and unknown modes and flags."""
        check_options(self.mode, self.flags)
        if self.pattern is not None:
            check_pattern(self.pattern, self.flags)

    def solution(self, reference: Any) -> None:
        """A pattern does not say what it matches."""
        return

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            ConfigError: the reference is needed as a pattern and is none.
            VerigradError: the pattern takes too long on this text.
        """
        pattern = self.pattern
        if pattern is None:
            check_pattern(reference, self.flags)
            pattern = reference
        try:
            text = final_text(completion).strip()
        except NoAnswer as reason:
            return Verdict.unparsable(str(reason))
        right = matches(pattern, text, self.mode, self.flags)
        return Verdict.scored(float(right), f"the pattern {pattern!r:.80}")
