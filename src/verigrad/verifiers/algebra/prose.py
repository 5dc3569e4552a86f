"""Formulas in sentences: where they begin and end, and what the words before them do to them."""

# ruff: noqa: RUF001  signs that look alike are what is read here

import re
from dataclasses import dataclass

from verigrad.verifiers.algebra.units import is_unit
from verigrad.verifiers.algebra.vocabulary import FRACTIONS, FUNCTIONS, GREEK, SCALES, SPELLED
from verigrad.verifiers.answer import Answer, NoAnswer, Source

_PIECE = re.compile(
    r"(?P<space>\s+)|(?P<number>\d+(?:[.,]\d+)*|\.\d+)|(?P<command>\\(?:[A-Za-z]+|.))"
    r"|(?P<word>[A-Za-z\u00c0-\u024f]+(?:'[A-Za-z]+)?)|(?P<other>.)",
    re.DOTALL,
)
_SIGNS = frozenset(
    [name for name in GREEK if not name.isascii()]
    + list("+-−–*/×·÷^_=<>≤≥≠≈±∓√∛π∞°%|()[]{}'∪∩∈∅…~&⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ₀₁₂₃₄₅₆₇₈₉$€£¢¥₹")
    + list(FRACTIONS)
)
_TABLE = re.compile(r"\{\s*\"")
"""How JSON begins, which is no formula; one may stand in it."""

_MATHEMATICAL = re.compile(rf"\d|[π∞∅{''.join(FRACTIONS)}]|\\[A-Za-z]|[A-Za-z)]!")
_PUNCTUATION = ",;:.!?"
_DELIMITERS = re.compile(r"\\[()\[\]]|\$\$|(?<!\\)\$")
_HEDGE = re.compile(r"\b(or|and)\s+(?:maybe|perhaps|possibly|else|even|rather)\s+", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:[aAI]\s+)+(?=\S)|\s+[aAI]$")
_OPERATOR = re.compile(r"[+\-−*/×·^=<>≤≥≠±∪∩∈]")
_DENIED = re.compile(
    r"(?:\bnot|\bneither|\bnor|\bnever|\w+n't|\brather than|\binstead of)"
    r"(?:\s+(?:be|equal(?:s| to)?|simply|just|the|a))*\s*$",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:\b(?:less|more|greater|fewer|smaller|larger|bigger|higher|lower)\s+than(?:\s+or\s+equal\s+to)?"
    r"|\bat\s+(?:least|most)|\bup\s+to|\bunder|\bbelow|\babove|\bover|\bbetween|\bexceeds)\s*$",
    re.IGNORECASE,
)
_BOUND_AFTER = re.compile(
    r"\s*(?:\w+\s+)?or\s+(?:more|less|fewer|greater|higher|lower|above|below|larger|smaller)\b",
    re.IGNORECASE,
)
_FACTORIAL = r"!(?=\s*(?:[+*/^=<>)$\\!]|-\s*[\d\\(A-Za-z](?![A-Za-z])))"
"""An exclamation mark that ends no sentence: the formula goes on, or its delimiters close."""

_SENTENCE_END = re.compile(rf"(?<![ap]\.m)(?!{_FACTORIAL})[.!?](?=\s|$)")
_CLOSED_FACTORIAL = re.compile(r"(\$\$?|\\[(\[])([^$\n]{0,300}?!)\s*(\$\$?|\\[)\]])")
_UNIT_AFTER = re.compile(
    r"(?<!\\)\$([^$\n]{1,300}\d\}?\s*)\$\s+([A-Za-z]{1,3}(?:/[A-Za-z]{1,4})?)(\^?[23²³])?"
    r"(?=[\s.,;)]|$)"
)
_NEGATIVE = re.compile(r"(^\s*|[^\s\d)}\]$]\s+)(?:minus|negative)\s+(?=[\d.$\\])", re.IGNORECASE)
_REASON = re.compile(r"[,;(]|\s(?:because|since|as)\s")


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula in a sentence, the text between it and the formula before it, and all after it."""

    text: str
    before: str
    after: str


def answer_formula(answer: Answer) -> str | None:
    """The formula that an answer found in prose states; None if there is none.

    After a cue it is the first one, else the last one; one that is denied ("not 5") is passed over,
    and an alternative ("5, or maybe 6") is part of it.

    Raises:
        NoAnswer: it is only a bound ("less than 5").
    """
    is_last = answer.source is Source.TEXT
    text = answer.text[-4000:] if is_last else _sentence(answer.text)
    found = [one for one in formulas(text) if not _DENIED.search(one.before)]
    if not found:
        return None
    chosen = found[-1 if is_last else 0]
    if _BOUND.search(chosen.before) or _BOUND_AFTER.match(chosen.after):
        raise NoAnswer("the answer is only a bound")
    pair = found[-2:] if is_last else found[:2]
    between = pair[-1].before.lower().split() if len(pair) == 2 else []
    if between[-1:] == ["or"]:
        return f"{pair[0].text} or {pair[1].text}"
    if between == ["to"] and not is_last:
        return f"{pair[0].text} : {pair[1].text}"
    return chosen.text


def answer_words(answer: Answer) -> tuple[str, ...]:
    """The sentence of an answer in words, as a whole and up to the reason it gives."""
    sentence = _sentence(answer.text).strip()
    return sentence, _REASON.split(sentence)[0].strip()


def formulas(text: str) -> list[Formula]:
    """The formulas of a text in order."""
    text = _UNIT_AFTER.sub(_with_unit, _NEGATIVE.sub(r"\1-", _HEDGE.sub(r"\1 ", text)))
    scanner = _Scanner(undelimited(_CLOSED_FACTORIAL.sub(r"\1{\2}\3", text)))
    found: list[Formula] = []
    end = 0
    for start, stop in scanner.runs():
        formula = _trimmed(scanner.text[start:stop])
        if _is_formula(formula, scanner.text):
            found.append(Formula(formula, scanner.text[end:start], scanner.text[stop:]))
            end = stop
    return found


def _with_unit(match: "re.Match[str]") -> str:
    r"""A unit behind a formula in dollar signs as a part of it: ``$10^3$ m``."""
    formula, unit, power = match.groups()
    if not is_unit(unit.partition("/")[0]) or unit == "in":
        return match.group()
    return rf"${formula}\text{{ {unit}}}{power or ''}$"


def undelimited(text: str) -> str:
    r"""Without ``$``, ``\(`` and their like; an odd dollar sign before a digit is a currency."""
    dollars = len(re.findall(r"(?<!\\)\$", text.replace("$$", "")))
    if dollars % 2:
        text = re.sub(r"(?<!\\)\$(?=\s?\d)", r"\\$", text)
    return _DELIMITERS.sub(" ", text)


def _sentence(text: str) -> str:
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def _is_formula(text: str, whole: str) -> bool:
    if _MATHEMATICAL.search(text) or text in SPELLED:
        return True
    letters = re.search(r"[A-Za-z]", text)
    return bool(letters) and (
        bool(_OPERATOR.search(text)) or text == whole.strip(" .") or "(" in text
    )


def _trimmed(text: str) -> str:
    text = re.sub(r"^[\s,;:)\]}*/|'.~]+(?!\d)|[\s,;:(\[*|&'.\-]+$", "", text)
    text = _ARTICLE.sub("", text)
    while text.endswith(")") and _surplus(text) < 0:
        text = text[:-1].rstrip()
    while text.startswith("(") and _surplus(text) > 0:
        text = text[1:].lstrip()
    return text.strip()


def _surplus(text: str) -> int:
    """Opening brackets without their closing ones; half-open intervals mix the two kinds."""
    return len(re.findall(r"[(\[]", text)) - len(re.findall(r"[)\]]", text))


class _Scanner:
    """The pieces of a text, and which of them continue a formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces = list(_PIECE.finditer(text))

    def runs(self) -> "list[tuple[int, int]]":
        """Start and end of every stretch of pieces that belong to formulas."""
        runs: list[tuple[int, int]] = []
        start: int | None = None
        depth = 0
        for place, piece in enumerate(self.pieces):
            if depth > 0 or self.belongs(place, running=start is not None):
                start = piece.start() if start is None else start
                depth = max(0, depth + {"{": 1, "}": -1}.get(piece.group(), 0))
            elif start is not None:
                runs.append((start, piece.start()))
                start = None
        if start is not None:
            runs.append((start, len(self.text)))
        return runs

    def belongs(self, place: int, *, running: bool) -> bool:
        piece = self.pieces[place]
        text = piece.group()
        match piece.lastgroup:
            case "number" | "command":
                return True
            case "space":
                return running and "\n" not in text
            case "word":
                return self.word_belongs(place, running)
        if text in _PUNCTUATION:
            return running and self.punctuation_belongs(place, text)
        # A closing brace without its opening one belongs to what is around the formula.
        return text in _SIGNS and text != "}" and not _TABLE.match(self.text, piece.start())

    def word_belongs(self, place: int, running: bool) -> bool:
        text = self.pieces[place].group()
        if len(text) == 1 or text in FUNCTIONS or text in SPELLED or text == "sqrt":
            return True
        if not running:
            return False
        if text.lower() in ("or", "and"):
            return self.starts_formula(place + 1)
        before = self.pieces[place - 1]
        if before.lastgroup == "number" or text.lower().removesuffix("s") in SCALES:
            return True  # written together (5cm, 19th), or a part of the number (5 million)
        return (is_unit(text) and text != "in") or (text == "per" and self.is_unit_after(place))

    def is_unit_after(self, place: int) -> bool:
        following = [piece.group() for piece in self.pieces[place + 1 : place + 3]]
        return len(following) == 2 and is_unit(following[1])

    def starts_formula(self, place: int) -> bool:
        """Does a formula piece follow, after white space?"""
        while place < len(self.pieces) and self.pieces[place].lastgroup == "space":
            place += 1
        if place == len(self.pieces):
            return False
        piece = self.pieces[place]
        if piece.lastgroup == "word":
            return len(piece.group()) == 1 and piece.group() not in "aAI"
        return piece.lastgroup in ("number", "command") or piece.group() in _SIGNS

    def punctuation_belongs(self, place: int, text: str) -> bool:
        following = self.pieces[place + 1] if place + 1 < len(self.pieces) else None
        if text in ",;":
            return self.starts_formula(place + 1)
        if following is None:
            return False
        if text == ".":
            return following.group() == "." or self.pieces[place - 1].group() == "."
        if text == ":" and self.pieces[place - 1].lastgroup == "space":
            return self.starts_formula(place + 1)
        if text == "!" and re.match(_FACTORIAL, self.text[self.pieces[place].start() :]):
            return True
        return text in ":!" and following.lastgroup != "space"
