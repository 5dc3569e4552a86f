"""Does a completion keep to the layout that was asked for?"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from verigrad.errors import ConfigError
from verigrad.types import Verdict
from verigrad.verifiers.answer import without_end_tokens
from verigrad.verifiers.patterns import Mode, check_options, check_pattern, matches

Template = Literal["think_answer", "think"]

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    r"""Reward 1 when the whole completion, reasoning included, has the layout.

    The reference is not used. Give a template or a pattern. ``think_answer`` is
    ``<think>..</think>`` followed by ``<answer>..</answer>`` and nothing else but white space, each
    tag once; ``think`` is one ``<think>..</think>`` at the start and then anything.

    Example:
        Format(template="think_answer")("<think>2+2</think><answer>4</answer>", None)  -> reward 1
        Format(pattern=r"\d{4}-\d{2}")("2031-05; see note", None)                      -> reward 0
    """

    template: Template | None = None
    """The layout by name."""

    nonempty: bool = False
    """Blocks must hold more than white space."""

    pattern: str | None = None
    """The layout as a regular expression of Python."""

    mode: Mode = "fullmatch"
    """The pattern matches the whole completion, or is found in it ("search")."""

    flags: str = ""
    """Any of the letters i (ignore case), m (^ and $ at every line), s (. also for newlines), x."""

    def __post_init__(self) -> None:
        """Refuse an unknown template, a pattern that is none, and both or neither of them."""
        if (self.template is None) == (self.pattern is None):
            raise ConfigError("a format needs either a template or a pattern, and not both")
        if self.template is not None and self.template not in get_args(Template):
            known = ", ".join(get_args(Template))
            raise ConfigError(f"the template is {self.template!r}; expected one of {known}")
        check_options(self.mode, self.flags)
        if self.pattern is not None:
            check_pattern(self.pattern, self.flags)

    @property
    def is_bounded(self) -> bool:
        """A template needs no process of its own; a pattern may backtrack."""
        return self.pattern is None

    def around(self, answer: str) -> str | None:
        """A completion of this layout with an answer in it; None where a pattern is the layout."""
        if self.template is None:
            return None
        start = "<think>\nThe answer follows.\n</think>\n"
        return start + (f"<answer>{answer}</answer>" if self.template == "think_answer" else answer)

    def solution(self, reference: Any) -> str | None:
        """A completion that is right; None where a pattern is the layout."""
        return self.around("something")

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            VerigradError: the pattern takes too long on this text.
        """
        text = without_end_tokens(completion)
        if self.pattern is not None:
            right = matches(self.pattern, text, self.mode, self.flags)
            return Verdict.scored(float(right), f"the pattern {self.pattern!r:.80}")
        problem = self._problem(text)
        return Verdict.scored(0.0 if problem else 1.0, problem or "as asked for")

    def _problem(self, text: str) -> str:
        """What is wrong with the layout, or nothing."""
        tags = _TAGS if self.template == "think_answer" else _TAGS[:2]
        for tag in tags:
            if text.count(tag) != 1:
                return f"{tag} occurs {text.count(tag)} times; expected once"
        # Cut at each tag: before, inside and after the blocks. A tag out of order is not found.
        pieces = []
        for tag in tags:
            piece, found, text = text.partition(tag)
            if not found:
                return f"{tag} is out of order"
            pieces.append(piece)
        outside = pieces[0::2] + ([text] if self.template == "think_answer" else [])
        if any(piece.strip() for piece in outside):
            return "there is text outside the blocks"
        if self.nonempty and not all(piece.strip() for piece in pieces[1::2]):
            return "a block is empty"
        return ""
