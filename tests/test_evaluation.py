"""Accuracy on held-out problems: what counts, how the rest is split, and the interval."""

from collections.abc import Sequence

import pytest
from builders import make_completion, make_problem

from verigrad.evaluation import describe, pass_rates, summarise
from verigrad.types import Group, Prompt, Rollout, Verdict

STOPPED, CUT = (1, 0), (1, 1)
OUTCOMES = {
    "right": (STOPPED, Verdict.scored(1.0)),
    "more than right": (STOPPED, Verdict.scored(1.5)),
    "almost right": (STOPPED, Verdict.scored(0.99)),
    "wrong": (STOPPED, Verdict.scored(0.0)),
    "unparsable": (STOPPED, Verdict.unparsable("no number")),
    "failed": (STOPPED, Verdict.failed("boom")),
    "cut but right": (CUT, Verdict.scored(1.0)),
    "cut and wrong": (CUT, Verdict.scored(0.0)),
    "cut and unparsable": (CUT, Verdict.unparsable("no number")),
}


def judged(*problems: Sequence[str]) -> list[Group]:
    """One group per problem, one rollout per named outcome."""
    return [
        Group(
            problem=make_problem(row),
            rollouts=tuple(
                Rollout(
                    prompt=Prompt(problem_id=f"p{row}", token_ids=(row,)),
                    completion=make_completion(OUTCOMES[name][0]),
                    verdict=OUTCOMES[name][1],
                )
                for name in outcomes
            ),
        )
        for row, outcomes in enumerate(problems)
    ]


def splits(*problems: Sequence[str]) -> tuple[float, int, int, int, int]:
    """The accuracy, and how many completions were truncated, unparsable, wrong and failed."""
    found = summarise(judged(*problems))
    assert found is not None
    return found.accuracy, found.truncated, found.unparsable, found.wrong, found.failed


def test_a_completion_solves_its_problem_with_full_marks_only():
    assert splits(["right"], ["more than right"], ["almost right"], ["wrong"]) == (0.5, 0, 0, 2, 0)


def test_what_is_not_solved_is_truncated_unparsable_or_wrong():
    outcomes = ["right", "wrong", "unparsable", "cut and wrong", "cut and unparsable"]
    assert splits(*[[name] for name in outcomes]) == (0.2, 2, 1, 1, 0)


def test_a_completion_that_was_cut_after_its_right_answer_solves_its_problem():
    assert splits(["cut but right"]) == (1.0, 0, 0, 0, 0)


def test_failed_verifications_are_counted_and_left_out():
    found = summarise(judged(["right"], ["failed"], ["wrong"], ["failed"]))
    assert found is not None
    assert (found.accuracy, found.problems, found.completions, found.failed) == (0.5, 2, 2, 2)
    assert (found.truncated, found.unparsable, found.wrong) == (0, 0, 1)


def test_without_a_scored_completion_there_is_no_accuracy():
    assert summarise(judged(["failed"], ["failed", "failed"])) is None
    assert summarise([]) is None


def test_each_problem_counts_the_same_however_many_completions_failed():
    # 1 of 1 and 1 of 3: the mean of the shares, not 2 of 4.
    found = summarise(judged(["right", "failed", "failed"], ["right", "wrong", "wrong"]))
    assert found is not None
    assert found.accuracy == pytest.approx(2 / 3)
    assert (found.problems, found.completions) == (2, 4)


def test_one_completion_per_problem_has_wilsons_interval():
    found = summarise(judged(["right"], ["wrong"], ["wrong"], ["wrong"]))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.04559, 0.69936), abs=1e-5)
    perfect = summarise(judged(*[["right"]] * 9))
    assert perfect is not None
    assert (perfect.low, perfect.high) == pytest.approx((0.70085, 1.0), abs=1e-5)


def test_several_completions_per_problem_do_not_count_as_several_problems():
    found = summarise(judged(["right"] * 50, ["wrong"] * 50))
    assert found is not None
    # Two problems that disagree leave everything open; Wilson's interval of 50 in 100 would not.
    assert (found.accuracy, found.low, found.high) == (0.5, 0.0, 1.0)


def test_a_person_reads_one_line():
    found = summarise(judged(["right"], ["wrong"], ["cut and wrong"], ["wrong"]))
    assert found is not None
    assert describe(found) == (
        "accuracy 0.25 (95 % interval 0.05 to 0.70) on 4 problems; not solved: 1 truncated, 2 wrong"
    )
    found = summarise(judged(["right"], ["failed"]))
    assert found is not None
    assert describe(found) == (
        "accuracy 1.00 (95 % interval 0.21 to 1.00) on 1 problems; 1 verifications failed and are "
        "left out"
    )


@pytest.mark.parametrize(
    ("outcomes", "interval"),
    [
        (["wrong", "wrong"], (0.0, 0.4899)),
        (["right", "right"], (0.5101, 1.0)),
        (["right", "wrong"], (0.15, 0.85)),
    ],
)
def test_problems_that_do_not_differ_leave_an_interval_of_their_number(outcomes, interval):
    found = summarise(judged(*[outcomes] * 4))
    assert found is not None
    assert (found.low, found.high) == pytest.approx(interval, abs=1e-4)


def test_pass_at_k_is_the_chance_that_one_of_k_solves_its_problem():
    # Of 4 with 1 right: two of them hold it with 1/2. Of 5 with none: never.
    rates = pass_rates(judged(["right", "wrong", "wrong", "wrong"], ["wrong"] * 5, ["failed"]))
    assert rates == pytest.approx({2: 0.25, 4: 0.5})


def test_there_is_no_pass_at_k_for_more_completions_than_are_scored():
    assert pass_rates(judged(["right", "wrong", "failed"], ["right"] * 8)) == {2: 1.0}
    assert pass_rates(judged(["right"], ["failed"])) == {}
    assert pass_rates(judged(["failed", "failed"])) == {}
