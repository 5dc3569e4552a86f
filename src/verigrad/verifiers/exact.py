"""Is the completion the reference, as text?"""

import re
import string
import unicodedata
from dataclasses import dataclass
from typing import Any, ClassVar

from verigrad.errors import TaskError
from verigrad.types import Verdict
from verigrad.verifiers.answer import NoAnswer, final_text

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exact:
    r"""Reward 1 when the text after any reasoning is the reference, or one of several.

    The reference is text, a number, or a list of them, any of which is right. Without options only
    white space at the ends is forgiven; each option forgives one more thing, on both sides.

    Example:
        Exact()("yes\n", "yes")                         -> reward 1
        Exact(ignore_case=True)("YES", ["yes", "y"])    -> reward 1
        Exact()("Not Paris this time, Lyon.", "Paris")  -> reward 0
    """

    is_bounded: ClassVar[bool] = True
    """It needs no process of its own."""

    strip: bool = True
    """White space at both ends does not count."""

    ignore_case: bool = False
    """Upper and lower case are the same."""

    ignore_punctuation: bool = False
    """Punctuation does not count, nor the white space it leaves."""

    ignore_articles: bool = False
    """The words a, an and the do not count."""

    normalize_whitespace: bool = False
    """Any run of white space, no-break spaces included, is one space."""

    normalize_unicode: bool = False
    """A letter with its accent is the same in one code point or two (NFC); accents still count."""

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            TaskError: the reference is empty, of another type, or nothing is left of it.
        """
        wanted = [self._plain(one) for one in _references(reference)]
        if not all(wanted):
            raise TaskError(
                f"the reference {reference!r:.80} leaves nothing to compare with, "
                "so that every completion, or none, would be right"
            )
        try:
            given = self._plain(final_text(completion))
        except NoAnswer as reason:
            return Verdict.unparsable(str(reason))
        if not given:
            return Verdict.unparsable("the completion is empty")
        detail = f"the text is {given!r:.80}; expected {' or '.join(map(repr, wanted)):.80}"
        return Verdict.scored(1.0 if given in wanted else 0.0, detail)

    def solution(self, reference: Any) -> str:
        """A completion that is right."""
        return _references(reference)[0]

    def _plain(self, text: str) -> str:
        if self.normalize_unicode:
            text = unicodedata.normalize("NFC", text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = "".join(character for character in text if not _is_punctuation(character))
        if self.ignore_articles:
            text = _ARTICLES.sub(" ", text)
        if self.normalize_whitespace or self.ignore_punctuation or self.ignore_articles:
            text = " ".join(text.split())
        return text.strip() if self.strip else text


def _references(reference: Any) -> list[str]:
    several = list(reference) if isinstance(reference, list | tuple) else [reference]
    for one in several:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise TaskError(
                f"the reference is {reference!r:.80}; expected text, a number, or a list of them"
            )
    if not several:
        raise TaskError("the reference is an empty list; expected at least one right answer")
    return [str(one) for one in several]


def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
