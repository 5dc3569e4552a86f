"""Verifiers in worker processes: how they get there, and what becomes of one that misbehaves."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verigrad.errors import UserError
from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers import last_number
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import Report, VerifierPool
from verigrad.verifiers.process import WorkerError
from verigrad.verifiers.sandbox import SandboxUnavailableError, open_sandbox

pytest.importorskip("cloudpickle")

QUICK = Limits(cpu_seconds=0.3, wall_seconds=1.0, memory_bytes=200 * 2**20, output_bytes=1000)


def misbehaving() -> Callable[[str, Any], Any]:
    """A verifier that does what the completion says."""

    def verifier(completion: str, reference: Any) -> Any:
        import ctypes
        import os
        import signal
        import sys
        import time

        # A message that is too deep to be read as JSON.
        scribble = (50_000).to_bytes(8, "big") + b"[" * 50_000

        def is_open(descriptor: int) -> bool:
            return os.path.exists(f"/proc/self/fd/{descriptor}")

        # What starts the tests in the background may have it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        actions: dict[str, Callable[[], Any]] = {
            "raise": lambda: [][1],
            "exit": lambda: sys.exit(0),
            "interrupt": lambda: signal.raise_signal(signal.SIGINT),
            "loop": lambda: all(True for _ in iter(int, 1)),
            "loop in C": lambda: sum(range(10**12)),
            "sleep": lambda: time.sleep(60),
            "memory": lambda: len(bytearray(2**30)),
            "leave": lambda: os._exit(3),
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "crash": lambda: ctypes.string_at(0),
            "real-time signal": lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6),
            "scribble": lambda: [os.write(fd, scribble) for fd in range(3, 9) if is_open(fd)],
            "fork": lambda: (os.fork(), 0.5)[1],
            "nan": lambda: float("nan"),
            "none": lambda: None,
            "much": lambda: Verdict.scored(1.0, "x" * 10_000),
            "print": lambda: (os.write(1, b"x" * 10**6), sys.stdout.write("y" * 10**6), 1.0)[2],
            "close": lambda: (os.closerange(0, 100), 1.0)[1],
            "right": lambda: 1.0,
            "pid": os.getpid,
        }
        return actions[completion]()

    return verifier


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(misbehaving(), workers=2, limits=QUICK) as pool:
        yield pool


@pytest.mark.parametrize(
    ("action", "kind", "detail"),
    [
        ("raise", FailureKind.EXCEPTION, "exception: IndexError: list index out of range"),
        ("exit", FailureKind.EXCEPTION, "exception: SystemExit"),
        ("interrupt", FailureKind.EXCEPTION, "exception: KeyboardInterrupt"),
        ("loop", FailureKind.TIMEOUT, "timeout: no verdict after 0.3 s of processor time"),
        ("loop in C", FailureKind.TIMEOUT, "timeout: no verdict after 0.3 s of processor time"),
        ("sleep", FailureKind.TIMEOUT, "timeout: no verdict within 1 s"),
        ("memory", FailureKind.MEMORY, "exception: MemoryError"),
        ("leave", FailureKind.DIED, "died: the worker process ended with exit code 3"),
        ("kill", FailureKind.DIED, "died: the worker process was ended by SIGKILL"),
        ("crash", FailureKind.DIED, "died: the worker process was ended by SIGSEGV"),
        ("real-time signal", FailureKind.DIED, "died: the worker process was ended by signal 40"),
        ("scribble", FailureKind.DIED, "died: the worker process was ended by SIGKILL"),
        ("nan", FailureKind.BAD_VALUE, "bad value: the verifier returned nan"),
        ("none", FailureKind.BAD_VALUE, "bad value: the verifier returned NoneType"),
        ("much", FailureKind.BAD_VALUE, "bad value: the verdict takes 10"),
        ("close", FailureKind.DIED, "died: the worker process"),
    ],
)
def test_a_verifier_that_misbehaves_fails_alone(
    pool: VerifierPool, action: str, kind: FailureKind, detail: str
) -> None:
    calls = [(each, None) for each in ("right", "right", action, "right", "right")]
    before, after, failed = [], [], None
    *before, failed, a, b = pool.verify_all(calls)
    after = [a, b]
    assert [verdict.reward for verdict in before + after] == [1.0] * 4
    assert (failed.status, failed.reward, failed.kind) == (Status.FAILED, None, kind)
    assert failed.detail.startswith(detail)


def test_what_a_verifier_prints_does_no_harm(
    pool: VerifierPool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [v.reward for v in pool.verify_all([("print", None)] * 4)] == [1.0] * 4
    assert capfd.readouterr() == ("", "")


def test_what_a_verifier_forks_does_not_answer_in_its_place() -> None:
    with VerifierPool(misbehaving(), workers=1, limits=QUICK) as pool:
        verdicts = pool.verify_all([("fork", None), ("right", None)] * 10)
    assert [verdict.reward for verdict in verdicts] == [0.5, 1.0] * 10


@pytest.mark.thorough
def test_after_twenty_calls_that_hang_the_pool_is_as_large_as_before() -> None:
    limits = Limits(cpu_seconds=0.05, wall_seconds=0.1)
    with VerifierPool(misbehaving(), workers=2, limits=limits) as pool:
        verdicts = pool.verify_all([("sleep", None)] * 20 + [("right", None)])
        assert [v.kind for v in verdicts] == [FailureKind.TIMEOUT] * 20 + [None]
        report = pool.take_report()
        assert report.failures == {FailureKind.TIMEOUT: 20}
        assert len(report.restarts) in (19, 20)
        assert len({v.reward for v in pool.verify_all([("pid", None)] * 200)}) == 2


def test_verdicts_come_in_the_order_of_the_calls() -> None:
    def slower_first(completion: str, reference: Any) -> float:
        time.sleep(0.05 if reference < 4 else 0)
        return float(reference)

    with VerifierPool(slower_first, workers=3) as pool:
        verdicts = pool.verify_all([("", number) for number in range(12)])
    assert [verdict.reward for verdict in verdicts] == [float(number) for number in range(12)]


def test_a_verdict_arrives_whole() -> None:
    verdict = Verdict(
        status=Status.SCORED, reward=0.75, components={"form": 0.5, "value": 1.0}, detail="é\n"
    )
    unparsable = Verdict.unparsable("no number")
    with VerifierPool(lambda c, r: verdict if c else unparsable, workers=1) as pool:
        assert pool.verify_all([("x", None), ("", None)]) == [verdict, unparsable]


def test_references_of_every_kind_arrive_and_large_ones_too() -> None:
    references = [{1, 2}, (1, b"x"), {"a": [None]}, "x" * 10**6, 2**100]
    with VerifierPool(lambda c, r: repr(r) == c, workers=2) as pool:
        verdicts = pool.verify_all([(repr(reference), reference) for reference in references])
    assert [verdict.reward for verdict in verdicts] == [1.0] * 5


def test_a_reference_that_cannot_be_sent_is_refused() -> None:
    with (
        VerifierPool(last_number, workers=1) as pool,
        pytest.raises(UserError, match=r"cannot be sent to a worker process.*lock"),
    ):
        pool.submit("1", threading.Lock())


def test_a_report_tells_of_the_time_since_the_last_one() -> None:
    with VerifierPool(misbehaving(), workers=1, limits=QUICK) as pool:
        pool.verify_all([("right", None)] * 3 + [("raise", None), ("leave", None), ("right", None)])
        report = pool.take_report()
        assert len(report.seconds) == 6
        assert report.statuses == {Status.SCORED: 4, Status.FAILED: 2}
        assert report.failures == {FailureKind.EXCEPTION: 1, FailureKind.DIED: 1}
        assert len(report.restarts) == 1
        assert pool.take_report() == Report(seconds=(), statuses={}, failures={}, restarts=())


def test_percentiles_are_those_of_the_calls() -> None:
    report = Report(
        seconds=tuple(range(100, 0, -1)), statuses={}, failures={}, restarts=()
    )  # 1 to 100
    assert [report.percentile(share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [
        1, 51, 96, 100, 100,
    ]  # fmt: skip


# How a verifier gets to a worker.


def test_an_asynchronous_verifier_is_awaited() -> None:
    async def check(completion: str, reference: Any) -> bool:
        await asyncio.sleep(0)
        return completion == reference

    with VerifierPool(check, workers=1) as pool:
        verdicts = pool.verify_all([("a", "a"), ("a", "b")])
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0]


def test_a_closure_a_lambda_a_method_and_a_built_in_one_travel() -> None:
    wanted = {"a": 1.0}

    class Table:
        def check(self, completion: str, reference: Any) -> float:
            return wanted.get(completion, 0.0)

        __call__ = check

    for verifier in (Table().check, Table(), lambda c, r: wanted.get(c, 0.0), last_number):
        with VerifierPool(verifier, workers=1) as pool:
            assert pool.verify_all([("a", "a"), ("3", 3)])[0].status is not Status.FAILED


@pytest.mark.parametrize(
    "how", ["file.py:check", "file.py:Table.check", "module:check", "loaded from a file"]
)
def test_a_verifier_is_found_by_its_name(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
        ANSWER = "right"
        def check(completion, reference):
            return completion == ANSWER
        class Table:
            check = staticmethod(check)
    """
    file = tmp_path / "my_checks_of_words.py"
    file.write_text(textwrap.dedent(source))
    verifier: Any = how.replace("file.py", str(file))
    if how.startswith("module"):
        monkeypatch.syspath_prepend(tmp_path)
        verifier = "my_checks_of_words:check"
    if how.startswith("loaded"):
        verifier = loaded(file).check
    with VerifierPool(verifier, workers=1) as pool:
        assert [v.reward for v in pool.verify_all([("right", 0), ("", 0)])] == [1.0, 0.0]


def loaded(file: Path) -> Any:
    """A module under a name that no other process can import."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("module_of_no_place", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["module_of_no_place"] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = """
from verigrad.verifiers.pool import VerifierPool

class Wanted:
    word = "right"

def check(completion, reference):
    return completion == Wanted.word

async def check_later(completion, reference):
    return check(completion, reference)

pools = [VerifierPool(each, workers=1) for each in (check, check_later, lambda c, r: check(c, r))]
for pool in pools:
    with pool:
        print([v.reward for v in pool.verify_all([("right", 0), ("wrong", 0)])])
"""

NOTEBOOK = """
import sys, types
cell = compile({source!r}, "<ipython-input-1>", "exec")
del __file__
exec(cell, vars(sys.modules["__main__"]))
"""


@pytest.mark.parametrize("how", ["script", "standard input", "command", "notebook"])
def test_a_program_without_a_main_guard_may_use_a_pool(how: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(NOTEBOOK.format(source=SCRIPT) if how == "notebook" else SCRIPT)
    arguments = {"standard input": ["-"], "command": ["-c", SCRIPT]}.get(how, [str(file)])
    done = subprocess.run(
        [sys.executable, *arguments],
        input=SCRIPT if how == "standard input" else "",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[1.0, 0.0]\n" * 3, "")


def test_a_worker_has_loaded_no_torch() -> None:
    def loaded_torch(completion: str, reference: Any) -> bool:
        return "torch" in sys.modules

    with VerifierPool(loaded_torch, workers=1) as pool:
        assert pool.verify_all([("", None)])[0].reward == 0.0


def closing_over(value: Any) -> Callable[[str, Any], bool]:
    return lambda completion, reference: value is None


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (threading.Lock, "lock"),
        (lambda: (number for number in range(3)), "generator"),
        (lambda: socket.socket(), "socket"),
    ],
    ids=["lock", "generator", "socket"],
)
def test_what_cannot_travel_is_refused_with_the_reason(make: Callable[[], Any], kind: str) -> None:
    value = make()
    with pytest.raises(UserError, match=f"it uses 'value', a {kind}"):
        VerifierPool(closing_over(value))
    if kind == "socket":
        value.close()


@pytest.mark.parametrize(
    ("verifier", "reason"),
    [
        ("nowhere.py:check", "which does not exist"),
        ("check", "expected file.py:function or module:function"),
        ("json:nothing", "json has no 'nothing'"),
        ("os:sep", "os:sep is a str; expected a function"),
        ("no_such_module:check", "No module named 'no_such_module'"),
        (3, "the verifier is a int"),
    ],
)
def test_a_verifier_that_is_not_there_is_refused_at_the_start(verifier: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        VerifierPool(verifier, workers=2)


def test_a_file_that_fails_to_load_is_refused_with_its_row(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("x = 1\ny = x / 0\n")
    with pytest.raises(UserError, match=r"ZeroDivisionError: division by zero .*broken.py:2"):
        VerifierPool(f"{file}:check")


def test_a_worker_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(WorkerError, match=r"does not start: .*encodings"):
        VerifierPool(last_number)


def test_a_machine_without_a_folder_for_temporary_files_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(WorkerError, match=r"cannot be started: .*No such file or directory"):
        VerifierPool(last_number)


def test_workers_that_cannot_be_replaced_are_said_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VerifierPool(misbehaving(), workers=1, limits=QUICK) as pool:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        assert pool.submit("kill", None).result(timeout=20).kind is FailureKind.DIED
        with pytest.raises(WorkerError, match="cannot be started"):
            pool.submit("right", None).result(timeout=20)


@pytest.mark.parametrize("workers", [0, -1])
def test_a_pool_without_workers_is_refused(workers: int) -> None:
    with pytest.raises(UserError, match="expected at least 1"):
        VerifierPool(last_number, workers=workers)


@pytest.mark.parametrize(
    "limits", [{"cpu_seconds": 0}, {"memory_bytes": -1}, {"cpu_seconds": 5, "wall_seconds": 4}]
)
def test_limits_that_allow_nothing_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Limits(**limits)  # type: ignore[arg-type]


# When everything ends.


def test_a_closed_pool_leaves_no_process_and_takes_no_call() -> None:
    pool = VerifierPool(misbehaving(), workers=2)
    pids = {int(v.reward or 0) for v in pool.verify_all([("pid", None)] * 50)}
    waiting = [pool.submit("sleep", None) for _ in range(4)]
    time.sleep(0.1)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 3
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert all(future.done() for future in waiting)
    with pytest.raises(ValueError, match="closed"):
        pool.submit("right", None)


def test_a_worker_outlives_the_thread_that_asked_for_the_pool() -> None:
    pools: list[VerifierPool] = []
    thread = threading.Thread(target=lambda: pools.append(VerifierPool(last_number, workers=1)))
    thread.start()
    thread.join()
    time.sleep(0.2)
    with pools[0] as pool:
        assert pool.verify_all([("3", 3)])[0].reward == 1.0
        assert pool.take_report().restarts == ()


STUCK = """
import sys
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.sandbox import SandboxLimits

def check(completion, reference):
    if completion == "C":
        return sum(range(10**13))
    if completion == "sandbox":
        limits = SandboxLimits(seconds=600, wall_seconds=600)
        reference = {"io": [{"stdin": "", "stdout": ""}]}
        return CodeVerifier(sandbox=sys.argv[1], limits=limits)("while True: pass", reference)
    __import__("time").sleep(600)

pool = VerifierPool(check, workers=3, limits=Limits(cpu_seconds=600, wall_seconds=600))
print(flush=True)
pool.verify_all([(name, None) for name in ("C", "sandbox", "sleep")])
"""


@pytest.mark.parametrize("sandbox", ["namespaces", "subprocess"])
def test_nothing_is_left_two_seconds_after_the_trainer_is_killed(sandbox: str) -> None:
    try:
        open_sandbox(sandbox).close()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = STUCK.replace("sys.argv[1]", repr(sandbox))
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"\n"
        # Three workers; what stands ready, the attendant and the program, and one more in between.
        processes = 7 if sandbox == "namespaces" else 6
        wait_until(lambda: len(descendants(trainer.pid)) >= processes)
        there = descendants(trainer.pid)
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        wait_until(lambda: not any(is_running(pid) for pid in there), seconds=2)


def descendants(ancestor: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    parents = {
        int(file.parent.name): int(status(file)[1] or 0)
        for file in Path("/proc").glob("[0-9]*/stat")
    }
    found = [ancestor]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def is_running(pid: int) -> bool:
    return status(Path(f"/proc/{pid}/stat"))[0] not in ("", "Z")


def status(file: Path) -> list[str]:
    """State and parent, as /proc tells them."""
    try:
        return file.read_text().rpartition(")")[2].split()
    except OSError:
        return ["", ""]


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
