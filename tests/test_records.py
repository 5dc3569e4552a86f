"""The lines a run writes: one JSON object each, whole or set aside."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import make_completion

from verigrad.errors import StorageError
from verigrad.hashing import Purpose
from verigrad.training.disk import write_json
from verigrad.training.records import (
    JsonLines,
    digests,
    read_lines,
    rollout_records,
    set_aside_after,
    side_by_side,
)
from verigrad.types import Group, Problem, Prompt, Rollout, Status, Verdict


def record_of(
    verdict: Verdict, *, reference: Any = 19, prompt: Any = "What is 12 + 7?"
) -> dict[str, Any]:
    """The record of the only rollout of a group."""
    rollout = Rollout(
        prompt=Prompt(problem_id="sum", token_ids=(4, 5)),
        completion=make_completion((7, 0)),
        verdict=verdict,
    )
    problem = Problem(id="sum", prompt=prompt, reference=reference)
    group = Group(problem=problem, rollouts=(rollout,))
    (record,) = rollout_records([group], step=3, purpose=Purpose.TRAIN)
    return record


def through_a_file(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    lines = JsonLines(path)
    lines.write(record)
    lines.close()
    (found,) = read_lines(path)
    return found


# Lines


def test_a_line_is_in_the_file_before_the_next_is_written(tmp_path):
    lines = JsonLines(tmp_path / "lines.jsonl")
    lines.write({"step": 1})
    assert (tmp_path / "lines.jsonl").read_text() == '{"step": 1}\n'
    lines.write_all([{"step": 2}, {"step": 3}])
    assert [line["step"] for line in read_lines(tmp_path / "lines.jsonl")] == [1, 2, 3]
    lines.close()


def test_lines_are_added_to_a_file_that_has_some(tmp_path):
    for step in (1, 2):
        through_a_file(tmp_path / f"{step}.jsonl", {"step": step})
        lines = JsonLines(tmp_path / "lines.jsonl")
        lines.write({"step": step})
        lines.close()
    assert (tmp_path / "lines.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_number_that_is_not_finite_is_never_written(tmp_path):
    lines = JsonLines(tmp_path / "lines.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        lines.write({"loss/total": float("nan")})
    lines.close()
    assert (tmp_path / "lines.jsonl").read_text() == ""


def test_a_torn_last_line_is_not_read(tmp_path):
    (tmp_path / "lines.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "rew')
    assert [line["step"] for line in read_lines(tmp_path / "lines.jsonl")] == [1, 2]


# Setting aside

STEPS = '{"step": 0}\n{"step": 1}\n{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
    ("text", "step", "kept", "aside"),
    [
        (STEPS, 1, '{"step": 0}\n{"step": 1}\n{"step": 1}\n', '{"step": 2}\n{"step": 3}\n'),
        (STEPS, 3, STEPS, None),
        (STEPS, None, "", STEPS),
        (STEPS + '{"step"', 3, STEPS, '{"step"'),
        # A line that is complete but for its end was not handed over either.
        ('{"step": 1}\n{"step": 2}', 2, '{"step": 1}\n', '{"step": 2}'),
        # A line damaged later takes none of the others with it.
        ('{"step": 1}\n{"st\n{"step": 2}\n', 2, '{"step": 1}\n{"st\n{"step": 2}\n', None),
        ("", 2, "", None),
    ],
)
def test_lines_after_a_step_move_to_a_file_beside(text, step, kept, aside, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(text)
    set_aside_after(tmp_path / "metrics.jsonl", step)
    assert (tmp_path / "metrics.jsonl").read_text() == kept
    beside = tmp_path / "metrics.set-aside.jsonl"
    assert (beside.read_text() if beside.exists() else None) == aside


def test_lines_set_aside_twice_are_both_kept(tmp_path):
    for last in (2, 3):
        (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{{"step": {last}}}\n')
        set_aside_after(tmp_path / "metrics.jsonl", 1)
    assert (tmp_path / "metrics.set-aside.jsonl").read_text() == '{"step": 2}\n{"step": 3}\n'


def test_a_torn_line_set_aside_spoils_no_other(tmp_path):
    for text in ('{"step": 1}\n{"step": 2, "rew', '{"step": 1}\n{"step": 2, "reward": 0}\n'):
        (tmp_path / "metrics.jsonl").write_text(text)
        set_aside_after(tmp_path / "metrics.jsonl", 1)
    aside = (tmp_path / "metrics.set-aside.jsonl").read_text()
    assert aside == '{"step": 2, "rew\n{"step": 2, "reward": 0}\n'
    assert len(digests(tmp_path / "metrics.jsonl", 1)) == 1


def test_lines_made_again_are_compared_with_those_set_aside(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "loss": 9}\n{"step": 2, "loss": 1, "time/step": 5}\n{"step": 3, "loss": 2}\n'
    )
    set_aside_after(path, 1)
    lines = JsonLines(path, digests(path, 1))
    made = [{"step": 2, "loss": 1, "time/step": 6}, {"step": 3, "loss": 4}, {"step": 4, "loss": 0}]
    lines.write_all(made)
    assert lines.take_remade() == [(made[0], True), (made[1], False)]
    assert lines.take_remade() == []
    lines.close()


def test_a_full_disk_is_said_in_one_line(tmp_path):
    (tmp_path / "rollouts.jsonl").symlink_to("/dev/full")
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    with pytest.raises(StorageError, match=r"rollouts.jsonl cannot be written: No space left"):
        lines.write({"step": 1})
    lines.close()


def test_a_file_that_is_not_there_has_nothing_to_set_aside(tmp_path):
    set_aside_after(tmp_path / "metrics.jsonl", 1)
    assert list(tmp_path.iterdir()) == []


# Rollouts


def test_a_rollout_is_recorded_with_all_that_explains_its_reward():
    verdict = Verdict(
        status=Status.SCORED, reward=0.5, components={"number": 1.0}, detail="half right"
    )
    assert record_of(verdict) == {
        "step": 3,
        "purpose": "train",
        "slot": 0,
        "completion": 0,
        "problem": "sum",
        "prompt": "What is 12 + 7?",
        "reference": 19,
        "text": "7 0",
        "status": "scored",
        "reward": 0.5,
        "components": {"number": 1.0},
        "detail": "half right",
        "finish": "stopped",
        "policy_version": 0,
        "token_ids": (7, 0),
        "log_probs": (-1.0, -1.0),
    }


def test_a_failed_rollout_has_no_reward_and_a_reason(tmp_path):
    record = through_a_file(tmp_path / "lines", record_of(Verdict.failed("ValueError: no")))
    assert (record["status"], record["reward"]) == ("failed", None)
    assert record["detail"] == "ValueError: no"


@pytest.mark.parametrize(
    ("reference", "recorded"),
    [
        ({"answer": [1, 2.5, None, "x"]}, {"answer": [1, 2.5, None, "x"]}),
        ((1, 2), [1, 2]),
        (float("nan"), "nan"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ({1}, "{1}"),
        (Status.FAILED, "failed"),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_a_reference_of_any_kind_can_be_recorded(reference, recorded, tmp_path):
    record = record_of(Verdict.scored(1.0), reference=reference)
    assert through_a_file(tmp_path / "lines", record)["reference"] == recorded


def test_a_component_that_is_no_number_does_not_end_the_run(tmp_path):
    components = {"length": float("inf")}
    verdict = Verdict(status=Status.SCORED, reward=1.0, components=components)
    record = through_a_file(tmp_path / "lines", record_of(verdict))
    assert record["components"] == "{'length': inf}"


def test_text_of_any_kind_stays_one_line(tmp_path):
    record = record_of(Verdict.scored(1.0, "a\nb\u2028c\x85\udcffd\x00"))
    found = through_a_file(tmp_path / "lines", record)
    assert found["detail"] == "a\nb\u2028c\x85\udcffd\x00"


# Before and after


def evaluated(step: int, problem: str, text: str, purpose: str = "evaluate") -> dict[str, Any]:
    prompt = problem if problem != "chat" else [{"role": "user", "content": "chat"}]
    return {
        "step": step, "purpose": purpose, "problem": problem, "prompt": prompt, "text": text,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("after", "rows"),
    [
        (
            {"a": "1", "b": "3", "chat": "4"},
            [("b", "2", "3"), ("chat", "3", "4")],
        ),
        # Nothing has changed: then those.
        ({"a": "1", "b": "2"}, [("a", "1", "1"), ("b", "2", "2")]),
        ({}, []),
    ],
)
def test_completions_before_and_after_stand_side_by_side(after, rows, tmp_path):
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    before = {"a": "1", "b": "2", "chat": "3", "c": "5"}
    lines.write_all(evaluated(0, problem, text) for problem, text in before.items())
    lines.write(evaluated(5, "b", "another step"))
    lines.write(evaluated(9, "b", "a training completion", purpose="train"))
    lines.write_all(evaluated(9, problem, text) for problem, text in after.items())
    lines.close()
    assert side_by_side(tmp_path / "rollouts.jsonl", 9) == rows


# JSON files


def test_a_json_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "findings.json"
    write_json(path, [1, 2])
    with pytest.raises(TypeError):
        write_json(path, [object()])
    assert json.loads(path.read_text()) == [1, 2]
    write_json(path, [3])
    assert [file.name for file in tmp_path.iterdir()] == ["findings.json"]
    assert path.read_text() == "[\n  3\n]\n"
