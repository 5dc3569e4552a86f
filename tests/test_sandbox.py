"""Sandboxes: what they stop, on every one that works here, and what they let through."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.errors import UserError
from verigrad.verifiers.sandbox import (
    SANDBOXES,
    Ending,
    Outcome,
    Program,
    Sandbox,
    SandboxError,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
    open_sandbox,
)
from verigrad.verifiers.sandbox.attacks import ATTACKS
from verigrad.verifiers.sandbox.check import Checked, check_sandbox
from verigrad.verifiers.sandbox.inside.usage import descendants, everyone
from verigrad.verifiers.sandbox.report import read_report

_WRITTEN = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.builds(
        lambda kind, items: [kind, *items],
        st.sampled_from(["list", "dict", "set", "int", "float", "bytes", "complex", "other", "no"]),
        st.lists(inner, max_size=3),
    ),
)
FORGED = st.dictionaries(
    st.sampled_from(["value", "done", "raised", "line", "syntax", "too_big"]), _WRITTEN, max_size=2
)
"""What a program may write to its report in the hope that it is taken for the truth."""

LET_THROUGH_BY_LIMITS_ALONE = {
    "connect to a TCP port of this machine",
    "send a UDP packet",
    "connect to a Unix socket without a file",
    "write a file of this machine",
    "read a file of this machine",
    "read the environment of what started it",
    "see or signal a process of this machine",
    "write many files",
    "use a right of the administrator",
}


BY_DEFAULT = ("namespaces", "bubblewrap", "subprocess")
"""Sandboxes that the tests try whenever they run; the others take longer, and are thorough."""

EACH = [
    pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.thorough)
    for name in SANDBOXES
]


def opened(name: str) -> Sandbox:
    try:
        return open_sandbox(name)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=EACH)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    sandbox = opened(request.param)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module", params=EACH)
def checked(request: pytest.FixtureRequest) -> Checked:
    opened(request.param).close()
    return check_sandbox(request.param)


def with_processes(sandbox: Sandbox) -> None:
    if sandbox.name == "wasi":
        pytest.skip("its programs have no processes, threads, signals or files")


def run(sandbox: Sandbox, source: str, stdin: str = "", **limits: float) -> Outcome:
    """A script's outcome."""
    program = Program(sources=(textwrap.dedent(source),), stdin=stdin.encode())
    return sandbox.run(program, SandboxLimits(**limits))  # type: ignore[arg-type]


def call(sandbox: Sandbox, source: str, *calls: str, **limits: float) -> Outcome:
    """A library's outcome."""
    program = Program(sources=(textwrap.dedent(source),), calls=calls)
    return sandbox.run(program, SandboxLimits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize("attack", [attack.name for attack in ATTACKS])
def test_an_attack_is_stopped_or_let_through_as_is_said(checked: Checked, attack: str) -> None:
    (found,) = [finding for finding in checked.findings if finding.attack == attack]
    let_through = checked.strength is Strength.ACCIDENTS and attack in LET_THROUGH_BY_LIMITS_ALONE
    assert found.stopped is not let_through, found.detail


def test_values_come_back_as_they_are(sandbox: Sandbox) -> None:
    source = """
        def values():
            return [None, True, 3, -2.5, "é\\n", (1, (2,)), {"a": [1], 2: None}, {3}, b"x", 1 + 2j]
    """
    outcome = call(sandbox, source, "values()", "10 ** 30", "float('-inf')")
    assert outcome.completed
    assert outcome.values == (
        [None, True, 3, -2.5, "é\n", (1, (2,)), {"a": [1], 2: None}, {3}, b"x", 1 + 2j],
        10**30,
        float("-inf"),
    )


def test_a_long_value_comes_back_whole(sandbox: Sandbox) -> None:
    assert call(sandbox, "", "list(range(60_000))", "'x' * 500_000").values == (
        list(range(60_000)),
        "x" * 500_000,
    )


def test_a_long_input_and_a_long_output_arrive(sandbox: Sandbox) -> None:
    text = "0123456789abcde\n" * 40_000
    outcome = run(sandbox, "import sys\nsys.stdout.write(sys.stdin.read())", text)
    assert outcome.stdout == text.encode()


def test_what_is_not_plain_data_comes_back_as_its_name_only(sandbox: Sandbox) -> None:
    outcome = call(sandbox, "class Sly:\n    __eq__ = lambda self, other: True\n", "Sly()", "open")
    assert [repr(value) for value in outcome.values] == [
        "<Sly>",
        "<builtin_function_or_method>",
    ]
    assert outcome.values[0] != outcome.values[0].kind


def test_a_subclass_comes_back_as_what_it_is_based_on(sandbox: Sandbox) -> None:
    source = """
        class Text(str):
            __str__ = __repr__ = lambda self: "forged"
            __len__ = lambda self: 0
        class Number(int):
            __add__ = __repr__ = lambda self, *other: 99
        class Items(list):
            __iter__ = lambda self: iter([1, 2, 3])
    """
    outcome = call(sandbox, source, "Text('x')", "Number(7)", "Items([5])")
    assert outcome.values == ("x", 7, [5])
    assert [type(value) for value in outcome.values] == [str, int, list]


def test_changed_built_ins_change_no_value(sandbox: Sandbox) -> None:
    source = """
        import builtins, json, os
        for name in ("isinstance", "len", "iter", "type", "repr", "str", "int", "float"):
            setattr(builtins, name, lambda *a, **k: 9)
        json.dumps = json.loads = lambda *a, **k: "9"
        builtins.print = None
    """
    assert call(sandbox, source, "[1, 'a', 2.5]").values == ([1, "a", 2.5],)


def test_a_value_without_end_is_cut_off(sandbox: Sandbox) -> None:
    outcome = call(sandbox, "a = []\na.append(a)\nb = [a, a]\nb += [b, b]", "a")
    assert outcome.completed
    assert "nested too deep" in repr(outcome.values[0])
    assert not call(sandbox, "b = []\nb += [b, b]", "b").completed


def test_a_value_that_is_too_big_does_not_come_back(sandbox: Sandbox) -> None:
    outcome = call(sandbox, "", "'9' * 50_000_000")
    assert (outcome.values, outcome.detail) == ((), "a value takes too much room")
    assert call(sandbox, "", "1 << 50_000_000").values == ()


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("def f():\n    raise KeyError('x')", "it raised KeyError in line 2"),
        ("raise SystemExit(0)", "it raised SystemExit in line 1"),
        ("import os\nos._exit(0)", "it ended before its report did"),
        ("def f(:\n", "it does not compile: invalid syntax (line 1)"),
        ("a = '\0'", "it does not compile: "),
    ],
)
def test_a_program_that_ends_early_does_not_complete(
    sandbox: Sandbox, source: str, detail: str
) -> None:
    outcome = call(sandbox, source, "f()")
    assert not outcome.completed
    assert outcome.values == ()
    assert outcome.detail.startswith(detail)


def test_a_program_that_kills_itself_does_not_complete(sandbox: Sandbox) -> None:
    with_processes(sandbox)
    outcome = call(sandbox, "import os\nos.kill(os.getpid(), 9)", "1")
    assert (outcome.completed, outcome.exit_code) == (False, -9)


def test_an_error_whose_text_never_ends_is_told_by_its_name(sandbox: Sandbox) -> None:
    source = """
        class Endless(Exception):
            def __str__(self):
                while True: pass
            __repr__ = __str__
        def f():
            raise Endless
    """
    assert call(sandbox, source, "f()").detail == "it raised Endless in line 7"


def test_of_several_sources_the_first_that_compiles_is_run(sandbox: Sandbox) -> None:
    program = Program(sources=("x = (", "x = 2", "x = 3"), calls=("x",))
    assert sandbox.run(program, SandboxLimits()).values == (2,)


def test_a_library_is_not_run_as_a_script_and_a_script_is(sandbox: Sandbox) -> None:
    source = "x = __name__\nif __name__ == '__main__':\n    print(input())\n"
    assert call(sandbox, source, "x").values == ("solution",)
    assert run(sandbox, source, "hello").stdout == b"hello\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("print('x')", 0),
        ("import sys; print('x'); sys.exit()", 0),
        ("import sys; print('x'); sys.exit(3)", 3),
        ("print('x'); exit()", 0),
        ("print('x'); 1 / 0", 1),
        ("import atexit; atexit.register(print, 'x')", 0),
    ],
)
def test_a_script_ends_as_any_other_script(sandbox: Sandbox, source: str, code: int) -> None:
    outcome = run(sandbox, source)
    assert (outcome.stdout, outcome.exit_code) == (b"x\n", code)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import os, sys; print('x', flush=True); os.kill(os.getpid(), 15)", -15),
        ("import threading; threading.Timer(0.1, print, 'x').start()", 0),
    ],
)
def test_a_script_ends_with_its_threads_or_a_signal(
    sandbox: Sandbox, source: str, code: int
) -> None:
    with_processes(sandbox)
    outcome = run(sandbox, source)
    assert (outcome.stdout, outcome.exit_code) == (b"x\n", code)


@pytest.mark.parametrize(
    "source",
    [
        "print(input())",
        "import sys; sys.stdout.write(sys.stdin.readline())",
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())",
        "print(open(0).read(), end='')",
        "import os; os.write(1, os.read(0, 100))",
    ],
)
def test_a_script_reads_and_writes_its_streams_in_every_way(sandbox: Sandbox, source: str) -> None:
    assert run(sandbox, source, "é\n").stdout == "é\n".encode()


def test_a_program_has_an_environment_of_its_own(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERIGRAD_SECRET", "1")
    outcome = call(sandbox, "import os", "sorted(os.environ)", "os.environ['HOME'] == os.getcwd()")
    assert outcome.values == (["HOME", "LANG", "PATH", "PYTHONHASHSEED", "TMPDIR"], True)


def test_a_program_begins_in_an_empty_folder(sandbox: Sandbox) -> None:
    with_processes(sandbox)
    assert call(sandbox, "import os", "os.listdir()").values == ([],)


def test_hashes_are_those_of_any_interpreter_without_a_seed(sandbox: Sandbox) -> None:
    if sandbox.name == "wasi":
        pytest.skip("its hashes have 32 bits")
    environment = {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", "print(hash('heron'))"]
    there = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert call(sandbox, "", "hash('heron')").values == (int(there),)


def test_a_program_has_the_standard_library_and_nothing_else(sandbox: Sandbox) -> None:
    source = "import sys, os, asyncio, sqlite3, heapq, decimal\nimport xml.dom.minidom"
    assert call(sandbox, source, "[p for p in sys.path if 'site-packages' in p]").values == ([],)


def test_what_a_program_writes_is_gone_for_the_next_one(sandbox: Sandbox) -> None:
    with_processes(sandbox)
    source = (
        "import tempfile\nopen('here', 'w').write('x')\ntempfile.NamedTemporaryFile(delete=False)"
    )
    call(sandbox, source, "1")
    assert call(sandbox, "import os", "os.listdir()").values == ([],)


def test_much_output_ends_a_script_and_costs_little(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "while True:\n    print('x' * 10_000)", output_bytes=100_000)
    assert outcome.ending is Ending.OUTPUT
    assert len(outcome.stdout) == 100_000


def test_a_daemon_that_holds_the_output_open_holds_nothing_up(sandbox: Sandbox) -> None:
    with_processes(sandbox)
    source = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            time.sleep(30)
        print("done", flush=True)
        os._exit(0)
    """
    began = time.monotonic()
    assert run(sandbox, source).stdout == b"done\n"
    assert time.monotonic() - began < 5


def test_a_program_that_computes_is_not_ended_for_waiting_its_turn(sandbox: Sandbox) -> None:
    if sandbox.name == "wasi":
        pytest.skip("its programs cannot tell their processor time")
    burn = """
        import time
        end = time.process_time() + 0.6
        while time.process_time() < end: pass
        print(1)
    """
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        outcome = run(sandbox, burn, seconds=1.0)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert outcome.stdout == b"1\n"


def test_deep_recursion_is_no_crime(sandbox: Sandbox) -> None:
    source = "import sys\nsys.setrecursionlimit(50_000)\ndef f(n): return n and 1 + f(n - 1)\n"
    assert call(sandbox, source, "f(20_000)").values == (20_000,)


def test_a_program_finds_nothing_of_the_one_before_it(sandbox: Sandbox) -> None:
    call(sandbox, "import math, sys\nmath.pi = 3\nsys.modules['left'] = math", "1")
    source = "import math, sys"
    assert call(sandbox, source, "math.pi > 3.1", "'left' in sys.modules").values == (True, False)


def test_lines_that_are_not_the_harness_own_are_not_taken_for_values(sandbox: Sandbox) -> None:
    source = """
        import os
        for descriptor in range(3, 40):
            try:
                os.write(descriptor, b'{"value":9}\\n{"done":true}\\n')
            except OSError:
                pass
    """
    outcome = call(sandbox, source, "1")
    # In wasi such a line does not even arrive.
    assert (outcome.values, outcome.completed) == (
        ((1,), True) if sandbox.name == "wasi" else ((), False)
    )


@given(st.lists(st.one_of(st.binary(max_size=20), FORGED.map(json.dumps).map(str.encode))))
def test_a_forged_report_is_read_to_its_first_fault_and_never_trips_the_reader(
    lines: list[bytes],
) -> None:
    text = b"".join(b"mark " + line + b"\n" for line in [b'{"value":1}', *lines])
    assert read_report(text, "mark").values[0] == 1


def test_a_program_that_cannot_be_confined_is_not_run_and_not_judged() -> None:
    sandbox = opened("namespaces")
    with pytest.raises(SandboxError, match=r"broke down while a program ran in it: .*mount"):
        call(sandbox, "x = 1", "x", file_bytes=-1)
    assert call(sandbox, "x = 1", "x").values == (1,)
    sandbox.close()


def test_the_strongest_sandbox_is_one_for_hostile_programs() -> None:
    sandbox = opened("strongest")
    sandbox.close()
    assert sandbox.strength is Strength.ISOLATED


def test_a_sandbox_of_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UserError, match="'docker'; there are namespaces, bubblewrap, "):
        open_sandbox("docker")


def test_nothing_weaker_than_asked_for_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        SandboxUnavailableError, match="'bubblewrap' does not work here: bwrap is not"
    ):
        open_sandbox("bubblewrap")


def test_without_a_strong_sandbox_the_strongest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "verigrad.verifiers.sandbox.SANDBOXES", {"subprocess": SANDBOXES["subprocess"]}
    )
    with pytest.raises(SandboxUnavailableError, match="not run in less"):
        open_sandbox()


def runner_of(program: str, sandbox: Sandbox, folder: Path) -> subprocess.Popen[bytes]:
    """A process that runs a program, which takes longer than the test."""
    script = folder / "runner.py"
    script.write_text(
        "import sys\n"
        f"sys.path[:] = {sys.path!r}\n"
        "from verigrad.verifiers.sandbox import *\n"
        f"sandbox = open_sandbox({sandbox.name!r})\n"
        "print('ready', flush=True)\n"
        f"program = Program(sources=({program!r},))\n"
        "sandbox.run(program, SandboxLimits(seconds=60, wall_seconds=60))\n"
    )
    runner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"ready\n"
    return runner


def test_nothing_is_left_when_the_process_that_runs_programs_is_killed(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    with_processes(sandbox)
    folders = set(Path("/tmp").glob("verigrad-*"))
    marked = ["-c", "import time; time.sleep(60)", str(tmp_path)]
    source = f"import os, sys\nos.execv(sys.executable, [sys.executable, *{marked}])"
    with runner_of(source, sandbox, tmp_path) as runner:
        wait_until(lambda: bool(processes_with(str(tmp_path), "time.sleep")))
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes_with(str(tmp_path), "time.sleep"), seconds=2)
    wait_until(lambda: set(Path("/tmp").glob("verigrad-*")) <= folders)


def test_no_process_of_ours_is_left_when_the_one_that_runs_programs_is_killed(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    proc = os.open("/proc", os.O_RDONLY)
    with runner_of("while True: pass", sandbox, tmp_path) as runner:
        # One stands ready, one watches, and one is the program.
        wait_until(lambda: len(descendants(proc, runner.pid)) >= 3)
        ours = descendants(proc, runner.pid)
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not set(ours) & set(everyone(proc)), seconds=2)
    os.close(proc)


def processes_with(*words: str) -> list[int]:
    """The processes that have all words in their command."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes()
        except OSError:
            continue
        if all(word.encode() in command for word in words):
            found.append(int(file.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
