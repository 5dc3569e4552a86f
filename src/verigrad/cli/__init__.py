"""The command line: one module per group of commands, each of which adds itself to the app."""

from verigrad.cli import runs, study, verify
from verigrad.cli.app import EXIT_CODES, app, main

__all__ = ["EXIT_CODES", "app", "main", "runs", "study", "verify"]
