r"""What the answer of a completion is: the one convention that every text verifier shares.

Text up to the last ``</think>`` is reasoning and never the answer, and a ``<think>`` that is never
closed leaves no answer at all. In what remains the answer is, in this order,

1. the content of the last complete ``\boxed{...}``; boxes joined by a comma, "and" or "or" are one
   answer of several parts; an empty or unfinished last box means that there is no answer;
2. what follows the last ``####``;
3. what follows the last cue: "final answer", "the answer is", "Answer:";
4. the text itself, in which a verifier looks for the last thing of its kind.

The tags ``<answer>`` and ``</answer>`` are layout, and stand for the end of a line.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

LONGEST_ANSWER = 2000
"""Characters; a longer answer is not read."""

_END_TOKEN = re.compile(r"(?:<\|[\w-]{1,30}\|>|</s>|<eos>|<end_of_turn>)$")
_ANSWER_TAG = re.compile(r"</?answer>")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s{0,20}")
_CUT_COMMAND = re.compile(r"\\(?:b|bo|box|boxe|f|fb|fbo)\s{0,20}$")
_BETWEEN_BOXES = re.compile(
    r"[\s$]*(?:\\[\])])?[\s$]*(?:[,;]?\s*(?:and|or)|[,;]|\\text\{\s*(?:and|or)\s*\})[\s$]*"
    r"(?:\\[\[(])?[\s$]*(?:[A-Za-z]\w{0,3}\s*=\s*)?"
)
_CUE = re.compile(
    r"\bfinal\s+answers?\b(?:[^\n.:=]{0,80}?(?:\b(?:is|are|would\s+be)\b|[:=]))?\s*[:=]?"
    r"|\banswers?(?:\s+(?:to|for)\s[^\n.:=]{0,80}?)?\s*(?:\b(?:is|are|would\s+be)\b|[:=])\s*[:=]?",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\Aanswers?[ \t:]*\n", re.IGNORECASE)
_EMPHASIS = re.compile(
    r"(?<![\w)}*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w({\\*])"
    r"|(?<![\w})\\])_{1,2}(?=\w)|(?<=\w)_{1,2}(?![\w{\\])|`+"
)
_DISPLAY = re.compile(r"\\\[(.{0,2000}?)\\\]|\$\$(.{0,2000}?)\$\$", re.DOTALL)


class Source(StrEnum):
    """Where an answer was found."""

    BOX = "box"
    HASHES = "####"
    CUE = "cue"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The stretch of a completion that holds its answer.

    Example: in "2 + 3 is 5. The answer is 5 apples." it is text "5 apples." with source CUE.
    """

    text: str
    """At most one line, unless the source is TEXT; emphasis of Markdown is gone."""

    source: Source
    """Which rule found it."""


class NoAnswer(Exception):
    """A completion has no answer, for the reason given: an outcome, which makes it unparsable."""


def final_text(completion: str) -> str:
    """What comes after the reasoning, without end-of-turn tokens that decoding left behind.

    Raises:
        NoAnswer: the reasoning never ends.
    """
    text = completion.rpartition("</think>")[2]
    if "<think>" in text:
        raise NoAnswer("the reasoning is never closed, so there is no answer after it")
    return without_end_tokens(text)


def without_end_tokens(text: str) -> str:
    """The text without end-of-turn tokens that decoding left at its end, such as ``<|im_end|>``."""
    while match := _END_TOKEN.search(text[-80:].rstrip()):
        text = text.rstrip()[: -len(match.group())]
    return text


def find_answer(completion: str) -> Answer:
    """The answer of a completion, by the convention of this module.

    Raises:
        NoAnswer: there is none: unfinished reasoning, an empty or cut-off box, nothing after a cue.
    """
    text = _ANSWER_TAG.sub("\n", final_text(completion))
    boxed = _boxed(text)
    if boxed is not None:
        return Answer(text=boxed, source=Source.BOX)
    _, hashes, after = text.rpartition("####")
    if hashes:
        return Answer(text=_after_hashes(after), source=Source.HASHES)
    plain = without_emphasis(text)
    cued = _after_cue(plain)
    if cued is not None:
        return Answer(text=cued, source=Source.CUE)
    if not plain.strip():
        raise NoAnswer("the completion is empty")
    return Answer(text=plain.strip(), source=Source.TEXT)


def without_emphasis(text: str) -> str:
    """The text without the asterisks, underscores and backticks of Markdown."""
    return _EMPHASIS.sub("", text)


def _after_cue(text: str) -> str | None:
    """The line after the last cue; None without a cue."""
    cues = list(_CUE.finditer(text))
    if not cues:
        return None
    return _statement(text[cues[-1].end() :])


def _after_hashes(text: str) -> str:
    """The line after the last hashes, which may hold a cue of its own ("#### Answer: 5")."""
    plain = without_emphasis(text[: 2 * LONGEST_ANSWER]).lstrip(" \t\n:#")
    plain = _HEADING.sub("", plain, count=1)
    cue = _CUE.search(plain.partition("\n")[0])
    return _statement(plain[cue.end() :] if cue else plain)


def _statement(text: str) -> str:
    """The first line that says something, with displayed mathematics brought into one line."""
    inline = _DISPLAY.sub(lambda shown: " ".join(shown.group().split()), text[: 2 * LONGEST_ANSWER])
    lines = [line for line in without_emphasis(inline).splitlines() if line.strip(" \t:#>")]
    if not lines:
        raise NoAnswer("nothing follows the mark that announces the answer")
    return _short(lines[0].strip(" \t:"))


def _boxed(text: str) -> str | None:
    """The last box with those it is joined to; None without a box."""
    if _CUT_COMMAND.search(text[-30:]):
        raise NoAnswer("the completion ends in an unfinished box")
    openings = list(_BOX.finditer(text))
    if not openings:
        return None
    contents: list[str] = []
    following = len(text)
    for opening in reversed(openings[-20:]):
        end = _box_end(text, opening.end())
        if contents and (end is None or not _BETWEEN_BOXES.fullmatch(text[end:following][:80])):
            break
        if end is None:
            raise NoAnswer("the last box is never closed")
        content = _content(text[opening.end() : end])
        if not content:
            raise NoAnswer("the last box is empty")
        contents.insert(0, content)
        following = opening.start()
    return _short(", ".join(dict.fromkeys(contents)))


def _content(group: str) -> str:
    return (group[1:-1] if group.startswith("{") else group).strip()


def _box_end(text: str, start: int) -> int | None:
    """One past the group, or the single character, that a box command at start - 1 encloses."""
    if not text.startswith("{", start):
        return start + 1 if text[start : start + 1].strip() else None
    depth = 0
    escaped = False
    for position in range(start, min(len(text), start + LONGEST_ANSWER + 2)):
        character = text[position]
        if escaped or character == "\\":
            escaped = not escaped
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return position + 1
    return None


def _short(text: str) -> str:
    if len(text) > LONGEST_ANSWER:
        raise NoAnswer(f"the answer is longer than {LONGEST_ANSWER} characters")
    return text
