"""A reference policy: what a divergence from it descends, where it reaches, how it is reset."""

import copy
import json
import math
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import (
    Rows,
    assert_same_gradient,
    batch_of,
    cut,
    gradient_of,
    make_algorithm,
    make_group,
    make_table,
)
from golden import assert_close, cases, tensor
from running import TOY, read_jsonl, write_tiny_run
from safetensors.torch import load_file
from steps import DEAD, KL, LIVE, STEP, batch_by, groups_of, keys, measured_by, run_of, setup_of
from tiny import VOCABULARY, save_tiny_model
from torch import Tensor

from verigrad.batch import Measured, Tokens, make_batch
from verigrad.cli import main
from verigrad.config.algorithm import DIVERGENCES
from verigrad.core import kl
from verigrad.errors import BadNumbersError
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.run import new_state
from verigrad.training.step import accumulate


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
    assert (done.output.loss.item(), done.output.kl) == (0, 0)
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


def test_groups_without_signal_are_held_to_the_reference_too() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", kl="ratio_k3", kl_beta=0.5)
    batch = batch_by(policy, algorithm, [DEAD], reference=make_table(seed=1))
    assert [part.lengths.tolist() for part in cut(batch, 100)] == [[2, 4]]
    assert gradient_of(policy, batch, algorithm)[1].abs().max() > 1e-3


@pytest.mark.parametrize("name", DIVERGENCES)
def test_every_divergence_that_a_configuration_accepts_reaches_the_gradient(name: str) -> None:
    policy = make_table()
    plain = gradient_of(
        policy, batch_by(policy, make_algorithm("grpo"), [LIVE, DEAD]), make_algorithm("grpo")
    )
    algorithm = make_algorithm("grpo", kl=name, kl_beta=0.5)
    batch = batch_by(policy, algorithm, [LIVE, DEAD], reference=make_table(seed=1))
    assert not torch.allclose(gradient_of(policy, batch, algorithm), plain)


# What a term descends


def expected_gradient(name: str, new: Tensor, old: Tensor, reference: Tensor) -> Tensor:
    """Of a divergence as a loss of one token, over all tokens that the old policy may draw."""
    logits = new.clone().requires_grad_()
    rows = [each.log_softmax(-1).unsqueeze(1) for each in (logits, old, reference)]
    mask = torch.ones(len(new), 1, dtype=torch.bool)
    per_token = getattr(kl, name)(*rows, mask)
    (per_token * rows[1].exp().detach()).sum().backward()
    assert logits.grad is not None
    return logits.grad


NEW = torch.tensor([0.3, -0.5, 1.1], dtype=torch.float64)
OLD = torch.tensor([0.1, 0.4, -0.2], dtype=torch.float64)
REFERENCE = torch.tensor([-0.6, 0.2, 0.5], dtype=torch.float64)


def reverse(new: Tensor) -> Tensor:
    """The gradient of KL(policy || reference) by the logits."""
    ours, distance = new.softmax(-1), new.log_softmax(-1) - REFERENCE.log_softmax(-1)
    return ours * (distance - (ours * distance).sum())


@pytest.mark.parametrize("name", ["k2", "k3_value_k2_gradient", "ratio_k1", "ratio_k3"])
def test_a_divergence_in_the_loss_descends_the_reverse_divergence(name: str) -> None:
    found = expected_gradient(name, NEW, NEW, REFERENCE)
    assert torch.allclose(found, reverse(NEW), atol=1e-12)


@pytest.mark.parametrize("name", ["ratio_k1", "ratio_k3"])
def test_a_divergence_with_a_ratio_does_so_for_samples_of_the_old_policy(name: str) -> None:
    found = expected_gradient(name, NEW, OLD, REFERENCE)
    assert torch.allclose(found, reverse(NEW), atol=1e-12)


def test_k3_in_the_loss_descends_the_forward_divergence() -> None:
    found = expected_gradient("k3", NEW, NEW, REFERENCE)
    assert torch.allclose(found, NEW.softmax(-1) - REFERENCE.softmax(-1), atol=1e-12)


def test_k1_in_the_loss_descends_nothing() -> None:
    assert torch.allclose(
        expected_gradient("k1", NEW, NEW, REFERENCE), torch.zeros(3).double(), atol=1e-12
    )


# In the reward


def gaps(values: Any) -> Any:
    """Measures tokens as those of a policy that is so far from its reference, per token."""

    def measured(tokens: Tokens) -> Measured:
        old = torch.where(tokens.mask, tensor(values), 0.0)
        zeros = torch.zeros_like(old)
        return Measured(old_log_probs=old, entropy=zeros, reference_log_probs=zeros)

    return measured


@pytest.mark.parametrize(
    ("inputs", "expected"), cases("adv_rfpp_tokens", "adv_rfpp_beta0", "adv_rfpp_all_equal")
)
def test_golden_reinforce_pp_subtracts_the_divergence_still_to_come_from_each_token(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    rows: dict[int, Rows] = {}
    for group, reward, mask in zip(
        inputs["group_ids"], inputs["rewards"], inputs["mask"], strict=True
    ):
        rows.setdefault(group, []).append(((1,) * sum(mask), reward))
    beta = inputs["beta"]
    parts = {"kl": "k1_in_reward", "kl_beta": beta} if beta else {}
    algorithm = make_algorithm("reinforce_pp", **parts)
    batch = make_batch(
        [make_group(row, some) for row, some in rows.items()],
        algorithm,
        measure=gaps(inputs["kl_k1"]),
        dtype=torch.float64,
    )
    assert batch is not None
    assert_close(batch.advantages, expected["advantages"])


def test_the_first_token_of_reinforce_pp_bears_the_divergence_of_the_whole_row() -> None:
    """By hand: rewards 1 and 0, a divergence of 1 and 2 in the first row, beta 0.1.

    1 - 0.3, 1 - 0.2 and 0 have the mean 0.5 and the variance 0.38 / 3.
    """
    algorithm = make_algorithm("reinforce_pp", kl="k1_in_reward", kl_beta=0.1)
    batch = make_batch(
        [make_group(0, [((1, 0), 1.0), ((0,), 0.0)])],
        algorithm,
        measure=gaps([[1.0, 2.0], [0.0, 0.0]]),
        dtype=torch.float64,
    )
    assert batch is not None
    deviation = math.sqrt(0.38 / 3)
    assert batch.advantages[0].tolist() == pytest.approx([0.2 / deviation, 0.3 / deviation])
    assert batch.advantages[1].tolist() == pytest.approx([-0.5 / deviation, 0.0])


@pytest.mark.parametrize("advantage", ["rloo", "reinforce_pp_baseline"])
def test_with_a_baseline_of_the_group_the_divergence_of_the_whole_row_is_in_the_reward(
    advantage: str,
) -> None:
    algorithm = make_algorithm("rloo", advantage=advantage, kl="k1_in_reward", kl_beta=0.1)
    plain = make_algorithm("rloo", advantage=advantage)
    groups = [make_group(0, [((1, 0), 1.0), ((2,), 0.0)])]
    shaped = [make_group(0, [((1, 0), 0.7), ((2,), 0.0)])]
    measured = gaps([[1.0, 2.0], [0.0, 0.0]])
    batch = make_batch(groups, algorithm, measure=measured, dtype=torch.float64)
    assert batch is not None
    assert torch.allclose(batch.advantages, batch_of(shaped, plain).advantages, atol=1e-12)


@pytest.mark.parametrize("preset", ["rloo", "reinforce_pp"])
def test_an_infinite_divergence_in_the_reward_names_the_problem_and_the_completion(
    preset: str,
) -> None:
    """The reference policy gives the token no probability at all."""
    algorithm = make_algorithm(preset, kl="k1_in_reward", kl_beta=0.1)
    group = make_group(3, [((5, 0), 0.25), ((7,), 0.0)])
    found = "the (divergence in the )?reward of completion '7' of problem 'p3' is not finite"
    with pytest.raises(BadNumbersError, match=found):
        make_batch([group], algorithm, measure=gaps([[0.0, 0.0], [inf, 0.0]]))


def test_a_run_of_reinforce_pp_is_held_to_its_reference_token_by_token(tmp_path) -> None:
    """With a weight that drowns every reward the policy goes back to where it began."""
    ended = {}
    for beta in ("0.1", "100"):
        options = (
            *("algorithm", "reinforce_pp", "algorithm.kl", "k1_in_reward"),
            *("algorithm.kl_beta", beta, "sampling.problems", "9", "run.steps", "8"),
        )
        _, _, trainer = run_of(tmp_path / beta, *options)
        assert trainer.run().finished
        ended[beta] = read_jsonl(tmp_path / beta / "metrics.jsonl")[-1]["policy/kl"]
    assert ended["100"] < ended["0.1"]


# In a run


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


# Another model as the reference


HELD = ("--algorithm.kl", "ratio_k3", "--algorithm.kl_beta", "0.1", "--algorithm.reference")


def complaint_about(reference: str, folder: Path, capsys, *more: str) -> str:
    run = ["train", str(write_tiny_run(folder)), "--run.folder", str(folder / "run")]
    assert main([*run, *HELD, str(folder / reference), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert not (folder / "run").exists()
    return line


def test_a_reference_to_which_a_token_is_another_one_is_refused(tmp_path, capsys) -> None:
    """Its log-probs would be of other texts, and the divergence from them means nothing."""
    file = save_tiny_model(tmp_path / "other") / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokens = tokenizer["model"]["vocab"]
    tokens["a"], tokens["z"] = tokens["z"], tokens["a"]
    file.write_text(json.dumps(tokenizer))
    line = complaint_about("other", tmp_path, capsys)
    assert "to which token 16 is 'z', but to the policy it is 'a'; " in line


def test_a_reference_that_lacks_tokens_of_the_policy_is_refused(tmp_path, capsys) -> None:
    save_tiny_model(tmp_path / "small", vocab_size=VOCABULARY - 1)
    line = complaint_about("small", tmp_path, capsys)
    assert "which has 63 tokens, but the policy has 64 and may choose any of them" in line


def test_a_reference_that_cannot_become_the_policy_is_not_to_be_reset(tmp_path, capsys) -> None:
    save_tiny_model(tmp_path / "deep", num_hidden_layers=3)
    line = complaint_about("deep", tmp_path, capsys, "--algorithm.kl_reset_every", "2")
    assert "whose weights are not laid out as the policy's" in line
    config, run = write_tiny_run(tmp_path), tmp_path / "run"
    held = [*HELD, str(tmp_path / "deep"), "--run.steps", "1"]
    assert main(["train", str(config), *held, "--run.folder", str(run)]) == 0
    assert read_jsonl(run / "metrics.jsonl")[-1]["policy/kl"] > 0


def test_prompts_fit_the_reference_too(tmp_path, capsys) -> None:
    save_tiny_model(tmp_path / "short", max_position_embeddings=12)
    line = complaint_about("short", tmp_path, capsys)
    assert "that is more than the 12 positions of the model" in line
