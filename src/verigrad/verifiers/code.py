"""Does the program in a completion pass its tests?

The program runs in a sandbox, which is told what to run and never what is expected. What comes back
is data, and is compared here.
"""

import atexit
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from verigrad.types import Verdict
from verigrad.verifiers.answer import NoAnswer
from verigrad.verifiers.programs.compare import same_output, same_value
from verigrad.verifiers.programs.extract import Found, defines, find_program
from verigrad.verifiers.programs.tests import (
    assert_tests,
    call_tests,
    check_checker,
    check_entry,
    stream_tests,
    written,
)
from verigrad.verifiers.sandbox import STRONGEST, open_sandbox
from verigrad.verifiers.sandbox.base import (
    Ending,
    Outcome,
    Program,
    Sandbox,
    SandboxLimits,
    Strength,
)

_KEYS = {"entry", "tests", "asserts", "io", "limits", "options"}
_BROKEN_TEST = {"NameError", "SyntaxError", "ImportError", "ModuleNotFoundError"}


@functools.cache
def shared_sandbox(name: str) -> Sandbox:
    """The sandbox of this process by that name, opened when it is first asked for.

    Raises:
        UserError: as open_sandbox does.
    """
    sandbox = open_sandbox(name)
    atexit.register(sandbox.close)
    return sandbox


@dataclass(frozen=True, kw_only=True)
class CodeVerifier:
    r"""Reward 1 if the program in a completion passes every test, else 0.

    A reference is a table with one kind of test:

        {"entry": "square", "tests": [{"args": [3], "expected": 9}]}      calls of a function
        {"asserts": ["assert square(3) == 9"]}                            the same as assertions
        {"io": [{"stdin": "3\n", "stdout": "9\n"}]}                       a script and its streams

    With it may stand ``limits`` (``time_s`` for all tests together, ``memory_mb``) and ``options``
    (``float_tol``; for a script ``checker``, the text of a function ``check(stdin, out)`` that is
    true when the output is right). Beside tests, assertions only have to compile.

    A program that takes too much of anything, ends early or does not compile is wrong; so is one
    over whose values an assertion or a checker stumbles. A test that cannot be used, and a sandbox
    that breaks down, are failures.
    """

    sandbox: str = STRONGEST
    """As open_sandbox takes it. Programs are never run in anything weaker."""

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    """What a program may use where its reference says nothing else."""

    def prepare(self) -> tuple[str, Strength]:
        """See that programs can be run, and in what.

        Raises:
            UserError: the sandbox does not work on this machine.
        """
        sandbox = shared_sandbox(self.sandbox)
        return sandbox.name, sandbox.strength

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Run the program and compare.

        Raises:
            ValueError: the reference is not as described, or its checker fails.
            SandboxError: the sandbox broke down.
        """
        case = _Case(reference, self.limits)
        try:
            found = find_program(completion, case.wanted)
        except NoAnswer as none:
            return Verdict.unparsable(str(none))
        return case.judge(found, shared_sandbox(self.sandbox))


code = CodeVerifier()
"""With the strongest sandbox and the usual limits."""


class _Case:
    """A reference, understood."""

    def __init__(self, reference: Any, limits: SandboxLimits) -> None:
        if not isinstance(reference, Mapping):
            raise ValueError(f"the reference is {reference!r:.60}; expected a table with tests")
        unknown = sorted(reference.keys() - _KEYS)
        kinds = [kind for kind in ("tests", "io") if kind in reference] or ["asserts"]
        if unknown or len(kinds) > 1:
            raise ValueError(
                f"the reference has {', '.join(unknown or kinds)}; expected entry and tests, or "
                "asserts, or io, and besides limits and options"
            )
        self.kind = kinds[0]
        self.limits = _limits(reference.get("limits", {}), limits)
        self.tolerance, self.checker = _options(reference.get("options", {}), self.kind)
        entry = reference.get("entry")
        self.entry = check_entry(entry) if entry is not None or self.kind == "tests" else ""
        self.calls = call_tests(reference["tests"]) if self.kind == "tests" else []
        self.streams = stream_tests(reference["io"]) if self.kind == "io" else []
        has_asserts = self.kind == "asserts" or "asserts" in reference
        root = self.entry.partition("(")[0].partition(".")[0]
        self.asserts = assert_tests(reference.get("asserts"), root) if has_asserts else []

    @property
    def wanted(self) -> tuple[str, ...]:
        """What the program is to define."""
        if self.entry:
            return (self.entry.partition("(")[0].partition(".")[0], "Solution")
        return tuple(dict.fromkeys(name for test in self.asserts for name in test.names))

    def judge(self, found: Found, sandbox: Sandbox) -> Verdict:
        """Run the program on every test."""
        judge = {"tests": self._calls, "asserts": self._asserts, "io": self._streams}[self.kind]
        return judge(found, sandbox)

    def _calls(self, found: Found, sandbox: Sandbox) -> Verdict:
        entry = self.entry
        if _is_method(entry, found.sources[0]):
            entry = f"Solution().{entry}"
        calls = tuple(f"{entry}({test.arguments})" for test in self.calls)
        outcome = sandbox.run(Program(sources=found.sources, calls=calls), self.limits)
        if not outcome.completed or outcome.ending is not Ending.EXITED:
            return _not_completed(outcome, found)
        for call, value, test in zip(calls, outcome.values, self.calls, strict=True):
            if not same_value(value, test.expected, self.tolerance):
                return Verdict.scored(
                    0.0, f"{call:.80} is {value!r:.80}; expected {test.expected!r:.80}"
                )
        return Verdict.scored(1.0, f"all {len(calls)} tests pass")

    def _asserts(self, found: Found, sandbox: Sandbox) -> Verdict:
        calls = tuple(call for test in self.asserts for call in test.calls)
        outcome = sandbox.run(Program(sources=found.sources, calls=calls), self.limits)
        if not outcome.completed or outcome.ending is not Ending.EXITED:
            return _not_completed(outcome, found)
        values = iter(outcome.values)
        lines = ["import math"]
        for place, test in enumerate(self.asserts):
            lines.append(f"def test_{place}():")
            lines += [f"    value_{n} = {written(next(values))}" for n in range(len(test.calls))]
            lines.append(f"    assert {test.condition}")
        looks = tuple(f"test_{place}()" for place in range(len(self.asserts)))
        looked = sandbox.run(Program(sources=("\n".join(lines) + "\n",), calls=looks), self.limits)
        if looked.completed:
            return Verdict.scored(1.0, f"all {len(looks)} assertions hold")
        if looked.error in _BROKEN_TEST or not looked.error:
            raise ValueError(f"an assertion of the reference cannot be used: {looked.detail}")
        failed = self.asserts[len(looked.values)]
        return Verdict.scored(
            0.0, f"does not hold: {failed.condition:.120} with {failed.calls!r:.120}"
        )

    def _streams(self, found: Found, sandbox: Sandbox) -> Verdict:
        left = self.limits
        for number, test in enumerate(self.streams, 1):
            program = Program(sources=found.sources, stdin=test.stdin.encode())
            outcome = sandbox.run(program, left)
            if not outcome.completed or outcome.ending is not Ending.EXITED:
                return _not_completed(outcome, found)
            place = f"test {number} of {len(self.streams)}"
            if outcome.exit_code != 0:
                return Verdict.scored(0.0, f"{place}: its exit code is {outcome.exit_code}")
            said = outcome.stdout.decode("utf-8", "replace")
            if not self._is_right(test.stdin, said, test.stdout, sandbox):
                return Verdict.scored(
                    0.0, f"{place}: it wrote {said!r:.80}; expected {test.stdout!r:.80}"
                )
            seconds = left.seconds - outcome.seconds
            if seconds <= 0:
                return Verdict.scored(0.0, f"{place}: no time is left for the rest")
            left = replace(left, seconds=seconds)
        return Verdict.scored(1.0, f"all {len(self.streams)} tests pass")

    def _is_right(self, stdin: str, said: str, expected: str, sandbox: Sandbox) -> bool:
        if self.checker is None:
            return same_output(said, expected, self.tolerance)
        call = f"check({stdin!r}, {said!r})"
        outcome = sandbox.run(Program(sources=(self.checker,), calls=(call,)), SandboxLimits())
        if outcome.error and outcome.error not in _BROKEN_TEST:
            return False  # It stumbled over what the program wrote.
        if outcome.ending is not Ending.EXITED:
            raise ValueError(
                f"the checker of the reference was ended by the limit of {outcome.ending}"
            )
        if not outcome.completed or not isinstance(outcome.values[0], bool | int | float):
            raise ValueError(
                f"the checker of the reference gave {list(outcome.values)!r:.60}; expected true or "
                f"false ({outcome.detail or outcome.ending})"
            )
        return bool(outcome.values[0])


def _is_method(name: str, source: str) -> bool:
    """Whether a program has a function as a method of its class Solution only."""
    return (
        name.isidentifier()
        and not defines(source, name)
        and defines(source, "Solution")
        and f"def {name}" in source
    )


def _not_completed(outcome: Outcome, found: Found) -> Verdict:
    """The verdict on a program that did not get to the end of its tests."""
    if outcome.ending is not Ending.EXITED:
        return Verdict.scored(0.0, f"it was ended by the limit of {outcome.ending}")
    if not found.fenced and outcome.detail.startswith("it does not compile"):
        return Verdict.unparsable(
            "there is no program in it: no code block, and the text is no Python"
        )
    return Verdict.scored(0.0, outcome.detail)


def _limits(limits: Any, usual: SandboxLimits) -> SandboxLimits:
    if not isinstance(limits, Mapping) or not limits.keys() <= {"time_s", "memory_mb"}:
        raise ValueError(f"limits is {limits!r:.80}; expected a table of time_s and memory_mb")
    for key, value in limits.items():
        if not _is_number(value) or not 0 < value < 1e6:
            raise ValueError(f"limits has {key} = {value!r:.60}; expected a positive number")
    seconds = float(limits.get("time_s", usual.seconds))
    memory = int(limits["memory_mb"] * 2**20) if "memory_mb" in limits else usual.memory_bytes
    wall = max(seconds * usual.wall_seconds / usual.seconds, seconds)
    return replace(usual, seconds=seconds, wall_seconds=wall, memory_bytes=memory)


def _options(options: Any, kind: str) -> tuple[float, str | None]:
    if not isinstance(options, Mapping) or not options.keys() <= {"float_tol", "checker"}:
        raise ValueError(f"options is {options!r:.80}; expected a table of float_tol and checker")
    tolerance, checker = options.get("float_tol", 0.0), options.get("checker")
    if not _is_number(tolerance) or not 0 <= tolerance < float("inf"):
        raise ValueError(f"options has float_tol = {tolerance!r:.60}; expected a number from 0")
    if checker is not None and (not isinstance(checker, str) or kind != "io"):
        raise ValueError(f"options has checker = {checker!r:.60}; expected, with io only, the text "
                         "of a function check(stdin, out)")  # fmt: skip
    return float(tolerance), None if checker is None else check_checker(checker)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
