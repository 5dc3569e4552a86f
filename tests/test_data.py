"""Tasks from files of rows: what is read, what is refused, and how little is in memory."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.config import VerifierConfig, config_from
from verigrad.errors import VerigradError
from verigrad.tasks import Mixture, load_task, problem_at, solution_of_problem, split
from verigrad.tasks.data import DataTask
from verigrad.tasks.data.json_text import BadJsonError, parse_json
from verigrad.tasks.mixture import Part
from verigrad.tasks.splitting import SORTED_AT_MOST, _permuted
from verigrad.tasks.verified import with_verifier
from verigrad.types import Problem


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, with the cache beside it."""
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    return tmp_path / "data"


def load(name: str, content: str | bytes | None = None, **data: Any) -> DataTask:
    """Write a file, and load it as a task."""
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    keys = {"task": name, "model": "tabular", "data": {"verifier": "exact"} | data}
    config = config_from(keys, source="run.toml", base=Path.cwd())
    task = load_task(config.task, config.data)
    assert isinstance(task, DataTask)
    return task


def rows(task: DataTask) -> list[tuple[Any, Any]]:
    return [(task[index].prompt, task[index].reference) for index in range(len(task))]


def jsonl(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def refusal(name: str, content: str | bytes | None = None, **data: Any) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(VerigradError) as caught:
        load(name, content, **data)
    text = str(caught.value)
    assert "\n" not in text
    return text


QA = {"prompt": "q", "answer": "a"}

# What is read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", '{"prompt": "q1", "answer": "007"}\n{"prompt": "q2", "answer": "NA"}'),
        ("bom.jsonl", '\ufeff{"prompt": "q1", "answer": "007"}\n{"prompt": "q2", "answer": "NA"}'),
        (
            "ends.jsonl",
            '\n{"prompt":"q1","answer":"007"}\r\n \r\n{"prompt":"q2","answer":"NA"}\r\n',
        ),
        ("lines.json", '{"prompt": "q1", "answer": "007"}\n{"prompt": "q2", "answer": "NA"}\n'),
        ("t.json", '\ufeff[{"prompt": "q1", "answer": "007"},\n{"prompt": "q2", "answer": "NA"}]'),
        ("t.csv", "prompt,answer\nq1,007\nq2,NA\n"),
        ("bom.csv", "\ufeffprompt,answer\r\nq1,007\r\n\r\nq2,NA\r\n"),
        ("t.tsv", "prompt\tanswer\nq1\t007\nq2\tNA\n"),
    ],
)
def test_the_same_rows_are_read_from_every_kind_of_text_file(name: str, content: str) -> None:
    assert rows(load(name, content)) == [("q1", "007"), ("q2", "NA")]


def test_a_record_of_csv_goes_on_over_a_line_end_in_quotes() -> None:
    text = 'prompt,answer\n"one\ntwo, ""three""\u2028\x0b",4\nlast,5\n'
    assert rows(load("t.csv", text)) == [('one\ntwo, "three"\u2028\x0b', "4"), ("last", "5")]


def test_an_element_of_an_array_may_hold_the_signs_of_its_structure() -> None:
    tricky = [QA, {"prompt": 'a ] } , [ { " \\ "\\', "answer": ["]", "\\"]}]
    tricky[0] = {"prompt": "q", "answer": ["[", "{"]}
    found = rows(load("t.json", json.dumps(tricky, indent=1)))
    assert found == [(one["prompt"], one["answer"]) for one in tricky]


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("9007199254740993", 9007199254740993),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("2.5", 2.5),
        ("1.10", "1.10"),
        ("3.14159265358979323846", "3.14159265358979323846"),
        ("1e3", "1e3"),
        ('"007"', "007"),
        ('["a", 1]', ["a", 1]),
    ],
)
def test_a_reference_keeps_the_digits_it_is_written_with(written: str, reference: Any) -> None:
    ((_, found),) = rows(load("t.jsonl", f'{{"prompt": "q", "answer": {written}}}'))
    assert (found, type(found)) == (reference, type(reference))


def test_what_is_no_prompt_answer_or_id_becomes_metadata() -> None:
    task = load("t.jsonl", jsonl(QA | {"level": None}, QA | {"prompt": "r", "level": "late"}))
    assert [task[0].metadata, task[1].metadata] == [{"level": None}, {"level": "late"}]


def test_what_is_nested_a_hundred_deep_is_read() -> None:
    deep = "[" * 99 + "1" + "]" * 99
    task = load("t.jsonl", f'{{"prompt": "q", "answer": "a", "deep": {deep}}}')
    assert task[0].metadata == {"deep": json.loads(deep)}


def test_a_file_may_have_the_longest_name_there_is() -> None:
    assert rows(load("n" * 249 + ".jsonl", ROW)) == [("q", "a")]


def test_a_column_called_answer_says_nothing_where_another_is_the_reference() -> None:
    row = {"prompt": "2+2", "answer": "Two and two.", "label": 4}
    task = load("t.jsonl", jsonl(row), answer="label", verifier="number")
    assert solution_of_problem(task, task[0]) == "4"
    mixture = Mixture([Part(1, task)])
    problem = split(mixture, 0.0).training.at(0, 0)
    assert solution_of_problem(mixture, problem) == "4"


def test_a_reward_function_of_trl_is_tried_on_the_column_of_the_reference() -> None:
    Path("mine.py").write_text("def right(completions, label, **columns):\n    return [1.0]\n")
    row = {"prompt": "2+2", "answer": "Two and two.", "label": "4"}
    task = load("t.jsonl", jsonl(row), answer="label")
    checked = with_verifier(task, VerifierConfig(name="mine.py:right"))
    assert solution_of_problem(checked, checked[0]) == "4"


# Prompts


def test_a_template_a_system_prompt_and_examples_stand_before_a_question() -> None:
    text = jsonl(
        {"question": "2+2", "solution": "Two more than 2 is 4. #### 4"},
        {"question": "2+3", "solution": "Three more than 2 is 5. #### 5"},
    )
    task = load(
        "t.jsonl",
        text,
        prompt="{question}\nAnswer:",
        answer="solution",
        answer_after="####",
        system="Be brief.",
        shots=1,
        verifier="number",
    )
    assert rows(task) == [
        (
            (
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "2+2\nAnswer:"},
                {"role": "assistant", "content": "Two more than 2 is 4. #### 4"},
                {"role": "user", "content": "2+3\nAnswer:"},
            ),
            "5",
        )
    ]


def test_an_example_may_be_answered_with_another_template() -> None:
    text = jsonl(QA | {"why": "since b"}, QA | {"prompt": "r", "why": "c"})
    prompt = load("t.jsonl", text, shots=1, shot_answer="{why}: {{{answer}}}")[0].prompt
    assert prompt[1] == {"role": "assistant", "content": "since b: {a}"}


def test_chat_messages_are_taken_as_they_are() -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert load("t.jsonl", jsonl({"prompt": turns, "answer": "a"}))[0].prompt == tuple(turns)


def test_several_columns_make_a_table_and_text_in_them_is_read_as_json() -> None:
    text = 'prompt,entry,tests\nq,f,"[{""args"": [3], ""expected"": 9}]"\n'
    given = {"answer": ["entry", "tests"], "json_columns": ["tests"], "verifier": "code"}
    assert load("t.csv", text, **given)[0].reference == {
        "entry": "f",
        "tests": [{"args": [3], "expected": 9}],
    }


# Ids


def test_without_ids_the_content_names_a_row_wherever_it_stands() -> None:
    first = load("t.jsonl", jsonl(QA, {"prompt": "r", "answer": "b"}))
    second = load("u.jsonl", jsonl({"prompt": "r", "answer": "b"}, QA, QA))
    assert first[0].id == second[1].id
    assert first[1].id == second[0].id
    assert second[2].id == f"{second[1].id}-3"


def test_a_column_may_name_the_rows() -> None:
    task = load("t.jsonl", jsonl(QA | {"n": 7}, QA | {"n": "x"}), id="n")
    assert [task[0].id, task[1].id] == ["7", "x"]


# What is refused

ROW = '{"prompt": "q", "answer": "a"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + "[]", "t.jsonl: line 2 is a list; expected an object"),
        (ROW + "\n7", "t.jsonl: line 3 is the number 7; expected an object"),
        (ROW + "null", "t.jsonl: line 2 is null; expected an object"),
        ("[" + ROW + "]", "t.jsonl: line 1, character 32: expecting ',' delimiter"),
        (ROW + '{"prompt": "q", "ans', "t.jsonl: line 2, character 17: unterminated string"),
        (ROW + '{"prompt": "q",}', "t.jsonl: line 2, character 16: expecting property name"),
        ("{'prompt': 'q'}", "t.jsonl: line 1, character 2: expecting property name enclosed in"),
        (ROW.strip() + ROW, "t.jsonl: line 1, character 31: there is more after the end"),
        ('{"prompt": "q", "answer": NaN}', "t.jsonl: line 1: holds NaN, which is no JSON; write"),
        ('{"prompt": "q", "answer": -Infinity}', "t.jsonl: line 1: holds -Infinity, which is no"),
        ('{"prompt": "q", "answer": 1e999}', 't.jsonl: line 1: holds the number "1e999", which'),
        ('{"answer": ' + "9" * 5000 + "}", "t.jsonl: line 1: holds a number that has more digits"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', 't.jsonl: line 1: has the name "c" twice; keep one'),
        ("[" * 10**5, "t.jsonl: line 1: is nested too deeply to be read"),
        ('{"a": ' + "[" * 400 + "]" * 400 + "}", "t.jsonl: line 1: is nested too deeply"),
        (ROW.encode() + b'{"prompt": "\xc3\xa4\xff"}', "t.jsonl: line 2, character 14 is not UTF-"),
        (ROW + '{"prompt": "\0"}', "t.jsonl: line 2 holds a NUL character"),
        (ROW.encode("utf-16"), "t.jsonl: is UTF-16 text; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00", "t.jsonl: is compressed with gzip; unpack it"),
        ("", "t.jsonl: holds no rows; a task needs at least one"),
        ("\n \n", "t.jsonl: holds no rows"),
        ('{"prompt": "q", "solution": "a"}', 't.jsonl: line 1, column "answer": is missing; the '),
        (ROW + '{"prompt": "q"}', 't.jsonl: line 2, column "answer": is missing; the columns ther'),
        (ROW + '{"prompt": "q", "answer": null}', 't.jsonl: line 2, column "answer": is null; fil'),
        (ROW + '{"prompt": " ", "answer": "a"}', 't.jsonl: line 2, column "prompt": is empty; fil'),
        (ROW + '{"prompt": "q", "answer": ""}', 't.jsonl: line 2, column "answer": is empty; fill'),
        (ROW + '{"prompt": {}, "answer": 1}', 't.jsonl: line 2, column "prompt": is a table; data'),
        ('{"prompt": "\\ud800", "answer": 1}', 't.jsonl: line 1, column "prompt": holds half of a'),
        ('{"prompt": "q", "answer": ["\\udc00"]}', 't.jsonl: line 1, column "answer": holds ha'),
        ('{"prompt": "q", "answer": {"\\udc00": 1}}', 't.jsonl: line 1, column "answer": holds h'),
        (
            '{"prompt": [{"role": "user", "content": "\\ud800"}], "answer": "a"}',
            't.jsonl: line 1, column "prompt": holds half of a character',
        ),
        (ROW + '{"prompt": "q", "answer": ["a"]}', 't.jsonl: line 2, column "answer": is a list,'),
        ('{"prompt": "q", "answer": true}', 't.jsonl: line 1, column "answer": data.verifier cann'),
        ('{"prompt": "q", "answer": [0.1000000000000000055]}', "of which a float keeps only 0.1;"),
        ('{"prompt": [], "answer": 1}', 't.jsonl: line 1, column "prompt": is a list whose last m'),
        ('{"prompt": ["x"], "answer": 1}', 't.jsonl: line 1, column "prompt": holds "x"; expected'),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_with_file_line_and_column(content: Any, message: str) -> None:
    assert message in refusal("t.jsonl", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"prompt": "q", "answer": "a"}\n', "t.json: after line 1, the array is not closed"),
        (
            '[{"prompt": "q", "answer": "a"}]\n]',
            "t.json: after line 1, something follows the array",
        ),
        (f"[{ROW},\n]", "t.json: line 3: there is a comma too many"),
        (f"[{ROW}{ROW}]", "t.json: line 2, character 1: there is more after the end of the value"),
        (f"[{ROW}, 7]", "t.json: line 2 is the number 7; expected an object"),
        ("[]", "t.json: holds no rows"),
        (
            '{"data": []}',
            't.json: line 1, column "prompt": is missing; the columns there are "data"',
        ),
    ],
)
def test_a_bad_array_is_refused_with_file_and_line(content: str, message: str) -> None:
    assert message in refusal("t.json", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "prompt,answer\nq,a\nq\n",
            "t.csv: line 3 has 1 values, but the first line names 2 columns",
        ),
        (
            "prompt,answer\nq,a,b\n",
            "t.csv: line 2 has 3 values, but the first line names 2 columns",
        ),
        ('prompt,answer\n"q,a\n', "t.csv: line 2 is no row of values (unexpected end of data)"),
        ('prompt,answer\n"q"x,a\n', "t.csv: line 2 is no row of values (',' expected after '\"')"),
        ("prompt,answer,answer\n", 't.csv: line 1 names the column "answer" twice'),
        ("prompt;answer\nq;a\n", 'column "prompt": is missing; did you mean "prompt;answer"?'),
        ("prompt,answer\nq,\n", 't.csv: line 2, column "answer": is empty'),
        ("prompt,answer\n", "t.csv: holds no rows"),
        ("", "t.csv: holds no rows"),
        (b"prompt,answer\nq,caf\xe9\n", "t.csv: line 2, character 6 is not UTF-8 text (byte 0xe9)"),
    ],
)
def test_a_bad_table_is_refused_with_file_and_line(content: Any, message: str) -> None:
    assert message in refusal("t.csv", content)


def test_two_rows_with_one_id_are_refused_with_both_lines() -> None:
    text = jsonl(QA | {"n": "1"}, QA | {"n": "2"}) + "\n" + jsonl(QA | {"n": 1})
    assert refusal("t.jsonl", text, id="n").startswith(
        't.jsonl: line 4, column "n": the id "1" stands in line 1 already'
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"verifier": "number"}, 'line 1, column "answer": data.verifier cannot use this referenc'),
        (
            {"answer_after": "####"},
            'line 1, column "answer": has nothing after "####", where data.',
        ),
        ({"json_columns": ["answer"]}, 'line 1, column "answer": is "a", which is no JSON (expect'),
        ({"prompt": "{promt}"}, 'column "promt": is missing; did you mean "prompt"?'),
        ({"prompt": "{prompt!r}"}, "between { and } stands the name of a column, and nothing else"),
        ({"prompt": "{"}, 'data.prompt is "{": Single'),
        ({"prompt": "{{x}}"}, "which names no column, as {question} does"),
        ({"shots": 1}, "t.jsonl: holds 1 rows, of which data.shots takes 1; a task needs at least"),
        ({"answer": []}, "data.answer is an empty list; name the column of the answer"),
    ],
)
def test_a_key_that_does_not_fit_the_rows_is_refused(data: dict[str, Any], message: str) -> None:
    assert message in refusal("t.jsonl", jsonl(QA), **data)


def test_data_without_a_verifier_is_refused_with_those_that_exist() -> None:
    Path("t.jsonl").write_text(ROW)
    config = config_from({"task": "t.jsonl", "model": "tabular"}, source="r", base=Path.cwd())
    with pytest.raises(VerigradError, match=r"data\.verifier is missing.*exact, number, math"):
        load_task(config.task, config.data)


@pytest.mark.parametrize("data", [{"system": "t"}, {"shots": 1}])
def test_a_system_message_in_a_row_beside_data_system_is_refused(data: dict[str, Any]) -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    content = jsonl(QA, QA, {"prompt": turns, "answer": "a"})
    assert "line 3: has a system message of its own" in refusal("t.jsonl", content, **data)


def test_a_verifier_of_ones_own_is_named_by_its_file() -> None:
    Path("mine.py").write_text("def half(completion, reference):\n    return 0.5\nnumber = 7\n")
    assert load("t.jsonl", ROW, verifier="mine.py:half").verifier("x", "a") == 0.5
    assert "mine.py:number is a int; a verifier is a fu" in refusal(
        "t.jsonl", ROW, verifier="mine.py:number"
    )


# The index


def test_an_index_is_thirty_two_bytes_a_row_and_made_once(here: Path) -> None:
    text = jsonl(*({"prompt": f"q{n}", "answer": n} for n in range(50)))
    load("t.jsonl", text)
    (index,) = (here.parent / "cache").rglob("index")
    assert index.stat().st_size == 50 * 32
    made = index.stat().st_mtime_ns
    load("t.jsonl")
    assert [path.stat().st_mtime_ns for path in (here.parent / "cache").rglob("index")] == [made]


@pytest.mark.parametrize("left", [None, 0, 31])
def test_an_index_of_which_not_all_is_left_is_made_again(here: Path, left: int | None) -> None:
    load("t.jsonl", ROW)
    (index,) = (here.parent / "cache").rglob("index")
    if left is None:
        index.unlink()
    else:
        os.truncate(index, left)
    assert rows(load("t.jsonl")) == [("q", "a")]


def test_a_file_that_has_changed_is_read_again() -> None:
    assert rows(load("t.jsonl", ROW)) == [("q", "a")]
    assert rows(load("t.jsonl", ROW.replace('"a"', '"bb"'))) == [("q", "bb")]


def test_a_file_that_changes_while_it_is_in_use_is_noticed() -> None:
    task = load("t.jsonl", ROW)
    Path("t.jsonl").write_text(ROW.replace('"q"', '"z"'))
    with pytest.raises(VerigradError, match=r"t\.jsonl: line 1 has changed since this run"):
        task[0]


def test_a_file_is_loaded_split_and_drawn_from_without_being_in_memory() -> None:
    count = 20_000
    with Path("t.jsonl").open("w") as file:
        for n in range(count):
            file.write(json.dumps({"prompt": f"What is {n}? {'x' * 600}", "answer": n}) + "\n")
    load("small.jsonl", ROW)
    tracemalloc.start()
    parts = split(load("t.jsonl", verifier="exact"), 0.2)
    drawn = [problem_at(parts.training, 0, position).id for position in range(50)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(drawn)) == 50
    assert Path("t.jsonl").stat().st_size > 630 * count
    # The index and one order of 16 000 places, and nothing of the text.
    assert peak < 200 * count


@given(st.integers(1, 300), st.integers(0, 5))
def test_an_order_that_takes_no_memory_holds_each_place_once(size: int, seed: int) -> None:
    assert sorted(_permuted(size, place, seed) for place in range(size)) == list(range(size))


def test_a_large_task_is_drawn_from_without_writing_its_order_down() -> None:
    size = SORTED_AT_MOST + 1

    class Numbers(list[Problem]):
        def __len__(self) -> int:
            return size

        def __getitem__(self, index: Any) -> Any:
            return index

    drawn = [problem_at(Numbers(), 1, position) for position in range(1000)]
    assert len(set(drawn)) == 1000
    assert drawn != sorted(drawn)
    assert drawn[:3] == [problem_at(Numbers(), 1, position) for position in range(3)]


# The held-out split


def test_the_sides_are_those_of_a_task_that_holds_its_problems() -> None:
    task = load("t.jsonl", jsonl(*({"prompt": f"q {n}", "answer": n} for n in range(200))))
    from verigrad.tasks import ProblemTask

    held = ProblemTask("t", [task[n] for n in range(len(task))], task.verifier)
    mine, theirs = split(task, 0.3), split(held, 0.3)
    assert [p.id for p in mine.held_out] == [p.id for p in theirs.held_out]
    assert [p.id for p in mine.training] == [p.id for p in theirs.training]
    assert 30 < len(mine.held_out) < 90


def test_prompts_that_differ_in_case_and_space_only_are_on_one_side() -> None:
    spelled = ["What is {}?", "what  is {}?\n", "WHAT IS {}?"]
    texts = [{"prompt": t.format(n), "answer": n} for n in range(60) for t in spelled]
    held = {p.reference for p in split(load("t.jsonl", jsonl(*texts)), 0.5).held_out}
    trained = {p.reference for p in split(load("t.jsonl"), 0.5).training}
    assert (held & trained, held | trained) == (set(), set(range(60)))


def test_rows_that_repeat_a_prompt_are_counted() -> None:
    task = load("t.jsonl", jsonl(QA, QA, {"prompt": "r", "answer": "b"}))
    assert task.notes[1].startswith("t.jsonl: 1 rows repeat the prompt of another")


# Strict JSON


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
))  # fmt: skip
def test_what_python_writes_as_json_is_read_as_it_was(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


def test_a_place_in_a_value_of_several_lines_is_its_line_and_character() -> None:
    with pytest.raises(BadJsonError) as caught:
        parse_json('{"a": 1,\n "b": x}')
    assert (caught.value.line, caught.value.character) == (1, 7)
