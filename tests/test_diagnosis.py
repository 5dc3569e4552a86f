"""What a person is told when a run does not learn, from literal metrics."""

import pytest

from verigrad.diagnosis import Cause, Finding, Metrics, findings

HEALTHY: Metrics = {
    "step": 0,
    "groups/total": 4,
    "groups/with_signal": 3,
    "groups/all_right": 1,
    "groups/all_wrong": 0,
    "completions/total": 32,
    "completions/truncated": 2,
    "verdicts/failed": 0,
    "updates/skipped": 0,
}


def steps(number: int, **changes: int) -> list[Metrics]:
    """So many steps of a run that learns, with some metrics replaced (groups__total=4)."""
    changed = {key.replace("__", "/"): value for key, value in changes.items()}
    return [{**HEALTHY, **changed, "step": step} for step in range(1, number + 1)]


def one(recent: list[Metrics]) -> Finding:
    (finding,) = findings(recent)
    return finding


def test_nothing_is_found_in_a_run_that_learns():
    assert findings(steps(10)) == []


def test_no_signal_because_the_task_is_solved():
    finding = one(steps(10, groups__with_signal=0, groups__all_right=4))
    assert (finding.cause, finding.step, finding.number) == (Cause.NO_SIGNAL, 10, 0.0)
    assert finding.message == (
        "0% of the groups of the last 10 steps have a signal; completions of a problem that all "
        "get the same reward teach nothing, and 100% of them are all right: the task is solved, or "
        "make it harder"
    )


def test_no_signal_because_the_task_is_too_hard():
    finding = one(steps(10, groups__with_signal=0, groups__all_right=1, groups__all_wrong=3))
    assert finding.message.endswith(
        "75% of them are all wrong: use easier problems or more completions"
    )


@pytest.mark.parametrize(("with_signal", "found"), [(4, 1), (5, 0)])
def test_few_groups_with_signal_are_a_finding_up_to_a_tenth(with_signal, found):
    # 40 groups in ten steps.
    recent = steps(9, groups__with_signal=0) + steps(1, groups__with_signal=with_signal)
    assert len(findings(recent)) == found


@pytest.mark.parametrize(("truncated", "found"), [(15, []), (16, [Cause.TRUNCATION])])
def test_truncation_is_a_finding_from_half_of_the_completions(truncated, found):
    recent = steps(10, completions__truncated=truncated)
    assert [finding.cause for finding in findings(recent)] == found


def test_truncation_says_what_to_change():
    finding = one(steps(10, completions__truncated=24))
    assert finding == Finding(
        cause=Cause.TRUNCATION,
        step=10,
        number=0.75,
        message="75% of the completions of the last 10 steps reached the length limit; a cut "
        "answer is seldom right, so raise sampling.max_new_tokens or ask for short answers",
    )


def test_a_single_failed_verification_is_found_at_once():
    finding = one(steps(2) + steps(1, verdicts__failed=1))
    assert finding == Finding(
        cause=Cause.FAILURES,
        step=1,
        number=1 / 96,
        message="1 verifications (1.0%) of the last 3 steps failed and were left out; "
        "rollouts.jsonl holds each reason under detail",
    )


def test_signal_and_truncation_wait_for_ten_steps():
    recent = steps(9, groups__with_signal=0, completions__truncated=32)
    assert findings(recent) == []
    recent = steps(10, groups__with_signal=0, completions__truncated=32)
    assert [finding.cause for finding in findings(recent)] == [Cause.NO_SIGNAL, Cause.TRUNCATION]


def test_a_step_without_a_number_takes_no_part():
    recent = [*steps(9), {**dict.fromkeys(HEALTHY), "step": 10}]
    assert findings(recent) == []


def test_an_update_that_was_skipped_is_a_finding_at_once():
    finding = one([*steps(2), *steps(1, updates__skipped=1)])
    assert (finding.cause, finding.number) == (Cause.BAD_NUMBERS, 1 / 3)
    assert finding.message == (
        "in 1 of the last 3 steps an update was skipped because its loss or gradient was not "
        "finite; verigrad replay RUN 1 says which number it was"
    )
