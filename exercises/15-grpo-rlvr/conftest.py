"""Lets `--impl` choose the file that the tests grade."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
NAMED = {"starter": HERE / "starter.py", "solution": HERE / "solution" / "grpo_rlvr.py"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--impl",
        default="starter",
        metavar="starter|solution|FILE",
        help="what to grade: your starter.py (the default), the solution, or any Python file",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"graded file: {graded_file(config)}"


@pytest.fixture(scope="session")
def impl(pytestconfig: pytest.Config) -> ModuleType:
    """The graded file, loaded by its path; nothing has to be installed."""
    spec = importlib.util.spec_from_file_location("graded", graded_file(pytestconfig))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def graded_file(config: pytest.Config) -> Path:
    choice = config.getoption("--impl")
    path = NAMED.get(choice, Path(choice))
    if path.suffix != ".py" or not path.is_file():
        raise pytest.UsageError(
            f"--impl {choice}: expected starter, solution or the path of a Python file"
        )
    return path
