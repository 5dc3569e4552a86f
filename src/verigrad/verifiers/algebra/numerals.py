"""How numbers are written: with separators of thousands, with repeating decimals."""

import re
from fractions import Fraction

_SEPARATOR = r"\\[,;:!\ ]|\{,\}|(?:\\!)?,\\!|['_\ \u00a0\u2009\u202f]"
THOUSANDS = rf"\d{{1,3}}(?:(?:{_SEPARATOR})\d{{3}})+(?!\d|\s*/)"
"""Thousands with separators that are nothing else, as a pattern; for a verbose one."""

WITH_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?")
"""Thousands with commas, which separate other things as well."""

SCRIPT_NUMBER = re.compile(r"\d+(?:\.\d+)?")
"""After ^ and _ neither a space nor a comma joins digits."""

REPEATING = re.compile(r"(?:\\overline|\\bar|\\dot)\s*(?:\{(\d+)\}|(\d))")
"""The decimals that repeat, behind those that do not."""


def repeating_value(mantissa: str, period: str) -> Fraction:
    """The value of a decimal whose last digits repeat: "0.1" and "6" are 1/6."""
    whole, _, decimals = mantissa.partition(".")
    size = 10 ** len(decimals)
    return Fraction(int(whole + decimals), size) + Fraction(
        int(period), size * (10 ** len(period) - 1)
    )
