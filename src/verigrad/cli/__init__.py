"""The command line: one module per group of commands, each of which adds itself to the app."""

from verigrad.cli import init, runs, study, tasks
from verigrad.cli.app import EXIT_CODES, app, main

__all__ = ["EXIT_CODES", "app", "init", "main", "runs", "study", "tasks"]
