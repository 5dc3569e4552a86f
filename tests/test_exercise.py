"""The learner's exercise: what ships, and what its solution gives."""

import importlib.util
import inspect
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]
EXERCISE = ROOT / "exercises" / "15-grpo-rlvr"
STARTER = EXERCISE / "starter.py"
SOLUTION = EXERCISE / "solution" / "grpo_rlvr.py"
REWARDS = json.loads((ROOT / "tests" / "data" / "exercise_rewards.json").read_text())

SIGNATURES = {
    "verifier": "(prompt: tuple, answer: int) -> float",
    "GRPOPolicy": "(n_prompts: int = 9, n_answers: int = 10)",
    "GRPOPolicy.forward": "(self, prompt_idx: int) -> torch.Tensor",
    "sample_group": "(policy: GRPOPolicy, prompt_idx: int, K: int) -> tuple",
    "group_advantages": "(rewards: torch.Tensor, eps: float = 1e-08) -> torch.Tensor",
    "grpo_loss": (
        "(log_probs_new: torch.Tensor, log_probs_old: torch.Tensor, advantages: torch.Tensor, "
        "clip_eps: float = 0.2) -> torch.Tensor"
    ),
    "train": (
        "(num_steps: int = 1500, K: int = 8, lr: float = 0.5, clip_eps: float = 0.2, "
        "seed: int = 0) -> list"
    ),
}


def grade(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the exercise's tests from the root of the repository, as a learner does."""
    command = [sys.executable, "-m", "pytest", "exercises/15-grpo-rlvr/", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def starter() -> ModuleType:
    return load(STARTER)


@pytest.fixture(scope="module")
def solution() -> ModuleType:
    return load(SOLUTION)


# --- What ships -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [STARTER, SOLUTION], ids=["starter", "solution"])
def test_the_public_names_and_signatures_are_the_promised_ones(path):
    module = load(path)
    names = {name for name in vars(module) if not name.startswith("_")} - {"torch", "nn"}
    assert names == {"PROMPTS", "N_PROMPTS", "N_ANSWERS"} | {
        name for name in SIGNATURES if "." not in name
    }
    found = {name: public_signature(module, name) for name in SIGNATURES}
    assert found == SIGNATURES


def public_signature(module: ModuleType, dotted: str) -> str:
    thing = module
    for name in dotted.split("."):
        thing = getattr(thing, name)
    return str(inspect.signature(thing)).replace(f"{module.__name__}.", "")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.GRPOPolicy(), "GRPOPolicy.__init__"),
        (lambda m: m.GRPOPolicy.forward(torch.nn.Module(), 0), "GRPOPolicy.forward"),
        (lambda m: m.sample_group(torch.nn.Module(), 0, 4), "sample_group"),
        (lambda m: m.group_advantages(torch.zeros(4)), "group_advantages"),
        (lambda m: m.grpo_loss(torch.zeros(4), torch.zeros(4), torch.zeros(4)), "grpo_loss"),
    ],
)
def test_an_unfilled_function_of_the_starter_says_that_it_is_not_implemented(
    starter, call, message
):
    with pytest.raises(NotImplementedError) as raised:
        call(starter)
    assert str(raised.value) == message


def test_the_unfilled_update_step_of_the_starter_says_that_it_is_not_implemented(
    starter, solution, monkeypatch
):
    monkeypatch.setattr(starter, "GRPOPolicy", solution.GRPOPolicy)
    with pytest.raises(NotImplementedError) as raised:
        starter.train()
    assert str(raised.value) == "train: the update step"


def test_the_shipped_starter_fails_its_tests_with_nothing_but_not_implemented():
    graded = grade()
    assert graded.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"graded file: {STARTER}\n" in graded.stdout
    reasons = {line for line in graded.stdout.splitlines() if line.startswith("E  ")}
    assert {reason.split(":")[0] for reason in reasons} == {"E   NotImplementedError"}
    assert "34 failed, 1 passed in" in graded.stdout


@pytest.mark.thorough
def test_the_solution_passes_under_the_exercise_s_own_configuration_without_a_warning():
    graded = grade("--impl", "solution", "-W", "error")
    assert graded.returncode == pytest.ExitCode.OK, graded.stdout
    assert f"rootdir: {EXERCISE}\nconfigfile: pytest.ini\n" in graded.stdout


def test_an_unknown_implementation_is_refused_in_one_line():
    graded = grade("--impl", "solutoin")
    assert graded.returncode == pytest.ExitCode.USAGE_ERROR
    assert graded.stderr.strip() == (
        "ERROR: --impl solutoin: expected starter, solution or the path of a Python file"
    )


# --- What the solution gives ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("reward", "size"), [(0.1, 10), (1 / 3, 7), (0.95, 8), (0.7, 6), (0.3, 1)])
def test_equal_rewards_give_exactly_zero_advantage(solution, reward, size, dtype):
    advantages = solution.group_advantages(torch.full((size,), reward, dtype=dtype))
    assert torch.equal(advantages, torch.zeros(size, dtype=dtype))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
)
def test_the_solution_collects_the_recorded_rewards_step_by_step(solution, seed):
    recorded = [int(digit) / 8 for digit in REWARDS["right_answers"][str(seed)]]
    assert len(recorded) == 1500
    assert recorded[-200:] == [1.0] * 200
    assert solution.train(seed=seed) == recorded, f"recorded with torch {REWARDS['torch']}"


def test_the_solution_as_a_script_prints_one_line(capsys):
    runpy.run_path(str(SOLUTION), run_name="__main__")
    assert capsys.readouterr().out == (
        "steps: 1500  mean reward (last 200): 1.000  (random guessing ≈ 0.10)\n"
    )
