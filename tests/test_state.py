"""Nothing but the state of a run changes while it goes on: the rest could not be resumed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import partial
from io import IOBase
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import pytest
import torch
from running import TOY, write_tiny_run

from verigrad.config import load_config
from verigrad.diagnosis import Cause, Finding
from verigrad.engines import Draws, Finished, LocalEngine
from verigrad.training.checkpoint import load_newest, snapshot, write_checkpoint
from verigrad.training.contract import fixed_keys
from verigrad.training.folder import make_folder
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import prepare
from verigrad.training.state import TrainerState
from verigrad.training.trainer import Trainer
from verigrad.types import Completion, Prompt, Sampling

FIXED = (str, bytes, int, float, bool, type(None), Enum, Path, torch.dtype, torch.device)
CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, partial, IOBase)


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
    """What a person sees is no state, nor is a thread that writes a copy of the state.

    The engine's version is told to it at the start.
    """
    places = ("trainer._progress.", "trainer._saver._thread.", "trainer._saver._pending")
    return path.startswith(places) or path == "trainer._engine._version"


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
        self,
        prompts: Sequence[Prompt],
        completions: int,
        sampling: Sampling,
        draws: Draws,
        finished: Finished | None = None,
    ) -> list[tuple[Completion, ...]]:
        self.calls += 1
        return super().generate(prompts, completions, sampling, draws, finished)


def test_an_engine_with_a_state_of_its_own_is_noticed(tmp_path):
    assert "trainer._engine.calls" in changed_by_a_run(TOY, tmp_path / "run", Forgetful)


def test_no_global_random_number_is_drawn(config, tmp_path):
    before = torch.get_rng_state(), random.getstate()
    changed_by_a_run(config, tmp_path / "run", LocalEngine)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


# What a checkpoint holds

EVENTFUL = [
    ("run.steps", "12"),
    ("checkpoint.every", "0"),
    ("evaluation.every", "2"),
    ("algorithm.minibatches", "2"),
    ("algorithm.epochs", "2"),
    ("algorithm.kl", "k3"),
    ("algorithm.kl_beta", "0.1"),
    ("algorithm.kl_reset_every", "5"),
    ("algorithm.entropy_coefficient", "0.01"),
    ("algorithm.entropy_target", "0.5"),
    ("algorithm.entropy_step", "0.003"),
]
"""Twelve steps in which everything of the state changes."""


def test_all_of_a_state_comes_back_from_its_checkpoint(config, tmp_path):
    setup = prepare(load_config(config, EVENTFUL))
    state, run = new_state(setup), make_folder(str(tmp_path / "run"), "run")
    state.record(Finding(cause=Cause.FAILURES, step=0, number=0.5, message="half of them"))
    Trainer(setup, state, LocalEngine(setup.policy), run, Progress(12, quiet=True)).run()
    state.bad_updates, state.token_budget = 2, 7
    write_checkpoint(
        run.root / "again", snapshot(state, fixed_keys(setup.config)), keep=1, best=False
    )

    fresh = new_state(prepare(setup.config, decided=setup.decisions))
    for field in fields(TrainerState):
        if field.name not in ("policy", "optimizer", "reference", "updating"):
            assert getattr(state, field.name) != getattr(fresh, field.name), field.name
    load_newest(run.root / "again", fresh, fixed_keys(setup.config))
    for one, other in (
        (state.policy_tensors(), fresh.policy_tensors()),
        (state.reference_tensors(), fresh.reference_tensors()),
        (state.optimizer_tensors(), fresh.optimizer_tensors()),
    ):
        assert one.keys() == other.keys()
        assert len(one) > 0
        for name, value in one.items():
            assert value.dtype == other[name].dtype
            assert torch.equal(value, other[name]), name
    for field in fields(TrainerState):
        if field.name not in ("policy", "optimizer", "reference"):
            assert getattr(state, field.name) == getattr(fresh, field.name), field.name


def test_a_tensor_of_another_shape_or_type_is_not_taken_over(tmp_path):
    state = new_state(prepare(load_config(TOY)))
    saved = {name: value.clone() for name, value in state.policy_tensors().items()}
    for other in (torch.ones(1), saved["table"].double()):
        with pytest.raises(RuntimeError, match=r"table is .* there, and .* here"):
            state.restore({"table": other}, {}, {}, state.plain())
    assert torch.equal(state.policy_tensors()["table"], saved["table"])
