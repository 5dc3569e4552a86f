"""The built-in tasks: problems without end, a split that never overlaps, verifiers that hold."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest
from running import ON_PATH

from verigrad.config import TaskConfig
from verigrad.errors import TaskError
from verigrad.tasks import TASKS, FunctionTask, load_task, problem_at, split
from verigrad.tasks.countdown import check_countdown
from verigrad.tasks.dice import Dice
from verigrad.tasks.sorting import check_order
from verigrad.tasks.splitting import is_held_out
from verigrad.training.showing import answer_of
from verigrad.types import Problem
from verigrad.verifiers import last_number, verify

ENDLESS = ["arithmetic", "countdown", "sorting", "strings", "json", "functions"]
LEVELS = [
    (name, level) for name in ENDLESS for level in (1, TASKS[name].hardest) if name != "functions"
]
THREE_AND_EIGHT = {"numbers": [3, 8], "target": 24}


def drawn(name: str, count: int, difficulty: int = 1, seed: int = 0) -> list[Problem]:
    """The first problems that a run would train on."""
    training = split(TASKS[name](difficulty), 0.2, 8).training
    return [problem_at(training, seed, position) for position in range(count)]


@pytest.mark.parametrize(("name", "difficulty"), LEVELS)
def test_every_reference_is_right_and_nothing_else_is_paid(name, difficulty):
    task = TASKS[name](difficulty)
    problems = drawn(name, 20, difficulty)
    for problem, other in zip(problems, [*problems[1:], problems[0]], strict=True):
        answer, wrong = answer_of(task, problem), answer_of(task, other)
        assert verify(task.verifier, answer, problem.reference).reward == 1.0, problem
        for text in ("", " ", problem.prompt, "I do not know.", f"{problem.prompt}\n"):
            assert verify(task.verifier, text, problem.reference).reward == 0.0, (problem, text)
        if other.reference != problem.reference:
            assert verify(task.verifier, wrong, problem.reference).reward == 0.0, (problem, wrong)


def test_the_solution_of_a_function_passes_its_tests_and_its_argument_does_not():
    task = TASKS["functions"](2)
    for problem in drawn("functions", 3, difficulty=2):
        assert verify(task.verifier, answer_of(task, problem), problem.reference).reward == 1.0
        same = "def solve(items):\n    return items"
        assert verify(task.verifier, same, problem.reference).reward == 0.0
        assert verify(task.verifier, problem.prompt, problem.reference).reward == 0.0


@pytest.mark.parametrize("name", ENDLESS)
def test_problems_depend_on_seed_and_index_alone_and_never_end(name):
    task = TASKS[name]()
    assert [task.problem(3, index) for index in (9, 2)] == [task.problem(3, 9), task.problem(3, 2)]
    far = [task.problem(seed, 2**40 + index) for seed in (0, 1) for index in range(20)]
    assert len({problem.prompt for problem in far}) > 10


def test_problems_are_the_same_in_every_process():
    code = (
        "from verigrad.tasks import TASKS; "
        f"print([TASKS[name]().problem(5, 7).id for name in {ENDLESS}])"
    )
    ids = str([TASKS[name]().problem(5, 7).id for name in ENDLESS])
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**ON_PATH, "PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == ids


def test_the_problems_of_a_seed_never_change():
    assert [TASKS[name]().problem(0, 0).id for name in ENDLESS[:4]] == [
        "arithmetic/6-1",
        "countdown/2-20=40",
        "sorting/down/17-27-26",
        "strings/kari/0",
    ]


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_task_never_trains_on_what_it_holds_out(name):
    sides = split(TASKS[name](), 0.2, 30)
    held_out = {problem.content_key for problem in sides.held_out}
    assert len(held_out) == len(sides.held_out) > 0
    for position in range(100):
        problem = problem_at(sides.training, 0, position)
        assert not is_held_out(problem, 0.2)
        assert problem.content_key not in held_out


def test_an_id_names_one_prompt():
    prompts: dict[str, str] = {}
    for name in ENDLESS:
        for problem in drawn(name, 100):
            assert prompts.setdefault(problem.id, problem.prompt) == problem.prompt


def test_what_is_held_out_does_not_depend_on_how_much_of_it_is_asked_for():
    task = TASKS["sorting"]()
    few, many = (split(task, 0.2, count).held_out for count in (5, 20))
    assert many[:5] == few


def test_the_index_of_an_endless_task_is_the_position_where_that_is_not_held_out():
    def numbered(seed: int, index: int) -> Problem:
        return Problem(id=str(index), prompt=f"Say {index}.", reference=index)

    task = FunctionTask("numbers", numbered, last_number)
    training = split(task, 0.5, 4).training
    found = [problem_at(training, 0, position).reference for position in range(200)]
    kept = [index for index in range(200) if not is_held_out(numbered(0, index), 0.5)]
    assert 60 < len(kept) < 140
    assert [index for index, reference in enumerate(found) if index == reference] == kept
    assert max(found) < 1200


def test_a_task_of_which_everything_is_held_out_is_refused():
    task = FunctionTask("one", lambda *_: Problem(id="a", prompt="a", reference=1), last_number)
    held = split(task, 0.899999, 4)
    assert [problem.id for problem in held.held_out] == ["a"]
    with pytest.raises(TaskError, match=r"task 'one' made 1000 .* all of them are held"):
        problem_at(held.training, 0, 0)
    with pytest.raises(TaskError, match="none of them is held out; raise"):
        split(task, 0.001, 4)


@pytest.mark.parametrize(
    ("name", "difficulty", "message"),
    [
        ("sorting", 11, "task.difficulty is 11, but that of sorting goes from 1 to 10"),
        ("toy", 2, "task.difficulty is 2, but that of toy goes from 1 to 1"),
        ("reasoning_gym:chain_sum", 2, "reasoning_gym:chain_sum has none; only built-in"),
    ],
)
def test_a_difficulty_that_a_task_has_not_is_refused(name, difficulty, message):
    with pytest.raises(TaskError, match=message):
        load_task(TaskConfig(name=name, difficulty=difficulty))


def test_addition_is_as_hard_as_it_is_said_to_be():
    assert [len(TASKS["addition"](level)) for level in (1, 2, 3)] == [100, 400, 900]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("3 * 8", 1.0),
        ("8\N{MULTIPLICATION SIGN}3 = 24", 1.0),
        ("(8) * (3)", 1.0),
        ("First 8 + 3 = 11, no. 3 * 8", 1.0),
        ("<think>8 + 3</think>\nAnswer: 3*8.", 1.0),
        ("24", 0.0),
        ("3 * 8 * 1", 0.0),
        ("8 + 8 + 8", 0.0),
        ("8 ** 3", 0.0),
        ("8 // 3", 0.0),
        ("(3 * 8", 0.0),
        ("3 * 8 / 0", 0.0),
        ("24 = 24 + 0", 0.0),
        ("1" * 100_000 + " + 1", 0.0),
        ("(" * 5000 + "3 * 8" + ")" * 5000, 0.0),
        ("<think>3 * 8", 0.0),
    ],
)
def test_countdown_pays_the_last_expression_that_uses_each_number_once(text, reward):
    assert verify(check_countdown, text, THREE_AND_EIGHT).reward == reward


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("1, 5, 9", 1.0),
        ("The numbers 9, 1, 5 in order:\n[1, 5, 9]", 1.0),
        ("1 5 9\nDone.", 1.0),
        ("1, 5", 0.0),
        ("1, 5, 9, 9", 0.0),
        ("9, 5, 1", 0.0),
        ("none", 0.0),
    ],
)
def test_sorting_pays_the_numbers_of_the_last_line_that_has_any(text, reward):
    assert verify(check_order, text, [1, 5, 9]).reward == reward


def test_dice_throw_every_side_about_as_often():
    dice = Dice("test")
    throws = [dice.number(1, 6) for _ in range(6000)]
    assert set(throws) == {1, 2, 3, 4, 5, 6}
    # Five standard deviations around a thousand.
    assert all(855 < throws.count(side) < 1145 for side in range(1, 7))
    assert sorted(dice.sample("abcd", 4)) == ["a", "b", "c", "d"]


def test_a_class_with_a_method_for_problems_is_an_endless_task(tmp_path):
    @dataclass
    class Doubles:
        name: str = "doubles"
        verifier = staticmethod(last_number)

        def problem(self, seed: int, index: int) -> Problem:
            return Problem(id=str(index), prompt=f"Double {index}.", reference=2 * index)

    assert len(split(Doubles(), 0.2, 10).held_out) == 10
    assert json.dumps(problem_at(split(Doubles(), 0.0).training, 0, 21).reference) == "42"
