"""The sandboxes that packages bring: found, started, refused; and what there is not in WASI."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.sandbox import (
    SANDBOXES,
    Program,
    Sandbox,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
    open_sandbox,
)
from verigrad.verifiers.sandbox.inside.calls import BAD_DESCRIPTOR, MOST, Calls, ExitedError
from verigrad.verifiers.sandbox.wasi import compiled_interpreter

PACKAGES = {"sandlock": "sandlock", "wasi": "wasmtime"}


def opened(name: str) -> Sandbox:
    try:
        return open_sandbox(name)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def wasi() -> Iterator[Sandbox]:
    sandbox = opened("wasi")
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_sandbox_whose_package_is_installed_runs_programs(name: str) -> None:
    pytest.importorskip(PACKAGES[name])
    sandbox = open_sandbox(name)
    program = Program(sources=("def cube(n):\n    return n ** 3\n",), calls=("cube(3)",))
    assert sandbox.run(program, SandboxLimits()).values == (27,)
    assert (sandbox.name, sandbox.strength) == (name, Strength.ISOLATED)
    sandbox.close()


@pytest.mark.parametrize("name", PACKAGES)
def test_the_first_sandbox_for_hostile_programs_that_works_is_the_strongest(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(name).close()
    monkeypatch.setenv("PATH", "/nowhere")  # Where bubblewrap is not.
    kinds = {each: SANDBOXES[each] for each in ("bubblewrap", name, "subprocess")}
    monkeypatch.setattr("verigrad.verifiers.sandbox.SANDBOXES", kinds)
    sandbox = open_sandbox()
    sandbox.close()
    assert (sandbox.name, sandbox.strength) == (name, Strength.ISOLATED)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_worker_whose_memory_is_limited_still_has_its_sandbox(name: str) -> None:
    opened(name).close()
    reference = {"entry": "f", "tests": [{"args": [3], "expected": 9}]}
    # Less address space than WebAssembly reserves, and memory to spare.
    with VerifierPool(CodeVerifier(sandbox=name), workers=1, limits=Limits()) as pool:
        (verdict,) = pool.verify_all([("```python\ndef f(n): return n * n\n```", reference)])
    assert verdict.reward == 1.0, verdict.detail


@pytest.mark.parametrize("name", PACKAGES)
def test_a_sandbox_whose_package_is_missing_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(SandboxUnavailableError, match=rf"not installed.*verigrad\[{name}\]"):
        open_sandbox(name)


@pytest.fixture
def compiled(wasi: Sandbox) -> bytes:
    """The interpreter as it is kept once it is compiled, which takes too long for each test."""
    return compiled_interpreter().read_bytes()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wasi: Sandbox) -> Path:
    """Where it is kept in a cache that is empty."""
    there = compiled_interpreter()
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path))
    return tmp_path / there.relative_to(there.parents[2])


def compiles_to(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every compilation end with this, at once."""

    def write(source: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "python.bin").write_bytes(content)

    monkeypatch.setattr("verigrad.verifiers.sandbox.wasi._compile", write)


@pytest.mark.parametrize("left", [0, 100, 1_000_000])
def test_a_compiled_interpreter_that_was_cut_short_is_compiled_again(
    left: int, compiled: bytes, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_bytes(compiled[:left])
    compiles_to(compiled, monkeypatch)
    open_sandbox("wasi").close()
    assert kept.stat().st_size == len(compiled)


def test_an_interpreter_that_is_no_better_when_compiled_again_is_named_in_one_line(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles_to(b"\x7fELF" + bytes(100), monkeypatch)
    with pytest.raises(SandboxUnavailableError) as refusal:
        open_sandbox("wasi")
    assert str(refusal.value) == (
        f"the sandbox 'wasi' does not work here: {kept}: failed deserialization for: {kept}"
    )


def test_a_compilation_that_takes_too_long_makes_the_sandbox_unavailable(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verigrad.verifiers.sandbox.wasi._COMPILE_SECONDS", 0.05)
    with pytest.raises(SandboxUnavailableError, match=r"not compiled within 0\.05 seconds"):
        open_sandbox("wasi")
    assert list(kept.parents[1].iterdir()) == []


def test_a_compilation_that_fails_says_why_in_one_line(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "python.wasm"
    source.write_bytes(b"\0asm\1\0\0\0" + bytes([99, 1, 0]))
    monkeypatch.setattr("verigrad.verifiers.sandbox.wasi._interpreter", lambda: source)
    with pytest.raises(SandboxUnavailableError, match="its interpreter cannot be compiled: ") as it:
        open_sandbox("wasi")
    assert "\n" not in str(it.value)


def test_a_package_that_fails_to_make_a_sandbox_is_not_the_programs_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox = opened("sandlock")
    sandbox.close()
    # A folder that is not there cannot be shown inside.
    monkeypatch.setattr("verigrad.verifiers.sandbox.locked.FOLDER", "/nowhere")
    with pytest.raises(SandboxUnavailableError, match="broke down while a program ran"):
        open_sandbox("sandlock")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("os.fork()", "AttributeError"),
        ("os.kill(1, 0)", "AttributeError"),
        ("subprocess.run(['true'])", "OSError"),
        ("threading.Thread(target=print).start()", "RuntimeError"),
        ("asyncio.run(asyncio.sleep(0))", "OSError"),
        ("socket.create_connection(('127.0.0.1', 80))", "AttributeError"),
        ("open('file', 'w')", "FileNotFoundError"),
        ("os.listdir('/')", "FileNotFoundError"),
        ("bytearray(600 << 20)", "MemoryError"),
    ],
)
def test_what_wasi_does_not_have_is_an_error_in_the_program(
    wasi: Sandbox, line: str, error: str
) -> None:
    source = "import asyncio, os, socket, subprocess, threading"
    outcome = wasi.run(Program(sources=(source,), calls=(line,)), SandboxLimits())
    assert outcome.error == error


def test_in_wasi_a_word_of_the_machine_has_32_bits(wasi: Sandbox) -> None:
    program = Program(sources=("import sys",), calls=("sys.maxsize", "2 ** 100", "0.1 + 0.2"))
    outcome = wasi.run(program, SandboxLimits())
    assert outcome.values == (2**31 - 1, 2**100, 0.1 + 0.2)


def test_in_wasi_each_program_has_the_memory_that_it_is_allowed(wasi: Sandbox) -> None:
    program = Program(sources=("held = bytearray(200 << 20)",), calls=("len(held)",))
    small = wasi.run(program, SandboxLimits(memory_bytes=128 << 20))
    large = wasi.run(program, SandboxLimits(memory_bytes=512 << 20))
    assert (small.error, large.values) == ("MemoryError", (200 << 20,))


class Guest:
    """Memory of a few bytes."""

    def __init__(self, size: int = 256) -> None:
        self.bytes = bytearray(size)

    def read(self, start: int, size: int) -> bytes:
        return bytes(self.bytes[start : start + size])

    def write(self, start: int, content: bytes) -> None:
        if start + len(content) > len(self.bytes):
            raise IndexError
        self.bytes[start : start + len(content)] = content

    def numbers(self, start: int, count: int) -> list[int]:
        found = self.bytes[start : start + 4 * count]
        return [int.from_bytes(found[at : at + 4], "little") for at in range(0, 4 * count, 4)]

    def put(self, start: int, *numbers: int) -> None:
        self.write(start, b"".join(number.to_bytes(4, "little") for number in numbers))


def calls(reported: list[bytes] | None = None) -> Calls:
    said = [] if reported is None else reported
    return Calls(["a", "bc"], ["X=1"], lambda size: b"input"[:size], said.append)


def test_a_guest_finds_its_command_line() -> None:
    guest = Guest()
    assert calls().args_sizes_get(guest, 0, 4) == 0
    assert guest.numbers(0, 2) == [2, 5]
    assert calls().args_get(guest, 8, 100) == 0
    assert guest.numbers(8, 2) == [100, 102]
    assert guest.read(100, 5) == b"a\0bc\0"


def test_a_guest_reads_into_the_first_piece_that_has_room() -> None:
    guest = Guest()
    guest.put(0, 50, 0, 60, 3)
    assert calls().fd_read(guest, 0, 0, 2, 100) == 0
    assert (guest.read(60, 4), guest.numbers(100, 1)) == (b"inp\0", [3])


def test_a_guest_reports_on_its_third_stream() -> None:
    reported: list[bytes] = []
    guest = Guest()
    guest.put(0, 20, 4)
    guest.write(20, b"line")
    assert calls(reported).fd_write(guest, 2, 0, 1, 100) == 0
    assert (reported, guest.numbers(100, 1)) == ([b"line"], [4])


def test_one_call_reads_so_many_bytes_at_most() -> None:
    asked: list[int] = []
    guest = Guest()
    guest.put(0, 20, 2**32 - 1)
    Calls([], [], lambda size: asked.append(size) or b"x", print).fd_read(guest, 0, 0, 1, 100)
    assert asked == [MOST]


def test_a_report_of_any_length_is_one_piece() -> None:
    reported: list[bytes] = []
    guest = Guest(3 * MOST)
    guest.put(0, 20, 2 * MOST)
    assert calls(reported).fd_write(guest, 2, 0, 1, 10) == 0
    assert [len(text) for text in reported] == [2 * MOST]


@pytest.mark.parametrize("descriptor", [3, 4, 100, 2**32 - 1])
def test_a_guest_has_three_streams_and_no_other_descriptor(descriptor: int) -> None:
    guest = Guest()
    errors = [
        calls().fd_read(guest, descriptor, 0, 1, 8),
        calls().fd_write(guest, descriptor, 0, 1, 8),
        calls().fd_seek(guest, descriptor, 0, 0, 8),
        calls().fd_close(guest, descriptor),
        calls().fd_prestat_get(guest, descriptor, 0),
        calls().fd_fdstat_get(guest, descriptor, 0),
        calls().fd_filestat_get(guest, descriptor, 0),
    ]
    assert errors == [BAD_DESCRIPTOR] * 7


def test_an_address_outside_its_memory_ends_a_guest() -> None:
    with pytest.raises(IndexError):
        calls().random_get(Guest(), 250, 10)
    with pytest.raises(IndexError):
        calls().clock_time_get(Guest(), 0, 0, 2**32 - 4)


def test_a_guest_that_exits_says_with_what_code() -> None:
    with pytest.raises(ExitedError) as exited:
        calls().proc_exit(Guest(), 3)
    assert exited.value.code == 3
