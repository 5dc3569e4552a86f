"""Verifiers: functions that check completions, and the boundary around them."""

from verigrad.verifiers.boundary import Verifier, verify
from verigrad.verifiers.number import last_number

__all__ = ["VERIFIERS", "Verifier", "last_number", "verify"]

VERIFIERS: dict[str, Verifier] = {"number": last_number}
"""The built-in verifiers by name."""
