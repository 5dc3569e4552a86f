"""One spelling for what has many: Unicode, TeX shorthand, sized brackets."""

import re

from verigrad.verifiers.algebra.vocabulary import LOWERED, RAISED, UNICODE

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z]{2})")
_ORDINAL = re.compile(r"(?<=\d)\s*\^\s*\{\s*\\(?:text|mathrm)\s*\{(?:st|nd|rd|th)\}\s*\}")
_RAISED = re.compile(f"[{''.join(map(chr, RAISED))}]+")
_LOWERED = re.compile(f"[{''.join(map(chr, LOWERED))}]+")
_SIDE = re.compile(r"\\m?(left|right)\s*(\\?[^A-Za-z\s\\]|\\[A-Za-z]+)")
_FIRST_DIGIT = re.compile(r"\\[dtc]?(frac|binom)\s*(\d)")
_SECOND_DIGIT = re.compile(r"\\(frac|binom)\{(\d)\}\s*(\d)")
_ROOT_DIGITS = re.compile(r"\\sqrt\s*(\d+)")
_COLOR = re.compile(r"\\(?:text)?color\s*\{[^{}]*\}")
_INFIX = re.compile(r"\{([^{}]*)\\(over|choose)(?![A-Za-z])([^{}]*)\}")
_WORDS = r"\\(?:text|mathrm)\s*\{([^{}]*)\}"
_UNITS = re.compile(rf"\\[dt]?frac\s*\{{\s*{_WORDS}\s*\}}\s*\{{\s*{_WORDS}([^{{}}]{{0,3}})\}}")
_ROWS = re.compile(
    r"(?:\\left\s*\\\{\s*)?\\begin\{(cases|aligned|align\*?|gathered|array)\}(?:\s*\{[lcr|\s]*\})?"
    r"(.*?)\\end\{\1\}(?:\s*\\right\s*\.)?",
    re.DOTALL,
)
_ARRAY = re.compile(r"\\begin\{array\}\s*\{[^{}]*\}|\\(end)\{array\}")
_BRACKETS = re.compile(r"[()\[\]]")


def respelled(text: str) -> str:
    r"""The text with ``\frac{5}{7}`` for ``\frac57``, ``^{-5}`` for raised digits, and so on."""
    text = _INVISIBLE.sub("", text)
    for old, new in UNICODE.items():
        text = text.replace(old, new)
    text = _RAISED.sub(lambda run: f"^{{{run.group().translate(RAISED)}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{run.group().translate(LOWERED)}}}", text)
    text = _ROWS.sub(_list, _COLOR.sub(" ", text))
    text = _ARRAY.sub(lambda edge: rf"\{edge.group(1) or 'begin'}{{matrix}}", text)
    if "\\begin" not in text:
        # Backslashes that were escaped once too often.
        text = _DOUBLED.sub(r"\\", text)
    text = _UNITS.sub(r"\\text{\1/\2}\3", _ORDINAL.sub("", text))
    text = _INFIX.sub(_prefix, _turned(text.replace("\\not=", "\\ne ")))
    # TeX gives \frac57 one digit each; nobody who writes \sqrt12 means the root of 1.
    text = _SECOND_DIGIT.sub(r"\\\1{\2}{\3}", _FIRST_DIGIT.sub(r"\\\1{\2}", text))
    return _SIDE.sub(_bracket, _ROOT_DIGITS.sub(r"\\sqrt{\1}", text))


def _bracket(match: "re.Match[str]") -> str:
    r"""``\left(`` is a parenthesis, ``\left.`` nothing, and bars say on which side they are."""
    side, bracket = match.groups()
    if bracket == ".":
        return " "
    if bracket in ("|", r"\vert", r"\lvert", r"\rvert"):
        return r"\lvert " if side == "left" else r"\rvert "
    return f"{bracket} "


def _prefix(match: "re.Match[str]") -> str:
    r"""``\frac{a}{b}`` for ``{a \over b}``, and ``\binom`` for ``\choose``."""
    above, command, below = match.groups()
    return f"\\{'frac' if command == 'over' else 'binom'}{{{above}}}{{{below}}}"


def _list(match: "re.Match[str]") -> str:
    """A system of equations, one in a row, as a list; what is no system stays as it is."""
    rows = [row.strip(" \n,;") for row in match.group(2).split("\\\\")]
    rows = [re.sub(r"\s*&\s*(?==)|(?<==)\s*&", "", row) for row in rows if row]
    is_system = bool(rows) and all("=" in row and "&" not in row for row in rows)
    return ", ".join(rows) if is_system else match.group()


def _turned(text: str) -> str:
    """Open intervals whose brackets are turned outward, ``]0, 5[``, in parentheses."""
    places = list(_BRACKETS.finditer(text))
    if not places or (places[0].group() != "]" and places[-1].group() != "["):
        return text
    pieces, depth, end = [], 0, 0
    for place in places:
        bracket = place.group()
        opens = depth == 0 or bracket == "("
        depth += 1 if opens else -1
        turned = {"]": "("} if opens else {"[": ")"}
        pieces += [text[end : place.start()], turned.get(bracket, bracket)]
        end = place.end()
    return "".join([*pieces, text[end:]])
