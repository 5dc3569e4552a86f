"""What is found out about a verifier before any compute is spent."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from verigrad.checking import Checkup, check_up, describe, read_examples, try_out
from verigrad.checking.shortcuts import shortcuts_of
from verigrad.config import VerifierConfig
from verigrad.errors import TaskError, UserError
from verigrad.tasks import (
    TASKS,
    Mixture,
    Part,
    ProblemTask,
    Split,
    first_problems,
    solution_of_problem,
    split,
)
from verigrad.types import Problem, Verdict
from verigrad.verifiers import Choice, Exact, Format, Json, Math, Number, last_number, weighted
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.opening import Opened
from verigrad.verifiers.runner import InProcess

SUMS = [Problem(id=f"{n}", prompt=f"What is {n} + 50?", reference=n + 50) for n in range(30)]
COUNTS = [Problem(id=f"{n}", prompt="How many are there?", reference=n) for n in range(9)]


def checked(verifier: Any, problems: list[Problem] = SUMS, **options: Any) -> Checkup:
    task = ProblemTask("test", problems, verifier)
    return check_up(task, problems, InProcess(verifier), **options)


def kinds(checkup: Checkup) -> set[str]:
    """The shortcuts that were paid, without the problem they were paid on."""
    return {tried.what.partition(", on problem")[0] for tried in checkup.paid}


def choices() -> list[Problem]:
    return [Problem(id=f"{n}", prompt="Which one?", reference="ABCD"[n % 4]) for n in range(8)]


# Verifiers that are sound


@pytest.mark.parametrize("name", TASKS)
def test_nothing_is_wrong_with_a_built_in_task(name: str) -> None:
    task = TASKS[name]()
    # Each function runs in a sandbox, four times in all.
    most = 16 if name == "functions" else 400
    problems = first_problems(split(task, 0.0).training, 0)[:most]
    checkup = check_up(task, problems, InProcess(task.verifier))
    assert (checkup.references, checkup.unwritten) == (len(problems), 0)
    assert checkup.faults == 0


@pytest.mark.parametrize(
    ("verifier", "problems"),
    [
        (Exact(), SUMS),
        (Number(), COUNTS),
        (Math(), COUNTS),
        (Choice(), choices()),
        (Json(), [Problem(id=f"{n}", prompt="p", reference={"n": n}) for n in range(5)]),
    ],
)
def test_nothing_is_wrong_with_the_built_in_verifiers(
    verifier: Any, problems: list[Problem]
) -> None:
    checkup = checked(verifier, problems)
    assert checkup.references == len(problems)
    assert describe(checkup).endswith("nothing is wrong")


# Verifiers that are not


def contains(completion: str, reference: Any) -> bool:
    return str(reference) in completion


def starts(completion: str, reference: Any) -> bool:
    return completion.startswith(str(reference))


def lenient(completion: str, reference: Any) -> bool:
    return bool(re.search(r"\d|", completion))


@pytest.mark.parametrize(
    ("verifier", "paid"),
    [
        (contains, {"the answer, then a contradiction", "every choice at once"}),
        (starts, {"the answer, then a contradiction", "every choice at once"}),
        (lambda c, r: "boxed" in c or c == str(r), {"a template without an answer"}),
        (lambda c, r: c in ("0", str(r)), {"the constant '0'"}),
        (lambda c, r: "What is" in c or c == str(r), {"the prompt echoed"}),
        (lambda c, r: c in ("", str(r)), {"empty text"}),
        (lambda c, r: 1.0 if c == str(r) else 0.1 * (c == ""), {"empty text"}),
    ],
)
def test_a_shortcut_that_is_paid_is_found(verifier: Any, paid: set[str]) -> None:
    assert kinds(checked(verifier)) == paid


def test_a_sum_that_is_echoed_has_the_right_value_for_a_verifier_that_computes() -> None:
    assert kinds(checked(Number())) == {"the prompt echoed"}


def test_a_verifier_that_pays_for_anything_is_found_by_every_shortcut() -> None:
    checkup = checked(lenient)
    names = {each.name for each in shortcuts_of(ProblemTask("t", SUMS, lenient), SUMS)}
    assert kinds(checkup) == names
    assert {"the prompt echoed", "the constant '1'", "every choice at once"} < names


def test_a_shortcut_may_get_as_much_as_is_allowed() -> None:
    shaped = weighted({"right": (1.0, Exact()), "layout": (0.2, Format(template="think_answer"))})
    assert kinds(checked(shaped)) == {"a template without an answer"}
    assert kinds(checked(shaped, allowed=0.2)) == set()
    assert kinds(checked(shaped, allowed=0.1)) == {"a template without an answer"}


def test_a_constant_that_is_the_answer_of_some_problems_is_no_shortcut() -> None:
    problems = [
        Problem(id=f"{n}", prompt="Is it?", reference="yes" if n % 3 else "no") for n in range(20)
    ]
    assert checked(Exact(), problems).paid == ()


def test_a_reference_without_full_marks_is_shown_with_its_verdict() -> None:
    def boxed(completion: str, reference: Any) -> Verdict:
        if "boxed" not in completion:
            return Verdict.unparsable("no box")
        return Verdict.scored(1.0)

    checkup = checked(boxed, SUMS[:3])
    assert [tried.what for tried in checkup.refused] == [f"problem '{n}'" for n in range(3)]
    assert "  problem '0': '50' gets 0 (no box)" in describe(checkup).splitlines()


def test_a_verifier_that_fails_on_a_shortcut_is_shown_once_for_each_kind() -> None:
    checkup = checked(lambda c, r: float(c.split()[0] == str(r)))
    assert [tried.what for tried in checkup.broken] == ["empty text, on problem '0'"]
    assert "IndexError" in describe(checkup)


def test_a_verdict_that_changes_the_second_time_is_found() -> None:
    numbers = itertools.count()

    def moody(completion: str, reference: Any) -> bool:
        next(numbers)
        return completion == str(reference) and next(numbers) < 40

    checkup = checked(moody, SUMS[:10])
    assert checkup.refused == ()
    assert len(checkup.changed) == 10
    assert checkup.faults == 10


def test_many_faults_of_a_kind_are_counted_and_some_are_shown() -> None:
    lines = describe(checked(lambda c, r: 0.5)).splitlines()
    assert lines[0] == "references  0 of 30 get full marks"
    assert lines[11] == "  and 20 more"


# A reference as a completion


@pytest.mark.parametrize(
    ("verifier", "reference", "solution"),
    [
        (last_number, 19, "19"),
        (Exact(), ["yes", "y"], "yes"),
        (Choice(), {"label": "b", "choices": {"A": "one", "B": "two"}}, "B"),
        (Json(), {"a": [1]}, '{"a": [1]}'),
        (Json(schema=True, reference_is="unused"), None, None),
        (CodeVerifier(), {"entry": "f", "tests": []}, None),
        (last_number, None, None),
        (Format(pattern=".*"), 3, None),
    ],
)
def test_a_reference_is_written_as_its_verifier_reads_it(
    verifier: Any, reference: Any, solution: str | None
) -> None:
    problem = Problem(id="a", prompt="p", reference=reference)
    assert solution_of_problem(ProblemTask("t", [problem], verifier), problem) == solution


def test_a_sum_with_a_layout_gets_its_answer_in_the_layout() -> None:
    shaped = weighted({"layout": (0.2, Format(template="think_answer")), "right": (1.0, Math())})
    checkup = checked(shaped, SUMS[:4])
    assert (checkup.references, checkup.refused) == (4, ())


def test_a_task_may_write_its_solutions_itself() -> None:
    task = ProblemTask("t", SUMS, contains, lambda problem: f"It is {problem.reference}.")
    assert solution_of_problem(task, SUMS[0]) == "It is 50."


def test_what_cannot_be_written_is_counted_and_not_tried() -> None:
    problems = [*SUMS[:2], Problem(id="none", prompt="p", reference=None)]
    assert describe(checked(Number(), problems)).splitlines()[0] == (
        "references  2 of 2 get full marks; 1 cannot be written as one"
    )


# Labelled examples


def test_false_accepts_and_false_refusals_are_shown_with_their_rows(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text(
        '{"completion": "It is 19.", "reference": 19, "reward": 1}\n'
        "\n"
        '{"completion": "19 or 20", "reference": 20, "reward": 0}\n'
        '{"completion": "nineteen", "reference": 19, "reward": true}\n'
        '{"completion": "4", "reference": "four", "reward": 0}\n'
    )
    checkup = checked(last_number, examples=read_examples(file))
    lines = describe(checkup).splitlines()
    start = lines.index("examples    4 rows: 1 false accepts, 1 false refusals, 1 failed")
    assert lines[start + 1].startswith("  row 3, labelled 0: '19 or 20' gets 1 (the last number")
    assert lines[start + 2].startswith("  row 4, labelled 1: 'nineteen' gets 0 (there is no number")
    assert lines[start + 3].startswith("  row 5, labelled 0: '4' gets failed (exception: ")
    assert lines[-1] == "3 things wrong"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", ":2: is not JSON: "),
        ("[1]", ":2: holds list; expected the keys completion, reference, reward"),
        ('{"completion": "a"}', ":2: holds completion; expected the keys completion, "),
        ('{"completion": 3, "reference": 3, "reward": 1}', ":2: completion is 3; expected text"),
        ('{"completion": "3", "reference": 3, "reward": "1"}', ":2: reward is '1'; expected a "),
        ('{"completion": "3", "reference": 3, "reward": NaN}', ":2: is not JSON: holds NaN, whi"),
        ('{"completion": "3", "reference": 3, "reward": 1, "reward": 0}', ":2: is not JSON: has t"),
        ("[" * 2000, ":2: is not JSON: is nested too deeply"),
        ('{"completion": "caf\xe9"}', ": line 2, character 20 is not UTF-8 text (byte 0xe9)"),
    ],
)
def test_a_bad_example_names_its_line(line: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    text = f'{{"completion": "3", "reference": 3, "reward": 1}}\n{line}\n'
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=re.escape(f"{file}{complaint}")):
        read_examples(file)


def test_a_line_of_examples_ends_where_a_line_of_a_file_does(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    line = '{"completion": "one\u2028two\x85", "reference": 0.5, "reward": 1}'
    file.write_text(f"\ufeff{line}\r\n", encoding="utf-8")
    (example,) = read_examples(file)
    assert (example.row, example.completion) == (1, "one\u2028two\x85")
    assert (example.reference, type(example.reference)) == (0.5, float)


def test_a_file_without_examples_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="there is no example in it"):
        read_examples(tmp_path / "empty.jsonl")
    with pytest.raises(UserError, match=r"missing\.jsonl: cannot be read"):
        read_examples(tmp_path / "missing.jsonl")


# Before the first step


def tried_out(verifier: Any, problems: list[Problem] = SUMS, *, check: Any = "on") -> list[str]:
    task = ProblemTask("test", problems, verifier)
    opened = Opened(runner=InProcess(verifier), reasons={})
    sides = Split(training=problems, held_out=())
    return try_out(task, sides, 0, opened, VerifierConfig(check=check))


def test_a_sound_verifier_gets_no_warning() -> None:
    assert tried_out(last_number) == []


def test_a_reference_that_is_judged_wrong_is_refused_with_its_problem() -> None:
    with pytest.raises(TaskError) as refusal:
        tried_out(lambda c, r: 0.5)
    assert str(refusal.value).startswith(
        "task 'test': the verifier gives 0.5 to the reference of problem '0', written as '50' "
    )


def test_a_shortcut_that_is_paid_is_a_warning() -> None:
    (warning,) = tried_out(lambda c, r: c in ("", str(r)))
    assert warning == "the verifier pays 1 for empty text, on problem '0': ''"


def test_a_failure_is_a_warning_and_no_refusal() -> None:
    warnings = tried_out(lambda c, r: 1 / 0, SUMS[:1])
    assert warnings[0].startswith(
        "the verifier fails on the reference of problem '0', written as '50': exception: ZeroDiv"
    )


def test_a_part_that_is_drawn_once_in_201_draws_is_tried_as_well() -> None:
    rare = ProblemTask("rare", SUMS, lambda c, r: 0.0)
    mixed = Mixture((Part(200, ProblemTask("often", SUMS, last_number)), Part(1, rare)))
    opened = Opened(runner=InProcess(mixed.verifier), reasons={})
    with pytest.raises(TaskError) as refusal:
        try_out(mixed, split(mixed, 0.2), 0, opened, VerifierConfig())
    assert re.match(
        r"task 'rare': the verifier gives 0 to the reference of problem 'rare/\d+', written as ",
        str(refusal.value),
    )


def test_nothing_is_tried_where_that_is_turned_off() -> None:
    assert tried_out(lambda c, r: 0.5, check="off") == []
