"""Verifiers: functions that check completions, and the boundary around them."""

from verigrad.verifiers.adapter import TrlReward
from verigrad.verifiers.boundary import Verifier, verify
from verigrad.verifiers.choice import Choice
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.exact import Exact
from verigrad.verifiers.json_value import Json
from verigrad.verifiers.layout import Format
from verigrad.verifiers.mathematics import Math
from verigrad.verifiers.number import Number, last_number
from verigrad.verifiers.regex import Regex
from verigrad.verifiers.weighted import Weighted, weighted

__all__ = [
    "VERIFIERS",
    "Choice",
    "CodeVerifier",
    "Exact",
    "Format",
    "Json",
    "Math",
    "Number",
    "Regex",
    "TrlReward",
    "Verifier",
    "Weighted",
    "last_number",
    "verify",
    "weighted",
]

VERIFIERS: dict[str, Verifier] = {
    "exact": Exact(),
    "number": Number(),
    "math": Math(),
    "choice": Choice(),
    "format": Format(template="think_answer"),
    "json": Json(),
    "regex": Regex(),
    "code": CodeVerifier(),
}
"""The built-in verifiers by name, with the options they have by default."""
