"""Several updates per batch: minibatches and epochs."""

import copy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import assert_same_gradient, batch_of, gradient_of, make_algorithm, make_table
from running import read_jsonl
from steps import DEAD, LIVE, TEMPERATURE, batch_by, groups_of, measured_by, run_of
from torch import Tensor

import verigrad
from verigrad.batch import Batch, make_batch, minibatches, select_rows
from verigrad.policies.tabular import TabularPolicy
from verigrad.training import trainer as loop
from verigrad.training.step import Update, update


@pytest.mark.parametrize("parts", [1, 2, 4, 9, 20])
def test_minibatches_share_every_row_out_once_in_sizes_that_differ_by_one(parts: int) -> None:
    algorithm = make_algorithm(minibatches=parts, epochs=2)
    batch = batch_by(make_table(), algorithm)
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
    batch = batch_by(make_table(), algorithm, reference=make_table(seed=3))
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


def test_each_minibatch_has_the_denominator_of_its_own_rows() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", minibatches=2)
    batch = batch_by(make_table(), algorithm, [LIVE, DEAD])
    parts = list(minibatches(batch, algorithm, order=[3, 0, 2, 1]))
    assert [part.lengths.tolist() for part in parts] == [[2, 4], [3, 2]]
    assert [float(part.weights.sum()) for part in parts] == pytest.approx([1, 1])


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


def test_a_step_makes_as_many_updates_as_epochs_times_minibatches(tmp_path: Path) -> None:
    algorithm = {"preset": "reinforce_pp", "epochs": 2, "minibatches": 3}
    config = {
        "task": {"name": "toy", "held_out": 0.0},
        "model": "tabular",
        "algorithm": algorithm,
        "run": {"steps": 2, "threads": 1, "folder": str(tmp_path / "run")},
        "sampling": {"problems": 4, "max_new_tokens": 1},
        "evaluation": {"problems": 0},
    }
    verigrad.train(config, quiet=True)
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["optimizer/updates"] for line in lines] == [6, 12]


@pytest.mark.parametrize("parts", [{"minibatches": 2}, {"epochs": 2}])
def test_every_update_on_a_batch_has_the_log_probs_of_before_the_first(
    parts: dict[str, int],
) -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", **parts)
    batch = batch_by(policy, algorithm, [LIVE, DEAD])
    before = policy.score(batch, TEMPERATURE).log_probs.detach()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=0.5)
    done = update(
        policy, batch, algorithm, optimizer, temperature=TEMPERATURE, clip_norm=1.0,
        token_budget=100,
    )  # fmt: skip
    assert done is not None
    assert batch.old_log_probs is not None
    assert torch.equal(batch.old_log_probs, before)
    ratios = (policy.score(batch, TEMPERATURE).log_probs - batch.old_log_probs).exp()
    assert (ratios - 1).abs().max() > 1e-3


@pytest.mark.parametrize("budget", [1, 4, 100])
def test_log_probs_of_before_the_first_update_do_not_depend_on_the_passes(budget: int) -> None:
    policy, reference = make_table(), make_table(seed=1)
    algorithm = make_algorithm("grpo", kl="ratio_k3", kl_beta=0.1, minibatches=2)
    batch = make_batch(
        [LIVE, DEAD], algorithm, measure=measured_by(policy, reference, budget=budget),
        dtype=torch.float64,
    )  # fmt: skip
    assert batch is not None
    assert batch.old_log_probs is not None
    assert batch.reference_log_probs is not None
    for found, scorer in ((batch.old_log_probs, policy), (batch.reference_log_probs, reference)):
        assert torch.equal(found, scorer.score(batch, TEMPERATURE).log_probs)


def test_a_single_update_needs_no_old_log_probs_and_has_a_ratio_of_one() -> None:
    algorithm, policy = make_algorithm(), make_table()
    alone = batch_of(groups_of(), algorithm)
    assert alone.old_log_probs is None
    kept = batch_by(policy, make_algorithm(epochs=2))
    assert kept.old_log_probs is not None
    expected = gradient_of(policy, alone, algorithm).clone()
    assert_same_gradient(gradient_of(policy, kept, algorithm), expected)
