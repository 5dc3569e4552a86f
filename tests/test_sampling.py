"""Random numbers by counter, the tokens drawn with them, and the engine that draws."""

from collections import Counter
from math import inf

import pytest
import torch
from builders import STOP, make_problem, make_table
from golden import tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.core.sampling import as_int64, draw_tokens, uniform
from verigrad.engines import Draws, LocalEngine
from verigrad.hashing import Purpose, stable_hash
from verigrad.policies.tabular import TabularPolicy
from verigrad.types import Completion, Finish, Sampling

KEYS = st.integers(-(2**63), 2**63 - 1)
LARGEST = 1 - 2.0**-52
"""The largest number that ``uniform`` returns."""


def hashed_keys(count: int) -> Tensor:
    return torch.tensor([as_int64(stable_hash("test", index)) for index in range(count)])


def generate(
    policy: TabularPolicy,
    *,
    completions: int = 6,
    temperature: float = 1.0,
    step: int = 0,
    rows_at_once: int = 256,
) -> list[tuple[Completion, ...]]:
    """Completions of every problem of the table."""
    prompts = [policy.encode(make_problem(row)) for row in range(len(policy.problem_ids))]
    sampling = Sampling(temperature=temperature, max_new_tokens=4, stop_token_ids=(STOP,))
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=step)
    return LocalEngine(policy, rows_at_once).generate(prompts, completions, sampling, draws)


def test_a_stable_hash_never_changes() -> None:
    assert stable_hash(0, "train", 3) == 17987451265356449081
    assert stable_hash("held-out", "addition/7+12") == 4910149001188477750


def test_a_key_is_the_hash_of_seed_purpose_step_slot_and_completion() -> None:
    draws = Draws(seed=5, purpose=Purpose.TRAIN, step=7)
    assert draws.key(2, 3) == stable_hash("5", "train", "7", "2", "3")


def test_any_other_seed_purpose_step_slot_or_completion_has_another_key() -> None:
    keys = [
        Draws(seed=seed, purpose=purpose, step=step).key(slot, completion)
        for seed in range(3)
        for purpose in Purpose
        for step in range(12)
        for slot in range(12)
        for completion in range(3)
    ]
    assert len(set(keys)) == len(keys)


def test_uniform_numbers_are_the_published_splitmix64_of_the_key() -> None:
    """The first outputs of the generator for the seed 1234567, as its users publish them."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    actual = [uniform(torch.tensor([1234567]), position).item() for position in range(4)]
    assert actual == [(bits >> 12) * 2.0**-52 for bits in published]


@given(KEYS, st.integers(0, 100_000))
def test_a_uniform_number_is_at_least_zero_and_below_one(key: int, position: int) -> None:
    number = float(uniform(torch.tensor([key]), position))
    assert 0 <= number <= LARGEST
    assert (number * 2**52).is_integer()


@given(st.lists(KEYS, min_size=2, max_size=5), st.integers(0, 50))
def test_a_uniform_number_does_not_depend_on_the_other_rows(keys: list[int], position: int) -> None:
    together = uniform(torch.tensor(keys), position).tolist()
    assert together == [uniform(torch.tensor([key]), position).item() for key in keys]


def test_uniform_numbers_of_keys_and_positions_are_spread_evenly_and_unrelated() -> None:
    keys = hashed_keys(20_000)
    first, second = uniform(keys, 0), uniform(keys, 1)
    counts = torch.histc(first.float(), bins=10, min=0, max=1)
    # The 0.9999 quantile of chi-square with 9 degrees of freedom is 33.7.
    assert ((counts - 2000).square() / 2000).sum() < 33.7
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 4 / 20_000**0.5


def test_tokens_are_drawn_as_often_as_the_softmax_says() -> None:
    logits = tensor([0.3, -0.5, 1.1, -inf])
    drawn = draw_tokens(
        logits.unsqueeze(0), torch.zeros(20_000, dtype=torch.int64), uniform(hashed_keys(20_000), 3)
    )
    expected = logits.softmax(dim=-1)[:3] * 20_000
    counts = torch.bincount(drawn, minlength=4)
    # The 0.9999 quantile of chi-square with 2 degrees of freedom is 18.4.
    assert ((counts[:3] - expected).square() / expected).sum() < 18.4
    assert counts[3] == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("number", [0.0, 0.5, LARGEST])
@given(st.lists(st.sampled_from([-inf, -200.0, -1.0, 0.0, 3.0]), min_size=2, max_size=8))
def test_a_token_of_probability_zero_is_never_drawn(
    dtype: torch.dtype, number: float, logits: list[float]
) -> None:
    row = torch.tensor([[*logits, 0.0, -inf]], dtype=dtype)
    drawn = draw_tokens(row, torch.tensor([0]), tensor([number])).item()
    assert row.softmax(dim=-1)[0, int(drawn)] > 0


def test_the_ends_of_the_interval_draw_the_first_and_the_last_possible_token() -> None:
    logits = tensor([[-inf, 0.0, 1.0, -inf]])
    assert draw_tokens(logits, torch.tensor([0, 0]), tensor([0.0, LARGEST])).tolist() == [1, 2]


@given(
    st.lists(st.lists(st.floats(-5, 5), min_size=7, max_size=7), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, LARGEST)), min_size=1, max_size=5),
)
def test_a_token_is_where_the_cumulative_distribution_of_its_own_row_passes_the_number(
    rows: list[list[float]], drawn: list[tuple[int, float]]
) -> None:
    logits = tensor(rows)
    states = torch.tensor([state % len(rows) for state, _ in drawn])
    numbers = tensor([number for _, number in drawn])
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1)
    expected = [
        sum(float(value) <= float(number * cumulative[state, -1]) for value in cumulative[state])
        for state, number in zip(states.tolist(), numbers, strict=True)
    ]
    assert draw_tokens(logits, states, numbers).tolist() == expected


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampling_log_probs_are_the_policys_own(temperature: float) -> None:
    policy = make_table()
    for row, completions in enumerate(generate(policy, temperature=temperature)):
        log_probs = (policy.table[row] / temperature).log_softmax(dim=-1)
        for completion in completions:
            expected = [log_probs[t, token].item() for t, token in enumerate(completion.token_ids)]
            assert completion.log_probs == pytest.approx(expected, abs=1e-12)


def test_a_completion_ends_at_its_first_stop_token_or_at_the_limit() -> None:
    completions = [each for some in generate(make_table(), completions=30) for each in some]
    assert {each.finish for each in completions} == set(Finish)
    for each in completions:
        assert STOP not in each.token_ids[:-1]
        if each.finish is Finish.STOPPED:
            assert each.token_ids[-1] == STOP
        else:
            assert len(each.token_ids) == 4
            assert each.token_ids[-1] != STOP


def test_greedy_takes_the_likeliest_token_with_its_untempered_log_prob() -> None:
    policy = make_table()
    completions = generate(policy, completions=2, temperature=0)
    for row, (first, second) in enumerate(completions):
        assert first == second
        log_probs, likeliest = policy.table[row].log_softmax(dim=-1).max(dim=-1)
        length = len(first.token_ids)
        assert list(first.token_ids) == likeliest[:length].tolist()
        assert first.log_probs == pytest.approx(log_probs[:length].tolist(), abs=1e-12)


def test_a_row_that_finished_leaves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_table()
    live = []
    start = policy.continuation

    def watched(*arguments: object) -> object:
        rows = start(*arguments)  # type: ignore[arg-type]
        logits = rows.logits

        def counted() -> tuple[Tensor, Tensor]:
            live.append(len(logits()[1]))
            return logits()

        rows.logits = counted  # type: ignore[method-assign]
        return rows

    monkeypatch.setattr(policy, "continuation", watched)
    lengths = [len(each.token_ids) for some in generate(policy) for each in some]
    assert live == [sum(length > t for length in lengths) for t in range(max(lengths))]
    assert live[-1] < live[0]


@pytest.mark.parametrize("rows", [1, 6, 7, 12])
def test_how_many_rows_are_generated_side_by_side_changes_no_token(rows: int) -> None:
    assert generate(make_table(), rows_at_once=rows) == generate(make_table())


def test_a_completion_does_not_depend_on_the_completions_beside_it() -> None:
    few, many = generate(make_table(), completions=3), generate(make_table(), completions=9)
    assert few == [some[:3] for some in many]


def test_the_completions_of_a_prompt_differ_and_so_do_those_of_the_next_step() -> None:
    first, again = (generate(make_table(), step=step) for step in (0, 1))
    assert all(len({each.token_ids for each in some}) > 1 for some in first)
    assert first != again
    assert first == generate(make_table(), step=0)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_first_tokens_are_drawn_as_often_as_the_policy_says(temperature: float) -> None:
    policy = make_table(problems=1, answers=3)
    (drawn,) = generate(policy, completions=5000, temperature=temperature)
    counts = Counter(each.token_ids[0] for each in drawn)
    expected = ((policy.table[0, 0] / temperature).softmax(dim=-1) * 5000).tolist()
    distance = sum((counts[token] - mean) ** 2 / mean for token, mean in enumerate(expected))
    # The 0.9999 quantile of chi-square with 2 degrees of freedom is 18.4.
    assert distance < 18.4


def test_completions_carry_the_version_that_the_engine_was_told() -> None:
    policy = make_table()
    engine = LocalEngine(policy)
    engine.sync(7)
    sampling = Sampling(max_new_tokens=1, stop_token_ids=(STOP,))
    draws = Draws(seed=0, purpose=Purpose.EVALUATE, step=0)
    ((completion,),) = engine.generate([policy.encode(make_problem())], 1, sampling, draws)
    assert completion.policy_version == 7
    assert completion.text == str(completion.token_ids[0])
