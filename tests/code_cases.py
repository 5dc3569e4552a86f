"""Runs one case about code: its completion, against its tests, through the code verifier."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verigrad.types import Verdict
from verigrad.verifiers import verify
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.sandbox import STRONGEST

NOT_JSON = "<not JSON comparable>"
"""Stands in a case for an expected value that JSON cannot hold; the assert lines say it then."""


def run_code_case(case: Mapping[str, Any], sandbox: str = STRONGEST) -> Verdict:
    """The verdict on a case; failed too if one of its side conditions does not hold."""
    given = dict(case["input"])
    completion = given.pop("completion")
    if any(test["expected"] == NOT_JSON for test in given.get("tests", [])):
        del given["tests"]
    changed = {key: os.environ.get(key) for key in case.get("env", {})}
    os.environ.update(case.get("env", {}))
    try:
        before = _children()
        verdict = verify(CodeVerifier(sandbox=sandbox), completion, given)
        broken = [check for check in case.get("checks", []) if not _holds(check, before)]
    finally:
        for key, value in changed.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
    return Verdict.failed(f"does not hold: {', '.join(broken)}") if broken else verdict


def _holds(check: str, before: frozenset[str]) -> bool:
    kind, _, what = check.partition(":")
    if kind == "absent":
        return not Path(what).exists()
    if kind == "no_process":
        return not any(what in command for command in _commands())
    if kind == "no_extra_processes":
        return len(_children()) <= len(before) + 1  # One stands ready for the next program.
    raise ValueError(f"the side condition {check!r} is not known")


def _commands() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # It has ended.
            continue
    return found


def _children() -> frozenset[str]:
    """The processes below this one."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[file.parent.name] = fields[1]
    found = {str(os.getpid())}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found)
