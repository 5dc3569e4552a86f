"""Tasks: their problems, the held-out split, and the order in which a run draws."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.config import TaskConfig, VerifierConfig
from verigrad.config.schema import TASKS as NAMES
from verigrad.errors import ConfigError, TaskError
from verigrad.tasks import TASKS, ProblemTask, load_task, problem_at, split, with_verifier
from verigrad.types import Problem
from verigrad.verifiers import last_number, verify

A_TASK = """\
from verigrad.tasks import ProblemTask
from verigrad.types import Problem
from verigrad.verifiers import last_number, verify

doubles = ProblemTask(
    "doubles",
    [Problem(id=str(n), prompt=f"Double {n}.", reference=2 * n) for n in range(5)],
    last_number,
)

def make():
    return doubles

def needs_an_argument(size):
    return doubles

def breaks():
    return 1 / 0

number = 7
"""


def problem(name: str, content: str = "") -> Problem:
    return Problem(id=name, prompt=f"prompt {name}", reference=0, content=content)


def task_of(count: int) -> ProblemTask:
    return ProblemTask("test", [problem(str(index)) for index in range(count)], last_number)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_task.py"
    path.write_text(A_TASK)
    return path


def load(file: Path, name: str) -> ProblemTask:
    task = load_task(TaskConfig(name=f"{file}:{name}"))
    assert isinstance(task, ProblemTask)
    return task


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_task_is_loaded_by_its_name(name: str) -> None:
    assert load_task(TaskConfig(name=name)).name == name


def test_addition_asks_four_hundred_sums_in_words() -> None:
    task = TASKS["addition"]()
    problems = [task[index] for index in range(len(task))]
    assert len({each.id for each in problems}) == len(problems) == 400
    assert {each.prompt for each in problems} == {
        f"What is {a} + {b}? Answer with just the number."
        for a in range(1, 21)
        for b in range(1, 21)
    }
    sums = {each.id: each.reference for each in problems}
    assert (sums["addition/12+7"], sums["addition/20+20"], sums["addition/1+1"]) == (19, 40, 2)


def test_the_toy_has_nine_sums_in_the_order_of_the_table() -> None:
    task = TASKS["toy"]()
    assert [(each.id, each.reference) for each in (task[index] for index in range(len(task)))] == [
        ("toy/1+1", 2),
        ("toy/1+2", 3),
        ("toy/1+3", 4),
        ("toy/2+1", 3),
        ("toy/2+2", 4),
        ("toy/2+3", 5),
        ("toy/3+1", 4),
        ("toy/3+2", 5),
        ("toy/3+3", 6),
    ]


@pytest.mark.parametrize("name", ["addition", "toy"])
def test_the_verifier_of_a_task_rewards_its_references(name: str) -> None:
    task = TASKS[name]()
    for index in range(len(task)):
        right, wrong = str(task[index].reference), str(task[index].reference + 1)
        assert last_number(right, task[index].reference).reward == 1.0
        assert task.verifier(right, task[index].reference) == last_number(
            right, task[index].reference
        )
        assert last_number(wrong, task[index].reference).reward == 0.0


def test_addition_holds_out_about_a_fifth_and_never_trains_on_it() -> None:
    sides = split(TASKS["addition"](), 0.2)
    assert len(sides.training) + len(sides.held_out) == 400
    # Within three standard deviations of 80, for 210 pairs of which most stand for two problems.
    assert 80 - 33 <= len(sides.held_out) <= 80 + 33
    trained = {each.content_key for each in sides.training}
    assert not trained & {each.content_key for each in sides.held_out}


def test_a_sum_and_its_mirror_image_are_on_the_same_side() -> None:
    held_out = {each.id for each in split(TASKS["addition"](), 0.2).held_out}
    for a in range(1, 21):
        for b in range(1, 21):
            assert (f"addition/{a}+{b}" in held_out) == (f"addition/{b}+{a}" in held_out)


def test_the_held_out_problems_of_addition_never_change() -> None:
    """A run that is resumed, or compared with an older one, is evaluated on the same problems."""
    held_out = split(TASKS["addition"](), 0.2).held_out
    assert len(held_out) == 74
    assert [each.id.removeprefix("addition/") for each in held_out[:4]] == [
        "1+2",
        "2+1",
        "2+2",
        "2+11",
    ]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]), min_size=1, max_size=30),
    st.floats(0, 0.9),
)
def test_a_split_never_splits_a_content(contents: list[str], share: float) -> None:
    problems = [problem(str(index), content) for index, content in enumerate(contents)]
    task = ProblemTask("test", problems, last_number)
    try:
        sides = split(task, share)
    except TaskError:
        return
    assert sorted(sides.training + sides.held_out, key=lambda each: int(each.id)) == problems
    assert not {each.content for each in sides.training} & {each.content for each in sides.held_out}


@given(st.integers(0, 29), st.floats(0.05, 0.9))
def test_the_side_of_a_problem_does_not_depend_on_the_others(left_out: int, share: float) -> None:
    whole = task_of(30)
    rest = [each for index, each in enumerate(whole.problems) if index != left_out]
    try:
        fewer = split(ProblemTask("test", rest, last_number), share)
    except TaskError:
        return
    assert set(map(id, fewer.held_out)) == set(map(id, split(whole, share).held_out)) - {
        id(whole[left_out])
    }


def test_a_larger_share_only_adds_to_the_held_out() -> None:
    task = task_of(200)
    small, large = ({each.id for each in split(task, share).held_out} for share in (0.1, 0.5))
    assert small < large
    assert 5 <= len(small) <= 35
    assert 79 <= len(large) <= 121


def test_nothing_is_held_out_at_share_zero() -> None:
    sides = split(task_of(3), 0.0)
    assert (len(sides.training), sides.held_out) == (3, ())


def test_a_split_with_an_empty_side_is_refused_with_the_way_out() -> None:
    message = r"'test' has 1 problems, and with task.held_out = 0\.01 none is held out; .*0 holds"
    with pytest.raises(TaskError, match=message):
        split(task_of(1), 0.01)


@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 3))
def test_each_problem_is_drawn_once_per_epoch(size: int, seed: int, epoch: int) -> None:
    problems = task_of(size).problems
    drawn = [problem_at(problems, seed, epoch * size + place) for place in range(size)]
    assert Counter(each.id for each in drawn) == Counter(each.id for each in problems)


def test_a_draw_depends_on_seed_and_position_only() -> None:
    problems = task_of(10).problems
    forwards = [problem_at(problems, 3, position).id for position in range(40)]
    backwards = [problem_at(problems, 3, position).id for position in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert forwards[:10] != forwards[10:20], "each epoch has an order of its own"
    assert forwards != [problem_at(problems, 4, position).id for position in range(40)]


def test_the_order_of_draws_never_changes() -> None:
    problems = task_of(6).problems
    assert [problem_at(problems, 0, position).id for position in range(8)] == list("50413234")


def test_problems_may_be_drawn_as_they_stand_epoch_after_epoch() -> None:
    problems = task_of(3).problems
    drawn = [problem_at(problems, 7, position, "file").id for position in range(7)]
    assert drawn == list("0120120")


def test_an_empty_task_is_refused() -> None:
    with pytest.raises(TaskError, match="'test' holds no problem; it needs at least one"):
        task_of(0)


def test_an_id_that_names_two_problems_is_refused_with_both_positions() -> None:
    with pytest.raises(TaskError, match="problems 1 and 2 have the same id 'b'"):
        ProblemTask("test", [problem("a"), problem("b"), problem("b")], last_number)


@pytest.mark.parametrize("name", ["doubles", "make"])
def test_a_task_from_a_file_is_named_or_made_by_a_function(file: Path, name: str) -> None:
    task = load(file, name)
    assert task.name == "doubles"
    assert (len(task), task[3].prompt, task[3].reference) == (5, "Double 3.", 6)


def test_a_missing_name_in_a_task_file_lists_what_there_is(file: Path) -> None:
    with pytest.raises(TaskError, match=r"my_task.py has no 'dubles'; it defines: .*doubles, make"):
        load(file, "dubles")


def test_something_that_is_no_task_is_refused_with_what_it_lacks(file: Path) -> None:
    with pytest.raises(TaskError, match=r"number is a int without name, verifier, .*ProblemTask"):
        load(file, "number")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breaks", r"fails to make its task: ZeroDivisionError: .*my_task\.py:18\)$"),
        ("needs_an_argument", r"fails to make its task: TypeError: .*'size'"),
    ],
)
def test_a_function_that_fails_names_the_file_and_the_row(
    file: Path, name: str, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        load(file, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = missing\n", r"fails to run: NameError: .*my_task\.py:2\)$"),
        ("x = 1\n\nif x\n", r"my_task\.py fails to run: line 3: "),
        ("import no_such_module\n", r"fails to run: ModuleNotFoundError: .*my_task\.py:1\)$"),
    ],
)
def test_a_task_file_that_fails_to_run_names_the_row(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "my_task.py"
    file.write_text(text)
    with pytest.raises(TaskError, match=message) as caught:
        load(file, "task")
    assert "\n" not in str(caught.value)


def test_a_task_file_that_is_missing_or_not_python_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"absent\.py fails to run: FileNotFoundError"):
        load(tmp_path / "absent.py", "task")
    (tmp_path / "task.txt").write_text("")
    with pytest.raises(TaskError, match=r"task\.txt is not a Python file"):
        load(tmp_path / "task.txt", "task")


def test_two_task_files_of_the_same_name_do_not_meet(tmp_path: Path) -> None:
    files = [tmp_path / folder / "my_task.py" for folder in ("one", "two")]
    for size, path in enumerate(files, start=2):
        path.parent.mkdir()
        path.write_text(A_TASK.replace("range(5)", f"range({size})"))
    assert [len(load(path, "doubles")) for path in files] == [2, 3]


# A generator of problems


YIELDS = """
from verigrad import Problem

def doubles():
    for n in range(1, 21):
        yield f"Double {n}.", 2 * n

def mixed():
    yield Problem(id="one", prompt="Say 1.", reference=1)
    yield "Say 2.", 2

def breaks():
    yield "Say 1.", 1
    raise ValueError("no more")

def endless():
    while True:
        yield "Say 1.", 1
"""


@pytest.fixture
def yields(tmp_path):
    """The name of a generator function of a file."""
    (tmp_path / "yields.py").write_text(YIELDS)
    return lambda name: f"{tmp_path / 'yields.py'}:{name}"


def test_a_generator_of_pairs_is_a_task_with_the_verifier_of_the_configuration(yields):
    loaded = load_task(TaskConfig(name=yields("doubles")))
    task = with_verifier(loaded, VerifierConfig(name="number"))
    assert (task.name, len(task)) == ("doubles", 20)
    assert (task[3].prompt, task[3].reference) == ("Double 4.", 8)
    assert verify(task.verifier, "It is 8.", task[3].reference).reward == 1.0


def test_a_generator_may_yield_problems_too(yields):
    task = load_task(TaskConfig(name=yields("mixed")))
    assert [task[0].id, task[1].id] == ["one", "1"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("breaks", "fails to yield its problems"),
        ("endless", "yields more than 100,000 problems; for problems without end make a verigrad."),
    ],
)
def test_a_generator_that_cannot_be_used_is_refused(name, words, yields):
    with pytest.raises(TaskError, match=words):
        load_task(TaskConfig(name=yields(name)))


def test_a_generator_without_a_verifier_is_refused_with_what_to_set(yields):
    task = load_task(TaskConfig(name=yields("doubles")))
    with pytest.raises(ConfigError, match=r"generator of problems.* set verifier.name, to a"):
        with_verifier(task, VerifierConfig())
