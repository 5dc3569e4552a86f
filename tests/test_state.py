"""Nothing but the state of a run changes while it goes on: the rest could not be resumed."""

import random
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest
import torch
from running import TOY, write_tiny_run

from verigrad.config import load_config
from verigrad.engines import Draws, LocalEngine
from verigrad.training.folder import make_folder
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import prepare
from verigrad.training.state import TrainerState
from verigrad.training.trainer import Trainer
from verigrad.types import Completion, Prompt, Sampling

FIXED = (str, bytes, int, float, bool, type(None), Enum, Path, torch.dtype, torch.device)
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, partial)


def walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Every value that can be reached from an object, by the path to it.

    The state itself, and what it holds, is left out: that is what may change.
    """
    if isinstance(value, FIXED):
        yield path, value
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield path, value.detach().tolist()
        elif isinstance(value, CODE):
            yield path, id(value)
        else:
            yield path, type(value)
            for name, part in parts_of(value):
                yield from walk(part, f"{path}.{name}", seen)


def parts_of(value: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(value)
    yield from getattr(value, "__dict__", {}).items()
    for slot in getattr(type(value), "__slots__", ()):
        yield slot, getattr(value, slot, None)


def reachable(trainer: Trainer, state: TrainerState) -> dict[str, object]:
    mutable = [state, state.optimizer, state.recent, state.findings]
    seen = {id(part) for part in [*mutable, *state.policy.module.parameters()]}
    return dict(walk(trainer, "trainer", seen))


def changed_by_a_run(config: Path, folder: Path, engine_type: type[LocalEngine]) -> set[str]:
    """The paths whose values are others after a run of some steps than before."""
    setup = prepare(load_config(config, [("run.steps", "4"), ("evaluation.every", "2")]))
    state = new_state(setup)
    run = make_folder(str(folder), "run")
    trainer = Trainer(setup, state, engine_type(setup.policy), run, Progress(4, quiet=True))
    before = reachable(trainer, state)
    assert trainer.run().finished
    after = reachable(trainer, state)
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def shown_or_derived(path: str) -> bool:
    """What a person sees is no state, and the engine's version is told to it at the start."""
    return path.startswith("trainer._progress.") or path == "trainer._engine._version"


@pytest.fixture(params=["table", "language model"])
def config(request, tmp_path) -> Path:
    return TOY if request.param == "table" else write_tiny_run(tmp_path)


def test_a_run_changes_nothing_but_its_state(config, tmp_path):
    changed = changed_by_a_run(config, tmp_path / "run", LocalEngine)
    assert {path for path in changed if not shown_or_derived(path)} == set()
    assert "trainer._engine._version" in changed


class Forgetful(LocalEngine):
    """Draws other numbers each time it is asked, from a count that no checkpoint holds."""

    calls = 0

    def generate(
        self, prompts: list[Prompt], completions: int, sampling: Sampling, draws: Draws
    ) -> list[tuple[Completion, ...]]:
        self.calls += 1
        return super().generate(prompts, completions, sampling, draws)


def test_an_engine_with_a_state_of_its_own_is_noticed(tmp_path):
    assert "trainer._engine.calls" in changed_by_a_run(TOY, tmp_path / "run", Forgetful)


def test_no_global_random_number_is_drawn(config, tmp_path):
    before = torch.get_rng_state(), random.getstate()
    changed_by_a_run(config, tmp_path / "run", LocalEngine)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
