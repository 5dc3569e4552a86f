"""Reads the tests of a problem. What is wrong with them is an error, never a wrong answer."""

import ast
import builtins
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verigrad.verifiers.sandbox.report import Opaque

_ENTRY = re.compile(r"[A-Za-z_]\w*(?:\(\))?(?:\.[A-Za-z_]\w*)?", re.ASCII)
_KNOWN = {*dir(builtins), "math"}
_COLLECTING = {"list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "next"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTest:
    """A call, and what it is to return."""

    arguments: str
    """As they are written in a call: ``3, [1, 2], base=10``."""

    expected: Any
    """Plain data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamTest:
    """What a script reads, and what it is to write."""

    stdin: str
    """All of its standard input."""

    stdout: str
    """All of its standard output; not looked at when there is a checker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertTest:
    """An assertion whose calls are made in one place, and which is looked at in another.

    Example: ``assert abs(solve(3) - 9) < 1e-6`` has the call ``solve(3)`` and the condition
    ``abs(value_0 - 9) < 1e-6``.
    """

    calls: tuple[str, ...]
    """Every call of what the program defines, as it is written."""

    condition: str
    """The assertion with ``value_0``, ``value_1``, ... in their places."""

    names: tuple[str, ...]
    """What the calls want the program to define."""


def call_tests(tests: object) -> list[CallTest]:
    """Tests of the form ``{"args": [3], "kwargs": {}, "expected": 9}``.

    Raises:
        ValueError: they are not of that form.
    """
    return [
        CallTest(
            arguments=_arguments(entry.get("args", []), entry.get("kwargs", {})),
            expected=entry["expected"],
        )
        for entry in _entries(tests, "tests", required={"expected"}, optional={"args", "kwargs"})
    ]


def stream_tests(tests: object) -> list[StreamTest]:
    """Tests of the form ``{"stdin": "3 4", "stdout": "12"}``.

    Raises:
        ValueError: they are not of that form.
    """
    entries = _entries(tests, "io", required={"stdin", "stdout"}, optional=set())
    for entry in entries:
        for key, value in entry.items():
            if not isinstance(value, str):
                raise ValueError(f"io has {key} {value!r:.60}; expected text")
    return [StreamTest(stdin=entry["stdin"], stdout=entry["stdout"]) for entry in entries]


def _entries(
    tests: object, what: str, *, required: set[str], optional: set[str]
) -> Sequence[Mapping[str, Any]]:
    if not isinstance(tests, list | tuple) or not tests:
        raise ValueError(f"{what} is {tests!r:.60}; expected a list of at least one test")
    for entry in tests:
        if not isinstance(entry, Mapping) or not required <= entry.keys() <= required | optional:
            expected = ", ".join(sorted(required | optional))
            raise ValueError(f"{what} has the test {entry!r:.60}; expected a table of {expected}")
    return tests


def _arguments(args: object, kwargs: object) -> str:
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise ValueError(f"a test has args {args!r:.60} and kwargs {kwargs!r:.60}; expected a list "
                         "and a table")  # fmt: skip
    named = [f"{name}={written(value)}" for name, value in kwargs.items()]
    return ", ".join([*map(written, args), *named])


def check_entry(entry: object) -> str:
    """What is to be called.

    Raises:
        ValueError: it is not a name, or a method as ``Solution().name``.
    """
    if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
        raise ValueError(f"entry is {entry!r:.60}; expected the name of a function")
    return entry


def assert_tests(lines: object, entry: str = "") -> list[AssertTest]:
    """Assertions as a list of lines; the calls are those of the entry, or of unknown names.

    Raises:
        ValueError: a line is not an assertion about something that the program defines.
    """
    if not isinstance(lines, list | tuple) or not lines:
        raise ValueError(f"asserts is {lines!r:.60}; expected a list of at least one line")
    return [_assert_test(line, entry) for line in lines]


def _assert_test(line: object, entry: str) -> AssertTest:
    try:
        body = ast.parse(str(line).strip()).body
    except SyntaxError as error:
        raise ValueError(f"the test {line!r:.80} does not compile: {error.msg}") from error
    if len(body) != 1 or not isinstance(body[0], ast.Assert):
        raise ValueError(f"the test {line!r:.80} is not one assert statement")
    cutter = _Cutter({entry} if entry else None)
    condition = cutter.visit(body[0].test)
    if not cutter.calls:
        raise ValueError(f"the test {line!r:.80} calls nothing of the program")
    _refuse_unknown(condition, set(cutter.names), line)
    for call in cutter.calls:
        _refuse_unknown(call, set(cutter.roots), line)
    return AssertTest(
        calls=tuple(map(ast.unparse, cutter.calls)),
        condition=ast.unparse(condition),
        names=tuple(dict.fromkeys(cutter.roots)),
    )


class _Cutter(ast.NodeTransformer):
    """Cuts the calls of the program out of an expression, each with all that hangs on it."""

    def __init__(self, roots: set[str] | None) -> None:
        self._wanted = roots
        self.roots: list[str] = []
        self.calls: list[ast.expr] = []
        self.names: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        collected = _collected(node)
        root = _root(node if collected is None else collected)
        if root is None or not self._is_program(root):
            return self.generic_visit(node)
        self.roots.append(root)
        self.names.append(f"value_{len(self.calls)}")
        self.calls.append(node if collected is None else _by_builtin(node))  # type: ignore[arg-type]
        return ast.Name(id=self.names[-1], ctx=ast.Load())

    def _is_program(self, root: str) -> bool:
        return root not in _KNOWN if self._wanted is None else root in self._wanted


def _collected(node: ast.AST) -> ast.expr | None:
    """What ``list(...)`` and its like gather: it may only exist where the program runs."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _COLLECTING:
            return argument
    return None


def _by_builtin(node: Any) -> ast.expr:
    """The call of a built-in function, whatever the program means by its name."""
    module = ast.parse("__import__('builtins')", mode="eval").body
    return ast.Call(ast.Attribute(module, node.func.id, ast.Load()), node.args, [])


def _root(node: ast.AST) -> str | None:
    """The name at the bottom of a chain of calls, attributes and subscripts with a call in it."""
    called = False
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        called = called or isinstance(node, ast.Call)
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if called and isinstance(node, ast.Name) else None


def _refuse_unknown(node: ast.AST, known: set[str], line: object) -> None:
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    made = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    unknown = {name.id for name in names} - made - known - _KNOWN
    if unknown:
        raise ValueError(f"the test {line!r:.80} uses {', '.join(sorted(unknown))}, which nothing "
                         "defines where it is looked at")  # fmt: skip


def check_checker(checker: str) -> str:
    """The text of a function ``check(stdin, out)``.

    Raises:
        ValueError: it does not compile, or defines no function that takes two arguments.
    """
    try:
        body = ast.parse(checker).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"the checker of the reference does not compile: {error}") from error
    made = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == "check"]
    if not made or not _takes_two(made[-1].args):
        raise ValueError(
            f"the checker of the reference is {checker!r:.80}; expected the text of a function "
            "check(stdin, out)"
        )
    return checker


def _takes_two(arguments: ast.arguments) -> bool:
    names = len(arguments.posonlyargs) + len(arguments.args)
    needed = names - len(arguments.defaults)
    return needed <= 2 and (names >= 2 or arguments.vararg is not None)


def written(value: Any) -> str:
    """Plain data as an expression, which means the same in any namespace.

    Raises:
        ValueError: it is not plain data.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "(1e999 - 1e999)"
        return repr(value).replace("inf", "1e999")
    if isinstance(value, int) and not isinstance(value, bool):
        # A number of very many digits is not written in tens.
        return repr(value) if abs(value) < 2**63 else hex(value)
    if value is None or isinstance(value, bool | str | bytes | complex):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(written(item) + ', ' for item in value)})"
    if isinstance(value, set | frozenset):
        items = f"{{{', '.join(map(written, value))}}}" if value else "set()"
        return f"frozenset({items})" if isinstance(value, frozenset) else items
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{written(k)}: {written(v)}' for k, v in value.items())}}}"
    if isinstance(value, Opaque):
        return "object()"
    raise ValueError(f"a test has the value {value!r:.60}; expected plain data")
