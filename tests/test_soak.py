"""A long run stays as it is: memory, open files, live objects and step time."""

from pathlib import Path
from types import ModuleType

import pytest
from running import load_benchmark

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="it reads /proc, which is not here"
)


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    return load_benchmark("soak")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["table", "language_model"])
def test_a_run_keeps_no_object_and_no_file_of_a_step(kind, soak, tmp_path):
    steps = 120
    extra = [tmp_path] if kind == "language_model" else []
    config, task = getattr(soak, kind)(0, steps, *extra)
    config |= {"evaluation": {"every": 10}, "checkpoint": {"every": 10}}
    *_, middle, _, _, last = soak.soak(config, task, soak.Watch(steps, every=20))
    assert last["step"] == 120
    assert middle["step"] == 60
    # A leak at each of the six checkpoints between them is more than what may be open just now.
    assert last["open_files"] - middle["open_files"] < 4
    assert last["objects"] - middle["objects"] < 60


def test_growth_is_noticed(soak):
    flat = {"resident_mb": 100.0, "open_files": 8, "objects": 1000, "cpu_seconds": 0.1}
    samples = [flat | {"step": step} for step in range(50, 1050, 50)]
    assert soak.growth(samples)["grown"] == []
    leaking = [s | {"objects": 1000 + s["step"], "open_files": 8 + s["step"]} for s in samples]
    assert soak.growth(leaking)["grown"] == ["open_files", "objects"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["table", "language_model"])
def test_two_thousand_steps_leave_memory_files_and_step_time_as_they_are(kind, soak, tmp_path):
    steps = 2000
    extra = [tmp_path] if kind == "language_model" else []
    config, task = getattr(soak, kind)(0, steps, *extra)
    assert soak.growth(soak.soak(config, task, soak.Watch(steps)))["grown"] == []
