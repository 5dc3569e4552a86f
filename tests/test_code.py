"""The code verifier: programs in completions, their tests, and what programs try."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers import verify
from verigrad.verifiers.answer import NoAnswer
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.programs.compare import same_output, same_value
from verigrad.verifiers.programs.extract import find_program
from verigrad.verifiers.programs.tests import assert_tests, call_tests, written
from verigrad.verifiers.sandbox import (
    Outcome,
    Program,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
    open_sandbox,
)

SQUARE = {
    "entry": "square",
    "tests": [{"args": [3], "expected": 9}, {"args": [-7], "expected": 49}],
    "limits": {"time_s": 2, "memory_mb": 256},
}
PRODUCT = {"io": [{"stdin": "3 4\n", "stdout": "12\n"}], "limits": {"time_s": 1}}


@pytest.fixture(scope="module", autouse=True)
def _needs_a_strong_sandbox() -> None:
    try:
        open_sandbox().close()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


def judged(program: str, reference: Any = SQUARE) -> Verdict:
    """The verdict on a program in a block."""
    return verify(CodeVerifier(), f"So:\n```python\n{program}\n```\n", reference)


# What the program is.


@pytest.mark.parametrize(
    ("completion", "source"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("~~~py\nx = 1\n~~~", "x = 1\n"),
        ("````Python3\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("1. So:\n   ```python\n   x = 1\n   ```", "x = 1\n"),
        ("```python\r\nx = 1\r\n```\r\n", "x = 1\n"),
        ("```python title='a'\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1", "x = 1\n"),
        ("x = 1\n```", "x = 1\n"),
        ("x = 1", "x = 1"),
        ("```python\nx = 1\n```\nor\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\nwhich prints\n```\n1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```bash\npython x.py\n```", "x = 1\n"),
        ("<think>```python\nx = 0\n```</think>```python\nx = 1\n```", "x = 1\n"),
        ("<think>a</think><answer>```python\nx = 1\n```</answer>", "x = 1\n"),
        ("<answer>\n```python\nx = 1\n```\n</answer>", "x = 1\n"),
        ("<answer>x = 1</answer>", "\nx = 1\n"),
        ("Here it is: ```python\nx = 1\n```", "x = 1\n"),
        ("```{.python}\nx = 1\n```", "x = 1\n"),
    ],
)
def test_the_program_is_the_last_block_of_python(completion: str, source: str) -> None:
    assert find_program(completion).sources[0] == source


@pytest.mark.parametrize(
    "completion",
    [
        "```python\ndef f(): pass\n```\nUse it:\n```python\nprint(f())\n```",
        "```python\ndef f(): return 0\n```\nNo:\n```python\ndef f(): pass\n```",
        "```\ndef f(): pass\n```\n```python\nx = f()\n```",
        "def f(): pass\n```\nThat is all.",
    ],
)
def test_the_block_that_defines_what_is_asked_for_is_taken(completion: str) -> None:
    assert find_program(completion, ("f",)).sources[0] == "def f(): pass\n"


@pytest.mark.parametrize(
    "completion", ["", "  \n", "<think>```python\nx = 1\n```", "```json\n{}\n```"]
)
def test_a_completion_without_a_program_has_no_answer(completion: str) -> None:
    with pytest.raises(NoAnswer):
        find_program(completion)
    assert verify(CodeVerifier(), completion, SQUARE).status is Status.UNPARSABLE


def test_prose_is_no_program_and_a_broken_program_is_a_wrong_one() -> None:
    assert verify(CodeVerifier(), "I do not know.", SQUARE).status is Status.UNPARSABLE
    assert judged("def square(n) return n").status is Status.SCORED


def test_a_fence_within_the_program_does_not_end_it() -> None:
    program = 'HELP = """\n```\n"""\ndef square(n):\n    return n * n'
    assert judged(program).reward == 1.0


@given(st.text(alphabet="`~\n pythondef f():=x", max_size=80))
def test_any_text_has_a_program_or_has_none(text: str) -> None:
    try:
        assert find_program(text, ("f",)).sources
    except NoAnswer:
        assert text.strip() == "" or "`" in text or "~" in text


# What right is.


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (2, 2.0),
        (9.0, 9),
        (True, 1),
        ((3, 9), [3, 9]),
        ([(1, 2)], [[1, 2]]),
        ({1: "a"}, {"1": "a"}),
        ({True: 1, None: 2}, {"true": 1, "null": 2}),
        (10**30, 10**30),
        (float("nan"), float("nan")),
        ("é", "é"),
        (None, None),
    ],
)
def test_values_are_equal_as_python_and_json_have_it(found: Any, expected: Any) -> None:
    assert same_value(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("9", 9),
        (9, "9"),
        (9.000001, 9),
        ({3, 9}, [3, 9]),
        ([9, 3], [3, 9]),
        ([3], [3, 9]),
        ([], {}),
        (None, 0),
        (None, False),
        ("", None),
        ({1: "a", "1": "b"}, {"1": "a"}),
        ({"a": 1, "b": 2}, {"a": 1}),
        (float("nan"), 0.0),
        (b"x", "x"),
    ],
    ids=repr,
)
def test_other_values_are_not(found: Any, expected: Any) -> None:
    assert not same_value(found, expected)


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (0.3333333, 1 / 3, True),
        ([1 / 3, {"a": 1 / 7}], [0.3333333, {"a": 0.1428571}], True),
        (1e12 + 1, 1e12, True),
        (10_000_001, 10_000_000, False),
        (9.01, 9.0, False),
        ("9.0000001", "9", False),
        (10**400, 1.5, False),
        (float("inf"), 1.5, False),
    ],
)
def test_a_tolerance_is_for_numbers(found: Any, expected: Any, same: bool) -> None:
    assert same_value(found, expected, 1e-6) is same


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("12", "12\n", True),
        ("12  \n\n", "12", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        (" 12", "12", False),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1\n2", False),
        ("1  2", "1 2", False),
        ("", "0", False),
    ],
)
def test_outputs_are_compared_line_by_line(found: str, expected: str, same: bool) -> None:
    assert same_output(found, expected) is same


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("0.142857 ok", "0.142857142857 ok", True),
        ("0.142857 OK", "0.142857142857 ok", False),
        ("[0.3333333, 2]", "[0.333333333, 2]", True),
        ("(x=0.3333333)", "(x=0.333333333)", True),
        ("[0.3333333, 2)", "[0.333333333, 2]", False),
        ("[0.34, 2]", "[0.333333333, 2]", False),
        ("x1", "x1.0000000001", False),
        ("1" * 1_000_000 + "a", "2" * 1_000_000 + "a", False),
        ("nan", "0.5", False),
        ("10000001", "10000000", False),
        ("1_0.0", "10.0", False),
        ("0.5 0.5", "0.5", False),
    ],
)
def test_words_of_an_output_may_be_numbers(found: str, expected: str, same: bool) -> None:
    assert same_output(found, expected, 1e-6) is same


# Tests of every kind.


@pytest.mark.parametrize(
    ("program", "reward"),
    [
        ("def square(n):\n    return n * n", 1.0),
        ("square = lambda n: n * n", 1.0),
        ("class Solution:\n    def square(self, n):\n        return n * n", 1.0),
        ("from operator import mul\ndef square(n): return mul(n, n)", 1.0),
        ("def square(n):\n    print('debug' * 10**6)\n    return n * n", 1.0),
        ("if __name__ == '__main__':\n    input()\ndef square(n): return n * n", 1.0),
        ("def square(n):\n    return 9 if n == 3 else 0", 0.0),
        ("def square(n):\n    return str(n * n)", 0.0),
        ("def cube(n):\n    return n ** 3", 0.0),
        ("def square(n):\n    yield n * n", 0.0),
    ],
)
def test_a_function_is_called_on_every_test(program: str, reward: float) -> None:
    assert judged(program).reward == reward


def test_arguments_by_name_and_of_every_kind_arrive() -> None:
    args = [1.5, "é'\"\n", None, True, [1, [2]], {"a": {"b": 10**40}}]
    reference = {
        "entry": "same",
        "tests": [
            {"args": args, "expected": args},
            {"args": [], "kwargs": {"a": 1, "b": [2]}, "expected": {"a": 1, "b": [2]}},
        ],
    }
    program = "def same(*args, **kwargs):\n    return list(args) or kwargs"
    assert judged(program, reference).reward == 1.0


def test_a_call_cannot_change_the_arguments_of_the_next() -> None:
    tests = [{"args": [[1, 2]], "expected": 2}, {"args": [[1, 2]], "expected": 2}]
    program = "def last(items):\n    return items.pop()"
    assert judged(program, {"entry": "last", "tests": tests}).reward == 1.0


@pytest.mark.parametrize(
    ("program", "reward"),
    [
        ("a, b = map(int, input().split())\nprint(a * b)", 1.0),
        ("import sys\nsys.stdout.buffer.write(b'12')", 1.0),
        ("print(12)\nexit()", 1.0),
        ("print(13)", 0.0),
        ("print(12)\nraise ValueError", 0.0),
        ("print(12)\nwhile True: pass", 0.0),
        ("print(12)\nprint('x' * 10**7)", 0.0),
        ("import sys\nsys.exit(0)", 0.0),
    ],
)
def test_a_script_is_run_on_every_input(program: str, reward: float) -> None:
    assert judged(program, PRODUCT).reward == reward


@pytest.mark.parametrize(
    ("line", "reward"),
    [
        ("assert list(up(3)) == [0, 1, 2]", 1.0),
        ("assert set(up(3)) == {0, 1, 2} and sum(up(4)) == 6", 1.0),
        ("assert sorted(up(2)) == [0, 2]", 0.0),
        ("assert up(3) == [0, 1, 2]", 0.0),
    ],
)
def test_an_assertion_may_gather_what_a_program_yields(line: str, reward: float) -> None:
    program = "list = sorted = None\ndef up(n):\n    yield from range(n)"
    assert judged(program, {"asserts": [line]}).reward == reward


def test_a_block_that_only_uses_the_function_is_not_taken_for_it() -> None:
    completion = "```python\ndef up(n): return range(n)\n```\n```python\nprint(up(3))\n```"
    reference = {"asserts": ["assert list(up(2)) == [0, 1]"]}
    assert verify(CodeVerifier(), completion, reference).reward == 1.0


def test_all_tests_of_a_script_share_its_time() -> None:
    program = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    reference = {"io": [{"stdin": "", "stdout": ""}] * 9, "limits": {"time_s": 1}}
    began = time.monotonic()
    assert judged(program, reference).reward == 0.0
    assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    ("line", "reward"),
    [
        ("assert square(3) == 9", 1.0),
        ("assert 9 == square(3)", 1.0),
        ("assert abs(square(3) - 9) <= 1e-6", 1.0),
        ("assert math.isclose(square(3), 9.0)", 1.0),
        ("assert square(3) in {8, 9} and not square(0), 'message'", 1.0),
        ("assert sorted([square(2), square(1)]) == [1, 4]", 1.0),
        ("assert square(square(2)) == 16", 1.0),
        ("assert all(x > 0 for x in [square(1), square(2)])", 1.0),
        ("assert square(3) == 10", 0.0),
        ("assert square(3) is None", 0.0),
        ("assert len(square(3)) == 9", 0.0),
    ],
)
def test_an_assertion_is_looked_at_where_the_program_is_not(line: str, reward: float) -> None:
    reference = {"asserts": ["assert square(1) == 1", line]}
    assert judged("def square(n):\n    return n * n", reference).reward == reward


def test_only_the_calls_of_an_assertion_go_to_the_program() -> None:
    (test,) = assert_tests(["assert abs(square(3) - 9) <= 1e-6"])
    assert test.calls == ("square(3)",)
    assert test.condition == "abs(value_0 - 9) <= 1e-06"


@pytest.mark.parametrize(
    ("program", "reward"),
    [("print(3)", 1.0), ("print(2)", 0.0), ("print('x')", 0.0), ("print()", 0.0)],
)
def test_a_checker_decides_where_there_are_many_answers(program: str, reward: float) -> None:
    checker = "def check(stdin, out):\n    return int(out) % int(stdin) == 0"
    reference = {"io": [{"stdin": "3", "stdout": "9"}], "options": {"checker": checker}}
    assert judged(program, reference).reward == reward


# What programs try.


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "import atexit, os\natexit.register(os._exit, 0)\ndef square(n): pass",
        "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef square(n): raise ValueError",
        "class A:\n    __eq__ = lambda *a: True\n    __sub__ = __abs__ = lambda *a: A()\n"
        "    __le__ = __lt__ = lambda *a: True\ndef square(n): return A()",
        "class I(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\n"
        "def square(n): return I(0)",
        "class L(list):\n    __eq__ = lambda *a: True\ndef square(n): return L()",
        "import builtins\nbuiltins.all = builtins.zip = lambda *a: True\ndef square(n): return 0",
        "import operator, json\noperator.eq = json.dumps = json.loads = lambda *a, **k: True\n"
        "def square(n): return 0",
        "import sys\nfor m in list(sys.modules.values()):\n    for k in ('perform', 'Writer'):\n"
        "        if hasattr(m, k): setattr(m, k, None)\ndef square(n): return 0",
        "import inspect\ndef square(n):\n    out = 0\n    for f in inspect.stack():\n"
        "        for v in f.frame.f_locals.values():\n"
        "            if isinstance(v, dict): out = v.get('expected', out)\n    return out",
        "import gc\ndef square(n):\n    return next((o['expected'] for o in gc.get_objects()\n"
        "        if isinstance(o, dict) and 'expected' in o), 0)",
        "def run_tests(): return True\ncheck = run_tests\ndef square(n): return 0",
        "for name in ('conftest.py', 'sitecustomize.py', 'json.py'):\n"
        "    open(name, 'w').write('import os; os._exit(0)')\ndef square(n): return 0",
        "import os\nfor d in range(3, 40):\n    try: os.write(d, b'true\\n[9, 49]\\npassed\\n')\n"
        "    except OSError: pass\ndef square(n): return 0",
        "import os\ndef square(n):\n    while True: os.fork()",
        "def square(n):\n    return bytearray(2 * 10**9) and n * n",
        "def square(n):\n    return [square] * 10**9",
        "def square(n):\n    import ctypes; ctypes.string_at(0)",
        "import time\ndef square(n): time.sleep(60)",
        "import os\ndef square(n): os.kill(os.getppid(), 9)",
    ],
)
def test_a_wrong_program_is_not_paid_whatever_it_does(program: str) -> None:
    began = time.monotonic()
    verdict = judged(program)
    assert (verdict.status, verdict.reward) == (Status.SCORED, 0.0)
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("line", ["assert square(3) == 9", "assert not square(3) != 9"])
def test_an_object_of_the_programs_making_is_equal_to_nothing(line: str) -> None:
    program = "class A:\n    __eq__ = __ne__ = lambda *a: True\ndef square(n): return A()"
    assert judged(program, {"asserts": [line]}).reward == 0.0


def test_what_is_expected_is_not_given_to_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    sandbox = open_sandbox()

    class Listening:
        def run(self, program: Program, limits: SandboxLimits) -> Outcome:
            given.append(repr(program))
            return sandbox.run(program, limits)

    monkeypatch.setattr("verigrad.verifiers.code.shared_sandbox", lambda name: Listening())
    tests = [{"args": [3], "expected": "heron"}]
    judged("def f(n): return n", {"entry": "f", "tests": tests})
    judged("print(3)", {"io": [{"stdin": "3", "stdout": "heron"}]})
    judged("def f(n): return n", {"asserts": ["assert f(3) == 'heron'"]})
    sandbox.close()
    # The last is the assertion itself, which is looked at after the program has ended.
    assert ["heron" in program for program in given] == [False, False, False, True]


# What is wrong with the tests is nobody's wrong answer.


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (None, "expected a table with tests"),
        ({}, "asserts is None"),
        ({"entry": "square", "tests": []}, "at least one test"),
        ({"entry": "square", "tests": [{"args": [3]}]}, "expected a table of args, expected"),
        ({"entry": "square", "tests": [{"args": 3, "expected": 9}]}, "expected a list"),
        ({"tests": [{"args": [3], "expected": 9}]}, "entry is None"),
        ({"entry": "a b", "tests": [{"args": [3], "expected": 9}]}, "name of a function"),
        ({"asserts": ["assert square(3) ="]}, "does not compile"),
        ({"asserts": ["assert True"]}, "calls nothing of the program"),
        ({"asserts": ["square(3)"]}, "is not one assert statement"),
        ({"asserts": ["assert square(3) == nine"]}, "uses nine, which nothing defines"),
        ({"asserts": ["assert all(square(i) for i in [1])"]}, "uses i, which nothing defines"),
        ({**SQUARE, "asserts": ["assert square(3) ="]}, "does not compile"),
        ({"io": [{"stdin": 3, "stdout": "9"}]}, "expected text"),
        ({**SQUARE, "limit": {}}, "the reference has limit"),
        ({**SQUARE, "io": []}, "the reference has tests, io"),
        ({**SQUARE, "limits": {"time_s": 0}}, "expected a positive number"),
        ({**SQUARE, "options": {"float_tol": -1}}, "expected a number from 0"),
        ({**SQUARE, "options": {"checker": "x"}}, "with io only"),
        ({**SQUARE, "limits": {"time_s": True}}, "expected a positive number"),
        ({**SQUARE, "options": {"float_tol": True}}, "expected a number from 0"),
        ({**PRODUCT, "options": {"checker": "def check("}}, "the checker of the reference"),
        ({**PRODUCT, "options": {"checker": "def check(a): return True"}}, "check(stdin, out)"),
        ({**PRODUCT, "options": {"checker": "def chek(a, b): return True"}}, "check(stdin, out)"),
        ({**PRODUCT, "options": {"checker": "def check(a, b): return c"}}, "NameError"),
        ({**PRODUCT, "options": {"checker": "def check(a, b): pass"}}, "expected true or false"),
    ],
)
def test_a_test_that_cannot_be_used_is_a_failure(reference: Any, reason: str) -> None:
    verdict = judged("def square(n):\n    return n * n\nprint(12)", reference)
    assert (verdict.status, verdict.kind) == (Status.FAILED, FailureKind.EXCEPTION)
    assert reason in verdict.detail


def test_values_are_written_so_that_they_mean_the_same_anywhere() -> None:
    value = [1, -2.5, float("inf"), "a'\n", None, True, (1,), (), {3}, set(), {"a": b"x"}, 10**5000]
    assert eval(written(value), {}) == value  # noqa: S307


def test_a_call_is_written_with_its_arguments() -> None:
    (test,) = call_tests([{"args": [3, "x"], "kwargs": {"base": 10}, "expected": 9}])
    assert test.arguments == "3, 'x', base=10"


def test_the_verifier_names_the_sandbox_it_has_found() -> None:
    name, strength = CodeVerifier().prepare()
    assert name in ("namespaces", "bubblewrap", "sandlock", "wasi")
    assert strength is Strength.ISOLATED
