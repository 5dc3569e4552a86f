"""One step: judging, the loss, and the update, on a table small enough to know exactly."""

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from pathlib import Path
from types import ModuleType

import pytest
import torch
from builders import (
    STOP,
    Rows,
    assert_same_gradient,
    batch_of,
    gradient_of,
    make_algorithm,
    make_completion,
    make_group,
    make_table,
)
from steps import judge
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.engines import Draws, LocalEngine
from verigrad.hashing import Purpose
from verigrad.policies.tabular import TabularContinuation, TabularPolicy
from verigrad.tasks import TASKS
from verigrad.training.bad_updates import BadUpdate
from verigrad.training.judging import Judge
from verigrad.training.step import Update, accumulate, loss_of, update
from verigrad.types import Completion, Group, Problem, Prompt, Sampling, Status
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.runner import InProcess

EXERCISE = Path(__file__).parents[1] / "exercises" / "15-grpo-rlvr" / "solution" / "grpo_rlvr.py"

SIGNAL = make_group(0, [((1, 0), 1.0), ((2, 3, 0), 0.0), ((2, 2, 4, 3), 0.25)])


def adamw(policy: TabularPolicy) -> torch.optim.AdamW:
    """With decay and momentum, both of which move parameters whose gradient is zero."""
    return torch.optim.AdamW(policy.module.parameters(), lr=0.1, weight_decay=0.1)


def update_once(
    policy: TabularPolicy,
    groups: Sequence[Group],
    algorithm: Algorithm,
    optimizer: torch.optim.Optimizer,
    *,
    clip_norm: float = inf,
    token_budget: int = 100,
) -> Update | BadUpdate | None:
    return update(
        policy,
        batch_of(groups, algorithm, dtype=policy.table.dtype),
        algorithm,
        optimizer,
        temperature=1.0,
        clip_norm=clip_norm,
        token_budget=token_budget,
    )


def snapshot(policy: TabularPolicy, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Every number that an update could move."""
    moments = [
        value.clone()
        for entry in optimizer.state.values()
        for value in entry.values()
        if isinstance(value, Tensor)
    ]
    return [policy.table.detach().clone(), *moments]


def assert_untouched(before: list[Tensor], after: list[Tensor]) -> None:
    assert len(before) == len(after)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_the_gradient_of_a_token_is_its_weight_times_advantage_times_the_score() -> None:
    policy = make_table(problems=1)
    algorithm = make_algorithm("dr_grpo", aggregation="token_mean")
    batch = batch_of([make_group(0, [((1, 0), 1.0), ((2, 3, 4, 1), 0.0)])], algorithm)
    actual = gradient_of(policy, batch, algorithm)[0]
    probabilities = (policy.table.detach()[0] / 0.7).softmax(dim=-1)

    def score(position: int, token: int) -> Tensor:
        return (torch.eye(5, dtype=torch.float64)[token] - probabilities[position]) / 0.7

    expected = [
        -(0.5 * score(0, 1) - 0.5 * score(0, 2)) / 6,
        -(0.5 * score(1, STOP) - 0.5 * score(1, 3)) / 6,
        0.5 * score(2, 4) / 6,
        0.5 * score(3, 1) / 6,
    ]
    assert_same_gradient(actual, torch.stack(expected))


def test_the_stop_token_trains_and_the_padding_behind_it_does_not() -> None:
    """Position 2 holds the stop token of the longer row and padding of the other, the same id."""
    policy = make_table(problems=1)
    algorithm = make_algorithm("dr_grpo")
    batch = batch_of([make_group(0, [((1, 0), 0.0), ((2, 3, 0), 1.0)])], algorithm)
    by_position = gradient_of(policy, batch, algorithm)[0]
    assert by_position[2, STOP] < 0, "descending must make stopping there likelier"
    assert not by_position[3].any()


def test_every_token_of_a_truncated_completion_trains() -> None:
    policy = make_table(problems=1)
    algorithm = make_algorithm("dr_grpo")
    batch = batch_of([make_group(0, [((0,), 0.0), ((1, 2, 3, 4), 1.0)])], algorithm)
    by_position = gradient_of(policy, batch, algorithm)[0]
    assert all(by_position[t, token] < 0 for t, token in enumerate([1, 2, 3, 4]))


@pytest.mark.parametrize("preset", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.95])
def test_equal_rewards_move_no_parameter_and_no_optimiser_state(
    preset: str, dtype: torch.dtype, reward: float
) -> None:
    policy, algorithm = make_table(dtype=dtype), make_algorithm(preset)
    optimizer = adamw(policy)
    assert isinstance(update_once(policy, [SIGNAL], algorithm, optimizer), Update)
    before = snapshot(policy, optimizer)
    for size in range(1, 9):
        group = make_group(0, [((token % 5, 0), reward) for token in range(size)])
        assert not batch_of([group], algorithm, dtype=dtype).advantages.any()
        assert update_once(policy, [group], algorithm, optimizer) is None
    assert_untouched(before, snapshot(policy, optimizer))


def test_a_problem_without_signal_gets_no_pass_and_no_gradient() -> None:
    policy, algorithm = make_table(), make_algorithm()
    equal = make_group(1, [((1, 0), 0.1), ((2, 3, 0), 0.1), ((4, 0), 0.1)])
    done = accumulate(
        policy, batch_of([equal, SIGNAL], algorithm), algorithm, temperature=1.0, token_budget=100
    )
    assert done is not None
    assert (done.passes, done.prompt_tokens) == (1, 1)
    assert policy.table.grad is not None
    assert not policy.table.grad[1].any()


def test_a_failed_verdict_gives_the_update_of_a_step_without_that_rollout() -> None:
    def weights_after(rows: Rows) -> Tensor:
        policy, algorithm = make_table(), make_algorithm()
        assert isinstance(
            update_once(policy, [make_group(0, rows)], algorithm, adamw(policy)), Update
        )
        return policy.table.detach()

    rows: Rows = [((1, 0), 1.0), ((2, 3, 0), 0.0), ((1, 1, 0), 0.0)]
    with_failure = [*rows[:1], ((4, 4, 4, 4), None), *rows[1:]]
    assert torch.equal(weights_after(with_failure), weights_after(rows))


@pytest.mark.parametrize("bad", [inf, nan])
def test_a_loss_that_is_not_finite_moves_no_parameter_and_no_moment(bad: float) -> None:
    policy = make_table()
    optimizer = adamw(policy)
    update_once(policy, [SIGNAL], make_algorithm(), optimizer)
    before = snapshot(policy, optimizer)
    # Its gradient is finite.
    broken = replace(make_algorithm(), loss=lambda new, old, advantages, mask: new + bad)
    skipped = update_once(policy, [SIGNAL], broken, optimizer, clip_norm=1.0)
    assert isinstance(skipped, BadUpdate)
    assert not isfinite(skipped.loss)
    assert isfinite(skipped.gradient_norm)
    assert_untouched(before, snapshot(policy, optimizer))
    assert policy.table.grad is None


def test_a_gradient_that_is_not_finite_is_skipped_though_the_loss_is() -> None:
    """The root of zero has value 0 and gradient infinity."""
    policy = make_table()
    optimizer = adamw(policy)
    broken = replace(
        make_algorithm(), loss=lambda new, old, advantages, mask: (new - new.detach()).abs().sqrt()
    )
    before = snapshot(policy, optimizer)
    skipped = update_once(policy, [SIGNAL], broken, optimizer, clip_norm=1.0)
    assert isinstance(skipped, BadUpdate)
    assert (skipped.loss, str(skipped.gradient_norm)) == (0.0, "nan")
    assert skipped.cause == (
        "the loss is finite, but the gradient of table overflows; lower optimizer.learning_rate"
    )
    assert_untouched(before, snapshot(policy, optimizer))
    assert policy.table.grad is None


def test_rewards_too_large_for_the_policys_numbers_make_no_update() -> None:
    policy, algorithm = make_table(dtype=torch.float32), make_algorithm("dr_grpo")
    optimizer = adamw(policy)
    before = snapshot(policy, optimizer)
    group = make_group(0, [((1, 0), 1e300), ((2, 0), -1e300)])
    skipped = update_once(policy, [group], algorithm, optimizer)
    assert isinstance(skipped, BadUpdate)
    assert skipped.cause == (
        "the batch's advantages are not finite; have the verifier return smaller rewards"
    )
    assert_untouched(before, snapshot(policy, optimizer))


def test_an_update_after_bad_numbers_is_the_one_without_them() -> None:
    policy, untroubled = make_table(), make_table()
    optimizer = adamw(policy)
    broken = replace(make_algorithm(), loss=lambda new, old, advantages, mask: new * nan)
    assert isinstance(update_once(policy, [SIGNAL], broken, optimizer), BadUpdate)
    update_once(policy, [SIGNAL], make_algorithm(), optimizer)
    update_once(untroubled, [SIGNAL], make_algorithm(), adamw(untroubled))
    assert torch.equal(policy.table, untroubled.table)


def test_the_gradient_is_clipped_to_its_norm_and_reported_before_that() -> None:
    policy, algorithm = make_table(), make_algorithm()
    start = policy.table.detach().clone()
    batch = batch_of([SIGNAL], algorithm)
    assert accumulate(policy, batch, algorithm, temperature=1.0, token_budget=100) is not None
    assert policy.table.grad is not None
    norm = policy.table.grad.norm().item()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    done = update_once(policy, [SIGNAL], algorithm, optimizer, clip_norm=norm / 4)
    assert done is not None
    assert done.gradient_norm == pytest.approx(norm, rel=1e-12)
    assert (policy.table - start).norm().item() == pytest.approx(norm / 4, rel=1e-4)


def test_an_infinite_clip_norm_leaves_the_gradient_as_it_is() -> None:
    policy, algorithm = make_table(), make_algorithm()
    start = policy.table.detach().clone()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    done = update_once(policy, [SIGNAL], algorithm, optimizer, clip_norm=inf)
    assert done is not None
    assert (policy.table - start).norm().item() == pytest.approx(done.gradient_norm, rel=1e-12)


def test_an_update_raises_the_probability_of_what_was_rewarded() -> None:
    policy, algorithm = make_table(problems=1), make_algorithm()
    group = make_group(0, [((1, 0), 1.0), ((2, 0), 0.0)])
    before = policy.table[0, 0].softmax(dim=-1).tolist()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=0.1)
    update_once(policy, [group], algorithm, optimizer)
    after = policy.table[0, 0].softmax(dim=-1).tolist()
    assert after[1] > before[1]
    assert after[2] < before[2]


def test_an_update_counts_its_passes_and_the_prompts_in_them() -> None:
    policy, algorithm = make_table(), make_algorithm()
    optimizer = adamw(policy)
    whole = update_once(policy, [SIGNAL], algorithm, optimizer)
    cut = update_once(policy, [SIGNAL], algorithm, optimizer, token_budget=1)
    assert whole is not None
    assert cut is not None
    assert (whole.passes, whole.prompt_tokens, whole.output.tokens) == (1, 1, 9)
    assert (cut.passes, cut.prompt_tokens, cut.output.tokens) == (3, 3, 9)


def test_the_diagnostics_are_sums_over_the_tokens_that_train() -> None:
    policy, algorithm = make_table(problems=1, positions=2), make_algorithm()
    batch = batch_of([make_group(0, [((1, 0), 1.0), ((2,), 0.0)])], algorithm)
    log_probs = policy.table.detach()[0].log_softmax(dim=-1)
    old = torch.tensor([[log_probs[0, 1] - 1, log_probs[1, 0]], [log_probs[0, 2] - 1, 0.0]])
    output = loss_of(policy, replace(batch, old_log_probs=old.double()), algorithm, 1.0)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
    # Before the update, against the -1 that the engine saw.
    gaps = [log_probs[0, 1], log_probs[1, 0] + 1, log_probs[0, 2]]
    assert output.tokens == 3
    # The ratio is e at the first token of each row; only the better row is pushed up there.
    assert output.clipped == 1
    assert output.entropy == pytest.approx((2 * entropy[0] + entropy[1]).item(), abs=1e-12)
    assert output.mismatch == pytest.approx(sum(abs(gap.item()) for gap in gaps), abs=1e-12)
    assert output.largest_mismatch == pytest.approx(max(abs(gap.item()) for gap in gaps))


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_mean_the_same_policy_after_every_update(
    dtype: torch.dtype, within: float, temperature: float
) -> None:
    policy, algorithm = make_table(dtype=dtype), make_algorithm()
    optimizer, engine = adamw(policy), LocalEngine(policy)
    prompts = [Prompt(problem_id=f"p{row}", token_ids=(row,)) for row in range(3)]
    problems = [Problem(id=f"p{row}", prompt="", reference=row) for row in range(3)]
    sampling = Sampling(temperature=temperature, max_new_tokens=4, stop_token_ids=(STOP,))
    updates = 0
    for step in range(5):
        draws = Draws(seed=0, purpose=Purpose.TRAIN, step=step)
        drawn = engine.generate(prompts, 8, sampling, draws)
        runner = InProcess(lambda text, reference: "3" in text)
        groups = judge(runner, problems, prompts, drawn)
        batch = batch_of(groups, algorithm, dtype=dtype)
        output = loss_of(policy, batch, algorithm, temperature)
        assert output.largest_mismatch <= within
        done = update(
            policy,
            batch,
            algorithm,
            optimizer,
            temperature=temperature,
            clip_norm=1.0,
            token_budget=20,
        )
        updates += done is not None
    assert updates == 5


def test_judging_groups_the_verdicts_by_problem_and_keeps_the_order() -> None:
    def verifier(completion: str, reference: int) -> float:
        if completion == "3":
            raise ValueError("no threes")
        return float(completion == str(reference))

    problems = [Problem(id=f"p{row}", prompt="", reference=row + 1) for row in range(2)]
    prompts = [Prompt(problem_id=problem.id, token_ids=(0,)) for problem in problems]
    drawn = [tuple(make_completion((token,)) for token in row) for row in [(1, 2, 3), (3, 2, 2)]]
    first, second = judge(InProcess(verifier), problems, prompts, drawn)
    assert (first.problem, second.problem) == tuple(problems)
    assert [rollout.verdict.reward for rollout in first.rollouts] == [1.0, 0.0, None]
    assert [rollout.verdict.reward for rollout in second.rollouts] == [None, 1.0, 1.0]
    assert [rollout.completion for rollout in second.rollouts] == list(drawn[1])
    failed = second.rollouts[0].verdict
    assert failed.status is Status.FAILED
    assert "no threes" in failed.detail


def leaves_a_note(completion: str, folder: str) -> float:
    """A verifier that says in a file which completion it has seen."""
    (Path(folder) / completion.replace(" ", "-")).touch()
    return 1.0


def test_a_completion_is_verified_while_others_are_still_being_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each further token, what has ended waits to be seen by a worker."""
    policy = make_table(problems=1)
    problem = Problem(id="p0", prompt="", reference=str(tmp_path))
    ended: list[str] = []
    advance = TabularContinuation.advance

    def after_notes(rows: TabularContinuation, kept: Tensor, token_ids: Tensor) -> None:
        deadline = time.monotonic() + 60
        while not all((tmp_path / text.replace(" ", "-")).exists() for text in ended):
            assert time.monotonic() < deadline, "nothing is verified before everything has ended"
            time.sleep(0.01)
        advance(rows, kept, token_ids)

    monkeypatch.setattr(TabularContinuation, "advance", after_notes)
    sampling = Sampling(max_new_tokens=4, stop_token_ids=(STOP,))
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    prompts = [policy.encode(problem)]
    with VerifierPool(leaves_a_note, workers=1) as pool:
        judging = Judge(pool, [problem])

        def take(slot: int, number: int, completion: Completion) -> None:
            judging.take(slot, number, completion)
            ended.append(completion.text)

        sampled = LocalEngine(policy).generate(prompts, 12, sampling, draws, take)
        (group,) = judging.groups(prompts, sampled)
    lengths = [len(completion.token_ids) for completion in sampled[0]]
    assert min(lengths) < max(lengths)
    assert [len(text.split()) for text in ended] == sorted(lengths)
    assert tuple(rollout.completion for rollout in group.rollouts) == sampled[0]
    assert group.rewards == (1.0,) * 12


@pytest.fixture(scope="module")
def exercise() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exercise_solution", EXERCISE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("row", range(9))
def test_the_gradient_of_a_group_is_the_exercises(exercise: ModuleType, row: int) -> None:
    torch.manual_seed(row)
    theirs = exercise.GRPOPolicy().double()
    answers, old = exercise.sample_group(theirs, row, 8)
    # At least one right and one wrong answer, so that there is a gradient to compare.
    answers[0], answers[1] = sum(exercise.PROMPTS[row]), 9
    log_probs = torch.log_softmax(theirs(row), dim=-1)[answers]
    old = log_probs.detach()
    rewards = [exercise.verifier(exercise.PROMPTS[row], answer) for answer in answers.tolist()]
    advantages = exercise.group_advantages(torch.tensor(rewards, dtype=torch.float64))
    exercise.grpo_loss(log_probs, old, advantages).backward()

    task = TASKS["toy"]()
    problems = [task[index] for index in range(len(task))]
    ours = TabularPolicy([problem.id for problem in problems], dtype=torch.float64)
    ours.table.data[:, 0] = theirs.embed.weight.detach()
    completions = [
        replace(make_completion((answer,)), text=ours.decode([answer]))
        for answer in answers.tolist()
    ]
    runner = InProcess(task.verifier)
    groups = judge(runner, [problems[row]], [ours.encode(problems[row])], [tuple(completions)])
    assert list(groups[0].rewards) == rewards
    algorithm = make_algorithm("grpo", advantage_eps=1e-8)
    batch = batch_of(groups, algorithm)
    accumulate(ours, batch, algorithm, temperature=1.0, token_budget=100)
    assert ours.table.grad is not None
    assert ours.table.grad.any()
    assert_same_gradient(ours.table.grad[:, 0], theirs.embed.weight.grad)


def test_a_step_with_a_gradient_of_zero_would_move_every_number() -> None:
    """Why there is no step at all: what the tests of an untouched policy can see."""
    policy = make_table()
    optimizer = adamw(policy)
    update_once(policy, [SIGNAL], make_algorithm(), optimizer)
    before = snapshot(policy, optimizer)
    policy.table.grad = torch.zeros_like(policy.table)
    optimizer.step()
    after = snapshot(policy, optimizer)
    assert len(before) == 4
    assert all(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
