"""Where a verifier runs and why, and what keeps in the programs that it runs."""

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from verigrad.config import VERIFIERS as NAMES
from verigrad.config import VerifierConfig
from verigrad.errors import ConfigError, UserError
from verigrad.types import Verdict
from verigrad.userfile import load_from_file
from verigrad.verifiers import (
    VERIFIERS,
    Choice,
    CodeVerifier,
    Exact,
    Format,
    Math,
    Number,
    Regex,
    TrlReward,
    last_number,
    weighted,
)
from verigrad.verifiers.boundary import bounded, is_bounded
from verigrad.verifiers.named import verifier_named
from verigrad.verifiers.opening import opened
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.runner import InProcess
from verigrad.verifiers.sandbox import SandboxUnavailableError, open_sandbox

SQUARE = {"entry": "square", "tests": [{"args": [3], "expected": 9}]}
PROGRAM = "```python\ndef square(n):\n    return n * n\n```"


def process(completion: str, reference: Any) -> int:
    return os.getpid()


def has_sandbox(name: str) -> bool:
    try:
        open_sandbox(name).close()
    except SandboxUnavailableError:
        return False
    return True


# Where


@pytest.mark.parametrize(
    ("verifier", "expected"),
    [
        (last_number, True),
        (Exact(), True),
        (Choice(), True),
        (Format(template="think"), True),
        (Format(pattern="(a+)+b"), False),
        (Regex(), False),
        (Number(), False),
        (Math(), False),
        (CodeVerifier(), False),
        (weighted({"a": (1.0, Exact()), "b": (0.5, last_number)}), True),
        (weighted({"a": (1.0, Exact()), "b": (0.5, process)}), False),
        (TrlReward(function=process), False),
        (process, False),
        (bounded(lambda completion, reference: 1.0), True),
    ],
)
def test_a_verifier_says_whether_it_is_bounded(verifier: Any, expected: bool) -> None:
    assert is_bounded(verifier) is expected


def test_a_bounded_verifier_stays_in_the_process() -> None:
    with opened(last_number, VerifierConfig()) as verifier:
        assert isinstance(verifier.runner, InProcess)
        assert verifier.reasons == {
            "verifier": "last_number runs in the trainer's process: it is bounded"
        }


def test_any_other_verifier_runs_in_worker_processes() -> None:
    with opened(process, VerifierConfig()) as verifier:
        (verdict,) = verifier.runner.verify_all([("", None)])
    assert verdict.reward != os.getpid()
    words = r"process runs in \d worker process(es)?, under limits of time and memory"
    assert re.fullmatch(words, verifier.reasons["verifier"])


def test_as_many_workers_run_as_are_asked_for_and_none_where_none_is() -> None:
    with opened(last_number, VerifierConfig(workers=1)) as verifier:
        assert isinstance(verifier.runner, VerifierPool)
        assert verifier.reasons["verifier"] == (
            "last_number runs in 1 worker process: verifier.workers = 1"
        )
    with opened(process, VerifierConfig(workers=0)) as verifier:
        assert verifier.runner.verify_all([("", None)])[0].reward == os.getpid()


def test_a_function_that_cannot_travel_is_refused_with_the_reason() -> None:
    lock = threading.Lock()

    def guarded(completion: str, reference: Any) -> bool:
        with lock:
            return True

    with pytest.raises(UserError, match="it uses 'lock'"), opened(guarded, VerifierConfig()):
        pass


def test_both_kinds_of_runner_report_what_calls_took() -> None:
    for workers in (0, 1):
        with opened(last_number, VerifierConfig(workers=workers)) as verifier:
            verifier.runner.verify_all([("1", 1), ("none", 1), ("1", "one")])
            report = verifier.runner.take_report()
            assert (len(report.seconds), report.failures) == (3, {"exception": 1})
            assert report.times().keys() == {"median", "p95", "max", "restarts"}
            assert verifier.runner.take_report().times() == {}


def test_the_weights_of_parts_survive_the_way_from_a_worker() -> None:
    both = weighted({"a": (1.0, Exact()), "b": (0.25, last_number)})
    with opened(both, VerifierConfig(workers=1)) as verifier:
        (verdict,) = verifier.runner.verify_all([("3", 3)])
    assert (verdict.reward, verdict.weights) == (1.25, {"a": 1.0, "b": 0.25})


# In which sandbox


def test_the_run_names_the_sandbox_of_its_programs() -> None:
    with opened(CodeVerifier(), VerifierConfig(sandbox="subprocess", workers=1)) as verifier:
        assert verifier.reasons["sandbox"] == ("programs run in the sandbox subprocess (accidents)")
        assert verifier.sandbox == "subprocess"
        assert verifier.runner.verify_all([(PROGRAM, SQUARE)])[0].reward == 1.0


@pytest.mark.skipif(not has_sandbox("strongest"), reason="no sandbox for hostile programs works")
def test_programs_within_a_sum_run_in_the_strongest_sandbox() -> None:
    both = weighted({"right": (1.0, CodeVerifier()), "shown": (0.0, Exact())})
    with opened(both, VerifierConfig(workers=1)) as verifier:
        assert re.fullmatch(
            r"programs run in the sandbox \w+ \(isolated\)", verifier.reasons["sandbox"]
        )
        assert verifier.runner.verify_all([(PROGRAM, SQUARE)])[0].components["right"] == 1.0


@pytest.mark.skipif(not has_sandbox("namespaces"), reason="no namespaces here")
def test_of_several_sandboxes_each_is_named_once() -> None:
    parts = {"a": "namespaces", "b": "subprocess", "c": "namespaces"}
    every = weighted({name: (1.0, CodeVerifier(sandbox=each)) for name, each in parts.items()})
    with opened(every, VerifierConfig(sandbox="subprocess", workers=0)) as verifier:
        assert verifier.sandbox == "namespaces, subprocess"


def test_a_verifier_that_runs_no_programs_has_no_sandbox() -> None:
    with opened(last_number, VerifierConfig()) as verifier:
        assert verifier.sandbox is None


@pytest.mark.parametrize("configured", ["auto", "namespaces", "bubblewrap", "sandlock", "wasi"])
def test_a_verifier_that_asks_for_less_than_the_run_is_refused(configured: Any) -> None:
    verifier = weighted({"right": (1.0, CodeVerifier(sandbox="subprocess"))})
    with (
        pytest.raises(UserError, match=r"'subprocess', which stops accidents only"),
        opened(verifier, VerifierConfig(sandbox=configured)),
    ):
        pass


def test_a_sandbox_that_does_not_exist_is_refused() -> None:
    verifier = CodeVerifier(sandbox="sieve")
    with pytest.raises(UserError, match="no sandbox 'sieve'"), opened(verifier, VerifierConfig()):
        pass


# By name


def test_the_names_of_verifiers_are_those_that_exist() -> None:
    assert set(NAMES) == VERIFIERS.keys()


def test_a_built_in_verifier_goes_by_its_name() -> None:
    assert verifier_named("number") == Number()


def written(folder: Path, code: str) -> Path:
    file = folder / "checks.py"
    file.write_text(code)
    return file


def verdict_of(name: str, completion: str, reference: Any) -> Verdict:
    with opened(verifier_named(name), VerifierConfig(workers=1)) as verifier:
        return verifier.runner.verify_all([(completion, reference)])[0]


def test_a_function_of_a_file_is_loaded_in_the_worker_by_its_name(tmp_path: Path) -> None:
    # A lock cannot travel; a name can.
    file = written(
        tmp_path,
        "import threading\nlock = threading.Lock()\n"
        "async def same(text, reference):\n    with lock:\n        return text == reference\n",
    )
    assert verdict_of(f"{file}:same", "a", "a").reward == 1.0
    assert verdict_of(f"{file}:same", "b", "a").reward == 0.0


def test_a_built_in_verifier_with_options_may_stand_in_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "from verigrad.verifiers import Choice\nthree = Choice(choices='ABC')")
    with pytest.raises(ConfigError, match="choices is 'ABC'"):
        verifier_named(f"{file}:three")
    file = written(
        tmp_path, "from verigrad.verifiers import Choice\nxy = Choice(choices=('X', 'Y'))"
    )
    assert verifier_named(f"{file}:xy") == Choice(choices=("X", "Y"))


def test_a_reward_function_of_trl_is_adapted_without_a_change(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "def matches(prompts, completions, ground_truth, **kwargs):\n"
        "    return [float(c == g) for c, g in zip(completions, ground_truth)]\n",
    )
    verifier = verifier_named(f"{file}:matches")
    assert isinstance(verifier, TrlReward)
    assert verifier.column == "ground_truth"
    reference = {"prompt": "Say a.", "ground_truth": "a"}
    assert verdict_of(f"{file}:matches", "a", reference).reward == 1.0


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("other = 1", "has no 'check'; it defines: other"),
        ("check = 3", ":check is a int; a verifier is a function"),
        ("class check: ...", ":check is a type; a verifier is a function"),
        ("import nowhere", "fails to run: ModuleNotFoundError"),
        ("def check(text): ...", ":check(text) cannot be called with a completion and a reference"),
        ("def check(a, b, c): ...", ":check(a, b, c) cannot be called with a completion and a"),
    ],
)
def test_a_name_that_is_no_verifier_is_refused(code: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        verifier_named(f"{written(tmp_path, code)}:check")


def takes_text_only(text: str) -> float:
    return float(len(text))


def written_for_trl(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [1.0 for _ in completions]


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (takes_text_only, "takes_text_only(text: str) -> float cannot be called with a completion"),
        (written_for_trl, "give TrlReward(function=written_for_trl) of verigrad.verifiers"),
    ],
)
def test_a_function_with_other_arguments_is_refused_alone_and_as_a_part(
    function: Any, complaint: str
) -> None:
    for verifier in (function, weighted({"right": (1.0, Exact()), "own": (0.1, function)})):
        with (
            pytest.raises(ConfigError, match=re.escape(complaint)),
            opened(verifier, VerifierConfig(workers=0)),
        ):
            pass


def test_functions_of_a_users_file_travel_at_any_depth(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "from verigrad.verifiers import TrlReward, weighted\n"
        "BASE = 2\n"
        "def twice(completions, answer, **columns):\n"
        "    return [float(int(c) == BASE * a) for c, a in zip(completions, answer)]\n"
        "check = weighted({'twice': (1.0, TrlReward(function=twice))})\n",
    )
    check = load_from_file(f"{file}:check", kind="a verifier", error=ConfigError)
    with opened(check, VerifierConfig(workers=1)) as verifier:
        assert verifier.runner.verify_all([("6", 3)])[0].reward == 1.0
