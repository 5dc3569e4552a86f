"""Checks the checker: what a verifier pays, refuses and takes, before any compute is spent."""

from verigrad.checking.before import try_out
from verigrad.checking.checkup import Checkup, check_up
from verigrad.checking.examples import Example, examples_of, read_examples
from verigrad.checking.report import describe, describe_sandbox

__all__ = [
    "Checkup",
    "Example",
    "check_up",
    "describe",
    "describe_sandbox",
    "examples_of",
    "read_examples",
    "try_out",
]
