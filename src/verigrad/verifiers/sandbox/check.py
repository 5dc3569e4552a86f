"""Sees by trying what a sandbox stops."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from verigrad.verifiers.sandbox import STRONGEST, open_sandbox
from verigrad.verifiers.sandbox.attacks import ATTACKS, Attack
from verigrad.verifiers.sandbox.base import Ending, Outcome, Program, Sandbox, Strength


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What became of one attack."""

    attack: str
    """What was tried, in words."""

    stopped: bool
    """Whether the attack failed."""

    detail: str
    """How it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What a sandbox stops."""

    name: str
    """The sandbox that was tried."""

    strength: Strength
    """What it says of itself."""

    findings: tuple[Finding, ...]
    """One per attack."""


def check_sandbox(name: str = STRONGEST) -> Checked:
    """Try every attack on a sandbox; about ten seconds.

    Args:
        name: one of SANDBOXES, or STRONGEST.

    Raises:
        UserError: there is no such sandbox, or it does not work on this machine.
        SandboxError: it broke down under an attack.
    """
    with _targets() as targets:
        sandbox = open_sandbox(name)
        try:
            findings = tuple(_try(sandbox, attack, targets) for attack in ATTACKS)
        finally:
            sandbox.close()
    return Checked(name=sandbox.name, strength=sandbox.strength, findings=findings)


def _try(sandbox: Sandbox, attack: Attack, targets: dict[str, object]) -> Finding:
    source = attack.source.format(**targets)
    outcome = sandbox.run(Program(sources=(source,), calls=("attack()",)), attack.limits)
    reached = [what for what, proof in _PROOFS.items() if proof(targets)]
    got_it = bool(outcome.values and outcome.values[0]) or bool(reached)
    return Finding(
        attack=attack.name,
        stopped=not got_it,
        detail="; ".join([_ended(outcome), *reached]),
    )


def _ended(outcome: Outcome) -> str:
    if outcome.ending is not Ending.EXITED:
        return f"ended by the limit of {outcome.ending}"
    if outcome.values:
        return f"returned {outcome.values[0]!r:.60}"
    return outcome.detail


@contextmanager
def _targets() -> Iterator[dict[str, object]]:
    """Places on this machine that an attack may be after; all gone afterwards."""
    mark = "verigrad-" + secrets.token_hex(8)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o777)
        secret = folder / "secret"
        secret.write_text(mark)
        secret.chmod(0o644)
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        unix = opened.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind("\0" + mark)
        unix.listen()
        canary = "VERIGRAD_CANARY_" + secrets.token_hex(4)
        os.environ[canary] = mark
        opened.callback(os.environ.pop, canary)
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        victim = opened.enter_context(subprocess.Popen(command))
        opened.callback(victim.kill)
        yield {
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": mark,
            "writable": str(folder / "written"),
            "secret": str(secret),
            "canary": canary,
            "victim": victim.pid,
            "marker": mark,
        }


def _was_written(targets: dict[str, object]) -> bool:
    """Whether the file is there; it is removed, so that it speaks for one attack only."""
    try:
        Path(str(targets["writable"])).unlink()
    except FileNotFoundError:
        return False
    return True


def _has_daemon(targets: dict[str, object]) -> bool:
    """Whether a process on this machine has the marker as an argument."""
    marker = str(targets["marker"]).encode()
    return any(marker in _arguments(entry) for entry in Path("/proc").glob("[0-9]*/cmdline"))


def _arguments(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # The process has ended.
        return b""


_PROOFS = {"it wrote the file": _was_written, "it left a process behind": _has_daemon}
