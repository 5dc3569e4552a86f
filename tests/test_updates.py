"""A step with everything in it: several updates, a reference, an entropy bonus, old rollouts."""

import copy
import json
import shutil
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import (
    Rows,
    assert_same_gradient,
    batch_of,
    gradient_of,
    make_algorithm,
    make_group,
    make_table,
)
from running import TOY, assert_same_run, read_jsonl
from safetensors.torch import load_file
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, make_batch, minibatches, select_rows
from verigrad.cli import main
from verigrad.config import load_config
from verigrad.core.logprobs import token_log_probs
from verigrad.engines import LocalEngine
from verigrad.policies.tabular import TabularPolicy
from verigrad.training import trainer as loop
from verigrad.training.checkpoint import checkpoints
from verigrad.training.folder import make_folder
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import TrainerState
from verigrad.training.step import Update, accumulate, loss_of, measure, update
from verigrad.training.trainer import Trainer
from verigrad.types import Group

STEP: list[Rows] = [
    [((1, 2, 3, 4), 1.0), ((2, 0), 0.25), ((4, 4, 0), 0.0), ((1, 0), 0.5)],
    [((3, 1, 0), 0.0), ((2, 2, 2, 1), 1.0)],
    [((1,), 0.0), ((2, 3, 3, 0), 0.5), ((4, 1, 2, 0), 0.75)],
]
"""Nine rows of 4, 2, 3, 2, 3, 4, 1, 4 and 4 tokens."""


def groups_of(step: list[Rows] = STEP) -> list[Group]:
    return [make_group(row, rows) for row, rows in enumerate(step)]


def measured_by(policy: TabularPolicy, reference: TabularPolicy | None = None) -> Any:
    return lambda tokens: measure(policy, reference, tokens, temperature=0.7, token_budget=9)


def whole_batch(
    algorithm: Algorithm,
    policy: TabularPolicy,
    reference: TabularPolicy | None = None,
    **options: Any,
) -> Batch:
    batch = make_batch(
        groups_of(),
        algorithm,
        measure=measured_by(policy, reference),
        dtype=torch.float64,
        **options,
    )
    assert batch is not None
    return batch


def setup_of(*arguments: str) -> Setup:
    """The toy task, three problems of four completions per step unless said otherwise."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    small = [("sampling.problems", "3"), ("sampling.completions", "4"), ("run.steps", "1")]
    return prepare(load_config(TOY, [*small, *pairs]))


def run_of(folder: Path, *arguments: str) -> tuple[Setup, TrainerState, Trainer]:
    """A run of it."""
    setup = setup_of(*arguments)
    state = new_state(setup)
    run = make_folder(str(folder), "run")
    engine = LocalEngine(setup.policy)
    return setup, state, Trainer(setup, state, engine, run, Progress(1, quiet=True))


# Several updates per batch


@pytest.mark.parametrize("parts", [1, 2, 4, 9, 20])
def test_minibatches_share_every_row_out_once_in_sizes_that_differ_by_one(parts: int) -> None:
    algorithm = make_algorithm(minibatches=parts, epochs=2)
    batch = whole_batch(algorithm, make_table())
    numbered = replace(batch, sampling_log_probs=torch.arange(9.0).unsqueeze(1).expand(9, 4))
    order = [4, 8, 0, 3, 7, 1, 5, 2, 6]
    some = list(minibatches(numbered, algorithm, order))
    rows = [[int(row[0]) for row in part.sampling_log_probs] for part in some]
    assert sorted(row for part in rows for row in part) == list(range(9))
    assert len(some) == min(parts, 9)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "group_token_mean"])
def test_a_minibatch_has_the_weights_of_its_own_rows_and_the_advantages_of_the_step(
    aggregation: str,
) -> None:
    """Each is an optimiser update of its own; in two of unequal length tokens weigh unequally."""
    algorithm = make_algorithm(
        aggregation=aggregation,
        minibatches=2,
        kl="ratio_k3",
        kl_beta=0.1,
        entropy_coefficient=0.1,
        correction="token_truncated",
    )
    batch = whole_batch(algorithm, make_table(), make_table(seed=3))
    order = [0, 1, 5, 3, 7, 6, 8, 2, 4]
    parts = list(minibatches(batch, algorithm, order))
    for part, rows in zip(parts, ([0, 4, 5, 7, 8], [1, 2, 3, 6]), strict=True):
        own = algorithm.aggregation(part.mask, part.group_index)
        assert torch.equal(part.weights, own)
        assert part.kl_weights is not None
        assert torch.equal(part.kl_weights, own)
        assert part.entropy_weights is not None
        assert part.entropy_weights.sum().item() == pytest.approx(1)
        same = select_rows(batch, rows)
        assert torch.equal(part.token_ids, same.token_ids)
        assert torch.equal(part.advantages, same.advantages)
        for name in ("old_log_probs", "reference_log_probs", "correction"):
            assert torch.equal(getattr(part, name), getattr(same, name)), name
    assert parts[0].weights.max() != parts[1].weights.max()


class Recorder:
    """What each update of a run was made from, and how the policy stood before it."""

    def __init__(self, initial: TabularPolicy) -> None:
        self.initial = copy.deepcopy(initial)
        self.batches: list[Batch] = []
        self.ratios: list[Tensor] = []
        self.old: list[Tensor] = []

    def __call__(self, policy: Any, batch: Batch, *rest: Any, **options: Any) -> Update | None:
        assert batch.old_log_probs is not None
        now = policy.score(batch, options["temperature"]).log_probs.detach()
        self.batches.append(batch)
        self.ratios.append((now - batch.old_log_probs).exp())
        self.old.append(self.initial.score(batch, options["temperature"]).log_probs.detach())
        return update(policy, batch, *rest, **options)


def test_several_updates_keep_the_log_probs_from_before_the_first(tmp_path, monkeypatch) -> None:
    setup, state, trainer = run_of(
        tmp_path / "run",
        *("algorithm", "reinforce_pp"),
        *("algorithm.epochs", "2"),
        *("algorithm.minibatches", "3"),
    )
    assert isinstance(setup.policy, TabularPolicy)
    recorder = Recorder(setup.policy)
    monkeypatch.setattr(loop, "update", recorder)
    assert trainer.run().finished
    assert [len(batch.lengths) for batch in recorder.batches] == [4] * 6
    for batch, old in zip(recorder.batches, recorder.old, strict=True):
        assert torch.equal(batch.old_log_probs, old)
        assert torch.equal(
            batch.weights, setup.algorithm.aggregation(batch.mask, batch.group_index).float()
        )
    assert bool((recorder.ratios[0] == 1).all())
    assert all(bool((ratio != 1).any()) for ratio in recorder.ratios[3:])
    # An update per minibatch and epoch, all of them the optimiser's.
    assert state.policy_version == 6
    assert [int(slot["step"]) for slot in state.optimizer.state.values()] == [6]
    (line,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert line["optimizer/updates"] == 6
    assert line["tokens/trained"] == 2 * 12


def test_every_epoch_shuffles_the_rows_anew_and_sees_each_once(tmp_path, monkeypatch) -> None:
    setup, _, trainer = run_of(
        tmp_path / "run",
        *("algorithm", "reinforce_pp"),
        *("algorithm.epochs", "2"),
        *("algorithm.minibatches", "3"),
    )
    assert isinstance(setup.policy, TabularPolicy)
    recorder = Recorder(setup.policy)
    monkeypatch.setattr(loop, "update", recorder)
    trainer.run()

    def drawn(batches: list[Batch]) -> list[list[tuple[str, int]]]:
        return [
            [
                (batch.prompts[group].problem_id, token)
                for group, (token,) in zip(
                    batch.group_index.tolist(), batch.token_ids.tolist(), strict=True
                )
            ]
            for batch in batches
        ]

    first, second = drawn(recorder.batches[:3]), drawn(recorder.batches[3:])
    assert sorted(chain(*first)) == sorted(chain(*second))
    assert first != second


def test_a_single_update_needs_no_old_log_probs_and_has_a_ratio_of_one() -> None:
    algorithm, policy = make_algorithm(), make_table()
    alone = batch_of(groups_of(), algorithm)
    assert alone.old_log_probs is None
    kept = whole_batch(make_algorithm(epochs=2), policy)
    assert kept.old_log_probs is not None
    expected = gradient_of(policy, alone, algorithm).clone()
    assert_same_gradient(gradient_of(policy, kept, algorithm), expected)


# A reference policy


@pytest.mark.parametrize("kl", ["k2", "k3", "k3_value_k2_gradient", "ratio_k3"])
def test_at_the_start_the_divergence_and_its_gradient_are_exactly_zero(kl: str) -> None:
    policy = make_table()
    algorithm = make_algorithm(kl=kl, kl_beta=0.5)
    equal: list[Rows] = [[(ids, 1.0) for ids, _ in rows] for rows in STEP]
    batch = make_batch(
        groups_of(equal),
        algorithm,
        measure=measured_by(policy, copy.deepcopy(policy)),
        dtype=torch.float64,
    )
    assert batch is not None
    done = accumulate(policy, batch, algorithm, temperature=0.7, token_budget=8)
    assert done is not None
    assert (done[0].loss.item(), done[0].kl) == (0, 0)
    assert policy.table.grad is not None
    assert not policy.table.grad.any()


def test_the_divergence_reaches_rows_whose_group_has_no_signal_with_the_losss_own_weights() -> None:
    policy, reference = make_table(), make_table(seed=3)
    algorithm = make_algorithm(kl="k2", kl_beta=0.5, aggregation="token_mean")
    equal: list[Rows] = [[(ids, 1.0) for ids, _ in rows] for rows in STEP]
    batch = make_batch(
        groups_of(equal),
        algorithm,
        measure=measured_by(policy, reference),
        dtype=torch.float64,
    )
    assert batch is not None
    assert batch.row_trains().all()
    actual = gradient_of(policy, batch, algorithm).clone()
    new = policy.score(batch, 0.7).log_probs
    distance = (new - reference.score(batch, 0.7).log_probs.detach()).square() / 2
    expected = torch.autograd.grad(0.5 * distance.sum() / 27, policy.table)[0]
    assert_same_gradient(actual, expected)


KL = ("--algorithm.kl", "ratio_k3", "--algorithm.kl_beta", "0.1")


def keys(*arguments: str) -> tuple[str, ...]:
    """Arguments of the command as keys of a configuration."""
    return tuple(argument.removeprefix("--") for argument in arguments)


def test_a_reference_that_is_never_reset_stays_bit_for_bit_what_it_was(tmp_path) -> None:
    # All nine problems in every step, so that each step sees what the one before has done.
    options = (*keys(*KL), "sampling.problems", "9")
    setup, _, trainer = run_of(tmp_path / "run", *options, "run.steps", "5")
    assert isinstance(setup.policy, TabularPolicy)
    assert isinstance(setup.reference, TabularPolicy)
    before = setup.policy.table.detach().clone()
    assert trainer.run().finished
    assert torch.equal(setup.reference.table, before)
    assert not torch.equal(setup.policy.table, before)
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert lines[0]["policy/kl"] == 0
    assert all(line["policy/kl"] > 0 for line in lines[1:])


def test_a_reset_lets_the_reference_be_the_policy_and_no_longer_move_with_it(tmp_path) -> None:
    options = (*keys(*KL), "algorithm.kl_reset_every", "2", "sampling.problems", "9")
    setup, _, trainer = run_of(tmp_path / "run", *options, "run.steps", "4")
    assert isinstance(setup.policy, TabularPolicy)
    assert isinstance(setup.reference, TabularPolicy)
    trainer.run()
    assert torch.equal(setup.reference.table, setup.policy.table)
    assert setup.reference.table.data_ptr() != setup.policy.table.data_ptr()
    kl = [line["policy/kl"] for line in read_jsonl(tmp_path / "run" / "metrics.jsonl")]
    assert [value == 0 for value in kl] == [True, False, True, False]


def test_a_reference_from_a_folder_is_the_policy_saved_there(tmp_path) -> None:
    first = ("train", str(TOY), "--run.steps", "3", "--run.folder", str(tmp_path / "first"))
    assert main(list(first)) == 0
    final = tmp_path / "first" / "final"
    setup = setup_of(*keys(*KL), "algorithm.reference", str(final))
    assert isinstance(setup.policy, TabularPolicy)
    assert isinstance(setup.reference, TabularPolicy)
    assert torch.equal(setup.reference.table, load_file(final / "policy.safetensors")["table"])
    assert not torch.equal(setup.reference.table, setup.policy.table)
    assert not setup.reference.table.requires_grad
    assert new_state(setup).reference is None, "a reference that is never reset is no state"


# The entropy bonus


def bonus_of(policy: TabularPolicy, coefficient: float) -> tuple[Batch, Algorithm]:
    algorithm = make_algorithm(entropy_coefficient=coefficient, aggregation="seq_mean_token_sum")
    equal: list[Rows] = [[(ids, 1.0) for ids, _ in rows] for rows in STEP]
    return batch_of(groups_of(equal), algorithm), algorithm


def test_the_gradient_of_the_entropy_bonus_is_that_of_finite_differences() -> None:
    """A mean over tokens whatever the aggregation; one answer has a logit of minus infinity."""
    policy = make_table()
    policy.table.data[0, 0, 3] = -inf
    batch, algorithm = bonus_of(policy, 0.3)
    actual = gradient_of(policy, batch, algorithm, entropy_coefficient=0.3).clone()
    assert actual[0, 0, 3] == 0
    assert actual.isfinite().all()

    def loss(table: Tensor) -> float:
        log_probs = (table / 0.7).log_softmax(dim=-1)
        entropy = -torch.where(log_probs > -inf, log_probs.exp() * log_probs, 0.0).sum(dim=-1)
        rows = torch.tensor([prompt.token_ids[0] for prompt in batch.prompts])[batch.group_index]
        return -0.3 * (entropy[rows] * batch.mask).sum().item() / 27

    for place in [(0, 0, 1), (0, 0, 4), (0, 3, 2), (1, 2, 0), (2, 1, 3)]:
        ends = []
        for shift in (1e-5, -1e-5):
            table = policy.table.detach().clone()
            table[place] += shift
            ends.append(loss(table))
        assert actual[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-9)


def test_the_entropy_bonus_makes_the_policy_less_sure() -> None:
    policy = make_table()
    batch, algorithm = bonus_of(policy, 0.3)
    before = loss_of(policy, batch, algorithm, 0.7).entropy
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    update(
        policy,
        batch,
        algorithm,
        optimizer,
        temperature=0.7,
        clip_norm=inf,
        token_budget=9,
        entropy_coefficient=0.3,
    )
    assert loss_of(policy, batch, algorithm, 0.7).entropy > before


def test_a_bonus_steered_down_to_nothing_trains_nothing() -> None:
    """Otherwise a gradient of zero would move the weights through the optimiser's momentum."""
    policy = make_table()
    batch, algorithm = bonus_of(policy, 0.3)
    assert accumulate(policy, batch, algorithm, temperature=0.7, token_budget=9) is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [("2.31", [0.01, 0.03, 0.05, 0.07]), ("0.0", [0.01, 0.0, 0.0, 0.0])],
    ids=["above what is possible", "below everything"],
)
def test_the_weight_of_the_bonus_is_steered_towards_its_target(
    tmp_path, target: str, expected: list[float]
) -> None:
    _, state, trainer = run_of(
        tmp_path / "run",
        *("algorithm.entropy_coefficient", "0.01"),
        *("algorithm.entropy_target", target),
        *("algorithm.entropy_step", "0.02"),
        *("run.steps", "4"),
    )
    trainer.run()
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["optimizer/entropy_coefficient"] for line in lines] == pytest.approx(expected)
    saved = json.loads(
        (checkpoints(tmp_path / "run" / "checkpoints")[-1] / "state.json").read_text()
    )
    assert saved["entropy_coefficient"] == state.entropy_coefficient


def test_the_least_sure_tokens_alone_have_a_policy_loss_and_the_denominator_stays() -> None:
    policy = make_table()
    plain = whole_batch(make_algorithm(aggregation="token_mean"), policy)
    algorithm = make_algorithm(aggregation="token_mean", top_entropy=0.3)
    masked = whole_batch(algorithm, policy)
    entropy = policy.score(masked, 0.7).entropy
    chosen = masked.weights != 0
    # At least 0.3 of 27 tokens; those of one position of a problem are alike.
    assert 8 <= int(chosen.sum()) < 27
    assert entropy[chosen].min() > entropy[masked.mask & ~chosen].max()
    assert torch.equal(masked.weights[chosen], plain.weights[chosen])
    assert masked.weights[0, chosen[0]].tolist() == [1 / 27] * int(chosen[0].sum())


# Which completions take part


def test_truncated_completions_may_leave_the_loss_but_not_the_baseline() -> None:
    rows = STEP[0]
    algorithm = make_algorithm("dr_grpo", aggregation="token_mean", mask_truncated=True)
    masked = batch_of([make_group(0, rows)], algorithm)
    without = batch_of([make_group(0, rows[1:])], algorithm)
    assert masked.weights[0].tolist() == [0] * 4
    assert torch.equal(masked.weights[1:, :3], without.weights)
    plain = batch_of([make_group(0, rows)], replace(algorithm, mask_truncated=False))
    assert torch.equal(masked.advantages[1:], plain.advantages[1:])
    assert masked.advantages[1, 0].item() == pytest.approx(0.25 - 1.75 / 4)
    assert masked.advantages[1, 0] != without.advantages[1, 0]


def test_a_step_of_truncated_completions_only_trains_nothing() -> None:
    algorithm = make_algorithm(mask_truncated=True)
    batch = batch_of([make_group(0, [((1, 2), 1.0), ((3,), 0.0)])], algorithm)
    done = accumulate(make_table(), batch, algorithm, temperature=0.7, token_budget=9)
    assert done is None


def aged(group: Group, versions: list[int]) -> Group:
    rollouts = [
        replace(one, completion=replace(one.completion, policy_version=version))
        for one, version in zip(group.rollouts, versions, strict=True)
    ]
    return replace(group, rollouts=tuple(rollouts))


def test_rollouts_that_are_too_old_are_left_out_as_if_never_drawn() -> None:
    groups = [aged(make_group(0, STEP[0]), [5, 3, 2, 4]), aged(make_group(1, STEP[1]), [1, 2])]
    algorithm = make_algorithm("dr_grpo", max_staleness=2)
    batch = make_batch(groups, algorithm, policy_version=5, dtype=torch.float64)
    young = make_group(0, [STEP[0][0], STEP[0][1], STEP[0][3]])
    expected = batch_of([young], algorithm)
    assert batch is not None
    assert torch.equal(batch.token_ids, expected.token_ids)
    assert torch.equal(batch.advantages, expected.advantages)
    assert torch.equal(batch.weights, expected.weights)
    assert make_batch(groups, algorithm, policy_version=8) is None
    everything = make_batch(groups, make_algorithm("dr_grpo"), policy_version=99)
    assert everything is not None
    assert len(everything.lengths) == 6


# Another sampling policy


def sampled_by(policy: TabularPolicy) -> list[Group]:
    """The step above with the log-probs that a policy would have reported."""

    def reported(group: Group) -> Group:
        rollouts = []
        for one in group.rollouts:
            ids = one.completion.token_ids
            logits = policy.table.detach()[one.prompt.token_ids[0], : len(ids)]
            values = token_log_probs(logits, torch.tensor(ids), 0.7).tolist()
            rollouts.append(
                replace(one, completion=replace(one.completion, log_probs=tuple(values)))
            )
        return replace(group, rollouts=tuple(rollouts))

    return [reported(group) for group in groups_of()]


CORRECTIONS = (
    "token_truncated",
    "token_masked",
    "sequence_truncated",
    "sequence_masked",
    "geometric_masked",
)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_correction_of_a_sampler_that_is_the_trainer_changes_no_bit(name: str) -> None:
    policy = make_table()
    algorithm = make_algorithm(correction=name)
    batch = make_batch(
        sampled_by(policy), algorithm, measure=measured_by(policy), dtype=torch.float64
    )
    assert batch is not None
    assert batch.correction is not None
    assert torch.equal(batch.correction, batch.mask.double())
    expected = gradient_of(policy, batch_of(sampled_by(policy), algorithm_without(name)), algorithm)
    assert torch.equal(gradient_of(policy, batch, algorithm), expected)


def algorithm_without(correction: str) -> Algorithm:
    return replace(make_algorithm(correction=correction), correction=None)


def test_a_correction_multiplies_the_policy_loss_and_not_the_divergence() -> None:
    policy, sampler, reference = make_table(), make_table(seed=1), make_table(seed=2)
    both = make_algorithm(
        "rloo", kl="k2", kl_beta=0.5, correction="token_truncated", correction_cap=1.5
    )

    def gradient(algorithm: Algorithm) -> Tensor:
        batch = make_batch(
            sampled_by(sampler),
            algorithm,
            measure=measured_by(policy, reference if algorithm.divergence else None),
            dtype=torch.float64,
        )
        assert batch is not None
        return gradient_of(policy, batch, algorithm).clone()

    uncorrected = replace(both, correction=None)
    without_term = replace(both, divergence=None)
    term = gradient(uncorrected) - gradient(replace(uncorrected, divergence=None))
    assert term.any()
    assert_same_gradient(gradient(both), gradient(without_term) + term)
    plain = replace(uncorrected, divergence=None)
    assert not torch.allclose(gradient(without_term), gradient(plain))


def test_a_corrected_gradient_is_that_of_ratios_to_the_sampler() -> None:
    """Decoupled: the correction is old over sampler, and the loss's own ratio new over old."""
    policy, old, sampler = make_table(), make_table(seed=1), make_table(seed=2)
    algorithm = make_algorithm(
        "dr_grpo", clip_low=1.0, clip_high=1e9, correction="token_truncated", correction_cap=1e9
    )
    algorithm = replace(algorithm, epochs=2)
    batch = make_batch(
        sampled_by(sampler), algorithm, measure=measured_by(old), dtype=torch.float64
    )
    assert batch is not None
    actual = gradient_of(policy, batch, algorithm).clone()
    ratio = (policy.score(batch, 0.7).log_probs - batch.sampling_log_probs).exp()
    wanted = -(batch.weights * batch.advantages * ratio).sum()
    assert_same_gradient(actual, torch.autograd.grad(wanted, policy.table)[0])


# The whole run


EVERYTHING = [
    *("train", str(TOY), "--run.steps", "8"),
    *("--sampling.problems", "3", "--sampling.completions", "4"),
    *("--checkpoint.every", "2", "--checkpoint.keep", "4"),
    *KL,
    *("--algorithm.kl_reset_every", "3"),
    *("--algorithm.epochs", "2", "--algorithm.minibatches", "2"),
    *("--algorithm.entropy_coefficient", "0.01", "--algorithm.entropy_target", "2.0"),
    *("--algorithm.entropy_step", "0.003"),
    *("--algorithm.correction", "token_truncated"),
    *("--algorithm.off_policy_delta", "0.5"),
    *("--algorithm.top_entropy", "0.8"),
    *("--algorithm.max_staleness", "4"),
    *("--algorithm.overlong_share", "0.5", "--algorithm.mask_truncated", "true"),
]
"""A run with every part on."""


def test_a_resumed_run_with_every_part_on_is_the_same_run(tmp_path) -> None:
    whole = tmp_path / "whole"
    assert main([*EVERYTHING, "--run.folder", str(whole)]) == 0
    lines = read_jsonl(whole / "metrics.jsonl")
    coefficients = [line["optimizer/entropy_coefficient"] for line in lines]
    assert len(set(coefficients)) > 2
    # Step 6 ended with a reset, step 4 did not.
    saved = {
        path.name: [load_file(path / f"{name}.safetensors") for name in ("policy", "reference")]
        for path in checkpoints(whole / "checkpoints")
    }
    same = {name: torch.equal(one["table"], other["table"]) for name, (one, other) in saved.items()}
    assert (same["step-000006"], same["step-000004"]) == (True, False)
    for kept in (1, 2, 3):
        run = copy_until(whole, tmp_path / f"from-{2 * kept}", kept)
        assert main(["train", "--resume", str(run)]) == 0
        assert_same_run(run, whole)


def copy_until(whole: Path, target: Path, kept: int) -> Path:
    """A run folder without its later checkpoints, as if it had been stopped there."""
    shutil.copytree(whole, target)
    for later in checkpoints(target / "checkpoints")[kept:]:
        shutil.rmtree(later)
    return target


OWN = """
from verigrad.algorithms import Algorithm
from verigrad.core import advantages, aggregation, losses

signs = Algorithm(
    name="signs",
    advantages=lambda s: advantages.dr_grpo(s.rewards, s.group_index).sign(),
    loss=losses.reinforce,
    aggregation=aggregation.token_mean,
)
"""


def test_a_run_with_an_algorithm_of_ones_own(tmp_path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    run = tmp_path / "run"
    arguments = ["train", str(TOY), "--run.steps", "5", "--run.folder", str(run)]
    assert main([*arguments, "--algorithm", f"{tmp_path / 'own.py'}:signs"]) == 0
    updates = [line["optimizer/updates"] for line in read_jsonl(run / "metrics.jsonl")]
    assert updates[-1] > 0
    resumed = copy_until(run, tmp_path / "again", 1)
    assert main(["train", "--resume", str(resumed)]) == 0
