"""Which of the given options does a completion choose?"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from verigrad.errors import ConfigError, TaskError
from verigrad.types import Verdict
from verigrad.verifiers.answer import Answer, NoAnswer, Source, find_answer

_WRAPPING = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}|\$|\\[()\[\]]|[\"“”`]|(?<!\w)'|'(?!\w)"
)
_SENTENCE_END = re.compile(r"(?<=[\w)\]])[.!?](?=\s|$)|\n")
_DENIAL = re.compile(
    r"(?:\bnot|n't|\bneither|\bnor|\bnever|\brather than|\binstead of|\bunlike|\bexcept)"
    r"\s+(?:(?:be|option|choice|answer|letter|either|the|an?)\s+)*[(\[]?$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[)\].]?\s+(?:is|was|are|must be|cannot be|can't be|isn't|seems|would be)\b[^.,;\n]{0,40}?"
    r"\b(?:wrong|incorrect|false|not|impossible|ruled out|excluded|eliminated)\b"
    r"|[)\]]?\s+(?:cannot|can't|isn't|is not)\b",
    re.IGNORECASE,
)
REACH = 100
"""Characters beside a label that are looked at, so that time grows with the text and not faster."""

_LETTERS = r"0-9A-Za-z_\u00c0-\u04ff"
"""What a word is made of in scripts that put blanks between words."""

_NAMED = re.compile(r"\b(?:option|choice|letter|answer)\s+[(\[]?$", re.IGNORECASE)
_CLOSED = re.compile(
    r"\s*(?:[)\].:,;!?/&]|$)|\s+[-\u2013\u2014(]|\s+(?:because|since|as|for|is|or|and|which)\b"
)
_REASON = re.compile(r"\b(?:because|since|as|for|while|whereas)\b|\(|:", re.IGNORECASE)
_JOINED = re.compile(r"[\s,)]*(?:or|nor|and|,)[\s(]*")
_CONCLUSION = re.compile(
    r"\b(?:so|therefore|thus|hence|answer|correct|right|choose|pick|select|go with"
    r"|must be|final|best)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Reward 1 when the completion chooses the reference's option, and no other.

    The reference is a label; with options that differ from problem to problem it is a table
    ``{"label": "C", "choices": {"A": "ribosome", ...}}``. Naming two options is choosing none, an
    option that is denied ("not B", "B is wrong") is not named, and the article "a" and the pronoun
    "I" are not labels. Where no label is named, the text of exactly one option stands for it.

    Example:
        Choice()("The answer is B because a pendulum swings back.", "B")   -> reward 1
        Choice()("A or C", "A")                                            -> unparsable
    """

    is_bounded: ClassVar[bool] = True
    """It needs no process of its own."""

    choices: Sequence[str] | Mapping[str, str] = field(default=("A", "B", "C", "D"))
    """The labels, or labels with the text of their options."""

    def __post_init__(self) -> None:
        """Refuse labels that are missing, empty or equal."""
        _check_labels(self.choices)

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            TaskError: the reference is not one of the labels.
        """
        label, choices = self._reference(reference)
        texts = choices if isinstance(choices, Mapping) else {}
        try:
            chosen = choose(find_answer(completion), list(choices), texts)
        except NoAnswer as reason:
            return Verdict.unparsable(str(reason))
        detail = f"the choice is {chosen}; expected {label}"
        return Verdict.scored(1.0 if chosen == label else 0.0, detail)

    def solution(self, reference: Any) -> str:
        """A completion that is right: the label."""
        return self._reference(reference)[0]

    def _reference(self, reference: Any) -> tuple[str, Sequence[str] | Mapping[str, str]]:
        choices = self.choices
        if isinstance(reference, Mapping):
            if set(reference) != {"label", "choices"}:
                raise TaskError(
                    f"the reference has the keys {sorted(map(str, reference))}; "
                    "expected a label, or a table with the keys label and choices"
                )
            choices, reference = reference["choices"], reference["label"]
            _check_labels(choices)
        label = _Finder(list(choices)).bare(str(reference))
        if label is None:
            raise TaskError(f"the reference is {reference!r:.80}; expected one of {list(choices)}")
        return label, choices


def choose(answer: Answer, labels: Sequence[str], texts: Mapping[str, str]) -> str:
    """The label of the option that an answer chooses.

    Raises:
        NoAnswer: none or several are chosen.
    """
    text = unicodedata.normalize("NFKC", answer.text)
    text = _WRAPPING.sub(lambda wrapped: wrapped.group(1) or " ", text).strip()
    sentences = [part for part in _SENTENCE_END.split(text) if part.strip()] or [""]
    finder = _Finder(labels)
    bare = finder.bare(text)
    if bare is not None:
        return bare
    if answer.source is Source.TEXT:
        found = _concluded([finder.labels(sentence) for sentence in sentences], sentences)
        sentence = sentences[-1]
    else:
        sentence = sentences[0]
        # What follows a reason only explains: "B because option A is too small".
        found = finder.labels(sentence, is_announced=True)
    if len(found) > 1:
        raise NoAnswer(f"several options are chosen: {', '.join(found)}")
    chosen = found[0] if found else _by_text(sentence, texts)
    if chosen is None:
        raise NoAnswer("no option is chosen")
    return chosen


def _concluded(found: list[list[str]], sentences: list[str]) -> list[str]:
    """The labels named anywhere, or those of the last conclusion where several are."""
    distinct = list(dict.fromkeys(label for labels in found for label in labels))
    if len(distinct) > 1:
        for labels, sentence in zip(reversed(found), reversed(sentences), strict=True):
            if labels and _CONCLUSION.search(sentence):
                return labels
    return distinct


class _Finder:
    """Finds labels in sentences."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.by_key = {label.casefold(): label for label in labels}
        ordered = sorted(labels, key=len, reverse=True)
        spelled = "|".join(re.escape(label) for label in ordered)
        # Not within a word (DNA, A-level), a number or a name (C++, A.I.); other scripts, which
        # put no blanks between words, may touch a label.
        self.pattern = re.compile(
            rf"(?<![{_LETTERS}.\-'])(?:{spelled})(?![{_LETTERS}'\-+#]|\.\d|\.[A-Z](?![a-z]))",
            re.IGNORECASE,
        )

    def bare(self, text: str) -> str | None:
        """The label when the text is nothing else: "d", "(B)", "C."."""
        return self.by_key.get(text.strip(" \t\n()[]{}.:,;!*").casefold())

    def labels(self, sentence: str, *, is_announced: bool = False) -> list[str]:
        """The different labels that a sentence names and does not deny.

        Args:
            sentence: where to look.
            is_announced: it follows a cue, so that it starts with the label and then explains it.
        """
        found: list[str] = []
        denied = False
        end = 0
        for match in self.pattern.finditer(sentence):
            between = sentence[end : match.start()]
            if is_announced and found and _REASON.search(between):
                break
            before, after = _around(match)
            denied = bool(_DENIAL.search(before)) or (denied and bool(_JOINED.fullmatch(between)))
            end = match.end()
            if denied or _DENIED_AFTER.match(after):
                continue
            if self.is_label(match.group(), before, after, is_announced=is_announced):
                found.append(self.by_key[match.group().casefold()])
        return list(dict.fromkeys(found))

    def starts_with_label(self, after: str) -> bool:
        """Does a label follow a blank, as in "A B"?"""
        match = self.pattern.match(after.lstrip())
        follows = match is not None and match.group() in self.by_key.values()
        return follows and after[:1].isspace()

    def is_label(self, text: str, before: str, after: str, *, is_announced: bool) -> bool:
        """Not the article "a", the pronoun "I", or a letter in lower case within a sentence."""
        named = bool(_NAMED.search(before)) or (
            before[-1:] in ("(", "[") and after[:1] in (")", "]")
        )
        closed = bool(_CLOSED.match(after))
        if text in self.by_key.values():
            is_word = text.upper() in ("A", "I") and not self.starts_with_label(after)
            return named or closed or not is_word
        return len(text) > 1 or (closed and (named or (is_announced and not before.strip("( ["))))


def _by_text(sentence: str, texts: Mapping[str, str]) -> str | None:
    """The label of the only option whose text the sentence states and does not deny."""
    found = [label for label, text in texts.items() if _is_stated(text.strip(), sentence)]
    return found[0] if len(found) == 1 else None


def _is_stated(text: str, sentence: str) -> bool:
    places = re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", sentence, re.IGNORECASE)
    around = map(_around, places)
    return any(
        not _DENIAL.search(before) and not _DENIED_AFTER.match(after) for before, after in around
    )


def _around(match: "re.Match[str]") -> tuple[str, str]:
    """What stands just before and after, as far as it can say something of the match."""
    start, end = match.span()
    return match.string[max(0, start - REACH) : start], match.string[end : end + REACH]


def _check_labels(choices: object) -> None:
    if isinstance(choices, str) or not isinstance(choices, Sequence | Mapping):
        raise ConfigError(
            f"choices is {choices!r:.80}; expected a list of labels or a table of options"
        )
    labels = list(choices)
    texts = list(choices.values()) if isinstance(choices, Mapping) else []
    if (
        not all(isinstance(one, str) and one.strip() for one in [*labels, *texts])
        or len(labels) < 2
    ):
        raise ConfigError(
            f"choices is {choices!r:.80}; expected two labels or more, none of them empty"
        )
    if len({label.casefold() for label in labels}) < len(labels):
        raise ConfigError(f"choices is {choices!r:.80}; labels must differ in more than case")
