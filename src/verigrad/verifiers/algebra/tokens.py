r"""Text of a formula, LaTeX or plain, to tokens.

Cosmetics disappear here: spacing commands, ``\left``, ``\displaystyle``, Unicode spellings.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from verigrad.verifiers.algebra.numerals import (
    REPEATING,
    SCRIPT_NUMBER,
    THOUSANDS,
    WITH_COMMAS,
    repeating_value,
)
from verigrad.verifiers.algebra.spelling import respelled
from verigrad.verifiers.algebra.units import is_unit
from verigrad.verifiers.algebra.vocabulary import (
    ACCENTS,
    COMMANDS,
    DROPPED,
    FUNCTIONS,
    GREEK,
    SCALES,
    SIGNS_IN_WORDS,
    SPELLED,
    TEXT_COMMANDS,
)

MOST_TOKENS = 400
MOST_DIGITS = 4000


class Unreadable(Exception):
    """The text is not mathematics that can be read, for the reason given."""


class Kind(StrEnum):
    """What a token is."""

    NUMBER = "number"
    NAME = "name"
    """A variable or a constant."""
    FUNCTION = "function"
    COMMAND = "command"
    """A LaTeX command with arguments: frac, sqrt, binom, begin, end."""
    TEXT = "text"
    """Words: a unit, or an answer that is not mathematics."""
    SIGN = "sign"
    """Everything else: operators, brackets, relations, separators."""


@dataclass(frozen=True, slots=True)
class Token:
    r"""One token; ``value`` is set for numbers only.

    Example: "12\,000" is Token(Kind.NUMBER, "12000", Fraction(12000)).
    """

    kind: Kind
    text: str
    value: Fraction | None = None
    spaced: bool = False
    """White space stands before it."""

    def is_sign(self, *signs: str) -> bool:
        """Is it one of these signs?"""
        return self.kind is Kind.SIGN and self.text in signs

    @property
    def integer(self) -> int | None:
        """Its value if it is written as a whole number."""
        if self.value is not None and self.text.isdigit():
            return int(self.value)
        return None


_SCANNER = re.compile(
    rf"""(?P<space>(?:\s|~|\\[,;:!\ ])+)
    |(?P<number>(?:(?:{THOUSANDS}|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+(?![\d.]))?)
    |(?P<command>\\(?:[A-Za-z]+|.))
    |(?P<letters>[A-Za-z]+)
    |(?P<foreign>[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+)
    |(?P<sign><=|>=|!=|=>|==|\*\*|:=|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = frozenset(("(", "[", "\\{", "langle"))
_CLOSING = frozenset((")", "]", "\\}", "rangle"))
_GROUP = re.compile(r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}")


def tokenize(text: str) -> list[Token]:
    """Tokens of a formula.

    Raises:
        Unreadable: an unknown command or character, or too many of them.
    """
    return _Tokenizer(respelled(text)).run()


class _Tokenizer:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.tokens: list[Token] = []
        self.spaced = False
        self.brackets = 0

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            self.step()
            if len(self.tokens) > MOST_TOKENS:
                raise Unreadable(f"the formula has more than {MOST_TOKENS} parts")
        return self.tokens

    def step(self) -> None:
        match = self.special_number() or _SCANNER.match(self.text, self.at)
        assert match is not None  # the scanner's last alternative takes any character
        self.at = match.end()
        text = match.group()
        match match.lastgroup:
            case "space":
                self.spaced = True
            case "command":
                self.command(text[1:])
            case "letters":
                self.letters(text)
            case "foreign":
                self.add(Kind.TEXT, text)
            case "sign":
                self.sign(text)
            case _:
                self.number(text)

    def special_number(self) -> "re.Match[str] | None":
        """A number whose commas separate thousands (not in brackets), or one after ^ or _."""
        if self.tokens and self.tokens[-1].is_sign("^", "_"):
            return SCRIPT_NUMBER.match(self.text, self.at)
        return None if self.brackets else WITH_COMMAS.match(self.text, self.at)

    def add(self, kind: Kind, text: str, value: Fraction | None = None) -> None:
        self.tokens.append(Token(kind, text, value, self.spaced))
        self.spaced = False
        self.brackets += (text in _OPENING) - (text in _CLOSING)

    def number(self, text: str) -> None:
        digits = re.sub(r"\\[,; !]|\{,\}|[^\d.eE+-]", "", text)
        mantissa, _, exponent = digits.lower().partition("e")
        if len(mantissa) > MOST_DIGITS or abs(int(exponent[:9] or 0)) > MOST_DIGITS:
            raise Unreadable(f"a number has more than {MOST_DIGITS} digits")
        value = Fraction(mantissa) * Fraction(10) ** int(exponent or 0)
        repeating = REPEATING.match(self.text, self.at) if "." in mantissa + self.point() else None
        if repeating and not exponent:
            self.repeating(mantissa, repeating)
        else:
            self.add(Kind.NUMBER, digits, value)

    def point(self) -> str:
        r"""A decimal point with only repeating digits after it: ``0.\overline{3}``."""
        if self.text.startswith(".", self.at) and REPEATING.match(self.text, self.at + 1):
            self.at += 1
            return "."
        return ""

    def repeating(self, mantissa: str, match: "re.Match[str]") -> None:
        self.at = match.end()
        period = next(group for group in match.groups() if group)
        value = repeating_value(mantissa, period)
        self.add(Kind.NUMBER, f"{mantissa}({period})", value)

    def command(self, name: str) -> None:
        if name in TEXT_COMMANDS:
            self.words()
        elif name in DROPPED:
            self.spaced = True
        elif name in ACCENTS:
            self.add(Kind.NAME, f"{name} {self.argument()}")
        elif name in GREEK:
            self.add(Kind.NAME, GREEK[name])
        elif name in FUNCTIONS:
            self.add(Kind.FUNCTION, FUNCTIONS[name])
        elif name in ("begin", "end"):
            self.add(Kind.COMMAND, f"{name} {self.argument()}")
        elif name.lstrip("dtc") in ("frac", "sqrt", "binom"):
            self.add(Kind.COMMAND, name.lstrip("dtc"))
        elif name in COMMANDS:
            self.add(Kind.SIGN, COMMANDS[name])
        else:
            raise Unreadable(f"the command \\{name} is not known")

    def argument(self) -> str:
        group = _GROUP.match(self.text, self.at)
        if group is None:
            raise Unreadable("a command lacks its group in braces")
        self.at = group.end()
        return group.group(1).strip()

    def words(self) -> None:
        r"""The content of ``\text{...}``: words, or mathematics in upright type."""
        words = self.argument()
        first = words.lower().partition(" ")[0].removesuffix("s")
        start, _, last = words.strip(" .,").rpartition(" ")
        if self.continues_value() and is_unit(words.strip()):
            self.add(Kind.TEXT, words)
        elif (
            len(words.strip("(). ")) <= 1
            or words in FUNCTIONS
            or words.strip() in SPELLED
            or first in SCALES
            or not re.fullmatch(r"[A-Za-z .,'()/-]*", words)
        ):
            self.text = f"{self.text[: self.at]} {words} {self.text[self.at :]}"
        elif last.lower() in SIGNS_IN_WORDS and (not start or last.lower() == "is"):
            if start:
                self.add(Kind.TEXT, start)
            self.add(Kind.SIGN, SIGNS_IN_WORDS[last.lower()])
        elif words:
            self.add(Kind.TEXT, words)

    def continues_value(self) -> bool:
        """Does a value stand before, or a unit that is multiplied by what follows?"""
        if self.tokens and self.tokens[-1].is_sign("*"):
            return len(self.tokens) > 1 and self.tokens[-2].kind is Kind.TEXT
        last = self.tokens[-1] if self.tokens else None
        return last is not None and (
            last.kind in (Kind.NUMBER, Kind.TEXT) or last.is_sign("}", ")", "\\}")
        )

    def letters(self, text: str) -> None:
        after_number = bool(self.tokens) and self.tokens[-1].kind is Kind.NUMBER
        after_group = bool(self.tokens) and self.spaced and self.tokens[-1].is_sign("}", ")")
        if text in ("st", "nd", "rd", "th") and after_number and not self.spaced:
            return
        if after_number and text.lower().removesuffix("s") in SCALES:
            scale = SCALES[text.lower().removesuffix("s")]
            self.add(Kind.SIGN, "*")
            self.add(Kind.NUMBER, str(scale), Fraction(scale))
        elif sign := self.sign_in_words(text):
            self.add(Kind.SIGN, sign)
        elif text in SPELLED:
            self.add(Kind.NAME, SPELLED[text])
        elif (after_number and self.is_unit(text)) or (
            after_group and len(text) > 1 and is_unit(text)
        ):
            self.add(Kind.TEXT, text)
        elif text in FUNCTIONS:
            self.add(Kind.FUNCTION, FUNCTIONS[text])
        elif (
            text in ("per", "the", "The")
            or len(text) >= 4
            or (len(text) == 3 and after_number and self.spaced)
        ):
            self.add(Kind.TEXT, text)
        elif self.is_times(text):
            self.add(Kind.SIGN, "*")
        else:
            for letter in text:
                self.add(Kind.NAME, letter)

    def is_unit(self, text: str) -> bool:
        """A letter alone is a unit only apart from the number and at the end: "5 m", not 5m."""
        rest = self.text[self.at :].lstrip()
        return is_unit(text) and (
            len(text) > 1 or (self.spaced and (not rest or rest[0] in "^/.,"))
        )

    def sign_in_words(self, word: str) -> str | None:
        """The sign of a word; without words before "is", and a number before "to", a product."""
        kind = self.tokens[-1].kind if self.tokens else None
        if {"is": Kind.TEXT, "to": Kind.NUMBER}.get(word, kind) is not kind:
            return None
        return SIGNS_IN_WORDS.get(word if len(word) < 4 else word.lower())

    def is_times(self, text: str) -> bool:
        """An x between numbers, as in "3 x 10^8"."""
        return (
            text in ("x", "X")
            and bool(self.tokens)
            and self.tokens[-1].kind is Kind.NUMBER
            and bool(re.match(r"\s*\d", self.text[self.at :]))
        )

    def sign(self, text: str) -> None:
        if text in GREEK:
            self.add(Kind.NAME, GREEK[text])
            return
        sign = text if text in "{}" else COMMANDS.get(text, text)
        if sign not in KNOWN_SIGNS:
            raise Unreadable(f"the character {text!r} is not known here")
        self.add(Kind.SIGN, sign)


KNOWN_SIGNS = frozenset("+-*/^_=<>,;:.!|'%()[]{}&") | frozenset(COMMANDS.values())
