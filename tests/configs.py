"""Configurations for the tests: the smallest one, and the line that a wrong one is refused with."""

from pathlib import Path

import pytest

from verigrad.config import load_config
from verigrad.errors import ConfigError

ROOT = Path(__file__).parent.parent
SMALLEST = 'task = "toy"\nmodel = "tabular"\n'


def refusal(path: Path, *overrides: tuple[str, str]) -> str:
    """The one line that a configuration is refused with."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text
