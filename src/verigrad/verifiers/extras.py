"""Packages that only some verifiers need."""

from importlib import import_module
from typing import Any

from verigrad.errors import UserError


def extra(module: str) -> Any:
    """A module of the ``verifiers`` extra.

    Raises:
        UserError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise UserError(
            f"this verifier needs the package {module}, which is not installed; "
            'install it with: pip install "verigrad[verifiers]"'
        ) from None
