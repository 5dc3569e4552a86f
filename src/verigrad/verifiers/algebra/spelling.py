"""One spelling for what has many: Unicode, TeX shorthand, sized brackets."""

import re

from verigrad.verifiers.algebra.vocabulary import LOWERED, RAISED, UNICODE

_DOUBLED = re.compile(r"\\\\(?=[A-Za-z])")
_ORDINAL = re.compile(r"(?<=\d)\s*\^\s*\{\s*\\(?:text|mathrm)\s*\{(?:st|nd|rd|th)\}\s*\}")
_RAISED = re.compile(f"[{''.join(map(chr, RAISED))}]+")
_LOWERED = re.compile(f"[{''.join(map(chr, LOWERED))}]+")
_SIDE = re.compile(r"\\m?(left|right)\s*(\\?[^A-Za-z\s\\]|\\[A-Za-z]+)")
_FIRST_DIGIT = re.compile(r"\\[dtc]?(frac|binom)\s*(\d)")
_SECOND_DIGIT = re.compile(r"\\(frac|binom)\{(\d)\}\s*(\d)")
_ROOT_DIGITS = re.compile(r"\\sqrt\s*(\d+)")


def respelled(text: str) -> str:
    r"""The text with ``\frac{5}{7}`` for ``\frac57``, ``^{-5}`` for raised digits, and so on."""
    for old, new in UNICODE.items():
        text = text.replace(old, new)
    text = _RAISED.sub(lambda run: f"^{{{run.group().translate(RAISED)}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{run.group().translate(LOWERED)}}}", text)
    if "\\begin" not in text:
        # Backslashes that were escaped once too often.
        text = _DOUBLED.sub(r"\\", text)
    text = _ORDINAL.sub("", text)
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
