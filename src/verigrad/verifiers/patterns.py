"""Regular expressions with an end to their patience.

Matching is Python's, by the ``regex`` package, which stops after a given time. A pattern that
backtracks too long is decided by RE2, which never does, wherever the two agree on what it means.
"""

import re
from typing import Literal, get_args

from verigrad.errors import ConfigError, VerigradError
from verigrad.verifiers.extras import extra

Mode = Literal["fullmatch", "search"]

SECONDS = 0.3
"""Processor time that one match may take before RE2 is asked."""

_READ_ALIKE = re.compile(r"[\t\n\r\x20-\x7e]*(?<!\n)")
"""Texts in which Python and RE2 see the same letters, white space and end."""


def check_options(mode: str, flags: str) -> None:
    """Refuse an unknown mode or flag.

    Raises:
        ConfigError: it is one.
    """
    if mode not in get_args(Mode):
        raise ConfigError(f"the mode is {mode!r}; expected fullmatch or search")
    if not set(flags) <= set("imsx"):
        raise ConfigError(f"the flags are {flags!r}; expected letters out of i, m, s and x")


def check_pattern(pattern: object, flags: str) -> None:
    """Refuse what cannot be a pattern.

    Raises:
        ConfigError: it is empty, no text, or does not compile.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"the pattern is {pattern!r:.80}; expected a regular expression")
    regex = extra("regex")
    try:
        regex.compile(_with_flags(pattern, flags))
    except regex.error as error:
        raise ConfigError(
            f"the pattern {pattern!r:.80} is not a regular expression: {error}"
        ) from None


def matches(pattern: str, text: str, mode: Mode, flags: str) -> bool:
    """Does the whole text match, or any part of it?

    Raises:
        VerigradError: it takes too long, and RE2 cannot tell either.
    """
    compiled = extra("regex").compile(_with_flags(pattern, flags))
    match = compiled.fullmatch if mode == "fullmatch" else compiled.search
    try:
        return match(text, timeout=SECONDS) is not None
    except TimeoutError:
        return _matches_by_re2(pattern, text, mode, flags)


def _matches_by_re2(pattern: str, text: str, mode: Mode, flags: str) -> bool:
    re2 = extra("re2")
    slow = f"the pattern {pattern!r:.80} takes longer than {SECONDS:g} s on this completion"
    # In RE2 a{,3} is no repetition, and there is no verbose mode.
    if not _READ_ALIKE.fullmatch(text) or "{," in pattern or "x" in flags:
        raise VerigradError(f"{slow}; write it without nested repetition")
    try:
        compiled = re2.compile(_with_flags(pattern, flags))
    except re2.error as error:
        raise VerigradError(f"{slow}, and RE2 does not know it ({error})") from None
    match = compiled.fullmatch if mode == "fullmatch" else compiled.search
    return match(text) is not None


def _with_flags(pattern: str, flags: str) -> str:
    return f"(?{''.join(sorted(set(flags)))}){pattern}" if flags else pattern
