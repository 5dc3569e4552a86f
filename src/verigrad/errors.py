"""The exception tree, and the exit code each kind of error ends the command with.

Every message says what was found, what was expected, why it matters and what to do, on one line.
"""

from typing import ClassVar


class VerigradError(Exception):
    """Base of every error that verigrad raises on purpose."""

    exit_code: ClassVar[int] = 1


class UserError(VerigradError):
    """Something the user gave is wrong: a file, a key, a value, a model. Exit code 2."""

    exit_code = 2


class ConfigError(UserError):
    """A configuration file or an override is missing, malformed or out of range."""


class ModelError(UserError):
    """A model cannot be found or loaded, or cannot do what the run asks of it."""


class TaskError(UserError):
    """A task cannot be loaded, or one of its problems is not usable."""


class MemoryLimitError(UserError):
    """Not even the smallest pass fits into the memory that a run may take."""


class RunFolderError(UserError):
    """A run folder is taken, missing, or does not hold what a resume needs."""


class TooManyFailuresError(VerigradError):
    """More verdicts of one step failed than the configuration allows. Exit code 3."""

    exit_code = 3


class BadNumbersError(VerigradError):
    """Updates in a row, or a reward or the logits, are not finite. Exit code 4."""

    exit_code = 4


class StorageError(VerigradError):
    """A file of a run cannot be written: the disk is full, read-only or gone. Exit code 5."""

    exit_code = 5
