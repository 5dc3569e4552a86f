"""Parts that do not go together are refused with the reason; what is doubtful is said."""

from typing import Any

import pytest
from builders import make_algorithm

from verigrad.algorithms import Algorithm
from verigrad.errors import ConfigError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"loss": "gspo", "aggregation": "token_mean"}, "loss 'gspo' is one number per completion"),
    ({"loss": "gmpo", "aggregation": "const_norm"}, "loss 'gmpo' is one number per completion"),
    (
        {"loss": "luspo", "aggregation": "seq_mean_token_sum"},
        "aggregation 'seq_mean_token_sum' would weight it by length",
    ),
    (
        {"advantage": "reinforce_pp", "kl": "k1_in_reward", "kl_beta": 0.1, "loss": "gmpo"}
        | {"aggregation": "seq_mean_token_mean"},
        "loss 'gmpo' is one number per completion, but with kl 'k1_in_reward'",
    ),
    ({"kl": "k1", "kl_beta": 0.1}, "kl 'k1' as a loss has an expected gradient of 0"),
    ({"kl": "k2_in_reward", "kl_beta": 0.1}, "in the reward only k1 has the gradient"),
    ({"kl": "k3_in_reward", "kl_beta": 0.1}, "in the reward only k1 has the gradient"),
    ({"kl": "ratio_k3"}, "kl is 'ratio_k3' but kl_beta is 0"),
    ({"kl_beta": 0.1}, r"kl_beta is 0\.1 but kl is off"),
    ({"advantage": "pkpo"}, "advantage 'pkpo' needs pass_k"),
    ({"advantage": "passk_loo"}, "advantage 'passk_loo' needs pass_k"),
    ({"advantage": "passk_analytic"}, "advantage 'passk_analytic' needs pass_k"),
    (
        {"advantage": "gdpo", "overlong_share": 0.2},
        "advantage 'gdpo' sees the named parts of the reward, not what overlong_share",
    ),
    (
        {"advantage": "sum_then_grpo", "kl": "k1_in_reward", "kl_beta": 0.1},
        "advantage 'sum_then_grpo' sees the named parts of the reward",
    ),
    (
        {"advantage": "pkpo", "pass_k": 2, "kl": "k1_in_reward", "kl_beta": 0.1},
        "advantage 'pkpo' takes rewards of 0 and 1",
    ),
    ({"advantage": "maxrl", "overlong_share": 0.2}, r'set overlong_share to "off"'),
    ({"loss": "ppo_clip", "clip_high": 0.5, "delta": 1.4}, r"must be above 1 \+ clip_high = 1\.5"),
    ({"loss": "ppo_clip", "delta": 1.1}, r"must be above 1 \+ clip_high = 1\.2"),
    ({"dual_clip": 3.0}, "dual_clip and delta are parts of loss 'ppo_clip', not of 'reinforce'"),
    (
        {"correction": "token_masked", "correction_low": 3.0},
        "correction_low is 3 and correction_high 2, so that every ratio would be masked",
    ),
    (
        {"correction": "geometric_masked", "correction_low": 0.9, "correction_high": 0.8},
        r"correction_low is 0\.9 and correction_high 0\.8, so that every ratio would be masked",
    ),
    ({"delta": 3.0}, "dual_clip and delta are parts of loss 'ppo_clip', not of 'reinforce'"),
]
"""What is put into the preset rloo, and what is said."""


@pytest.mark.parametrize(("parts", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_parts_that_do_not_go_together_are_refused_with_the_reason(
    parts: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^algorithm: .*{said}"):
        make_algorithm("rloo", **parts)


@pytest.mark.parametrize(
    "parts",
    [
        {"loss": "gspo", "aggregation": "seq_mean_token_mean"},
        {"loss": "gspo", "aggregation": "seq_mean_token_mean_all"},
        {"kl": "k1_in_reward", "kl_beta": 0.1},
        {"advantage": "reinforce_pp", "kl": "k1_in_reward", "kl_beta": 0.1, "loss": "gspo_token"},
        {"advantage": "pkpo", "pass_k": 2},
        {"loss": "ppo_clip", "clip_high": 0.5, "delta": 1.6, "dual_clip": 3.0},
    ],
    ids=str,
)
def test_their_neighbours_are_not_refused_and_need_no_note(parts: dict[str, Any]) -> None:
    assert make_algorithm("rloo", **parts).notes == ()


NOTED: list[tuple[dict[str, Any], str]] = [
    ({"kl": "k3", "kl_beta": 0.1}, "has the gradient of KL(reference || policy)"),
    ({"kl": "k2", "kl_beta": 0.1, "loss": "ppo_clip", "epochs": 2}, "for the first update"),
    ({"minibatches": 3}, "loss 'reinforce' has no ratio, so updates after the first"),
    ({"loss": "on_policy", "epochs": 2}, "loss 'on_policy' has no ratio"),
    (
        {"loss": "gspo", "clip_high": 0.2, "aggregation": "seq_mean_token_mean"},
        "clip_high is 0.2; the ratio of 'gspo' is a geometric mean",
    ),
    ({"loss": "gspo_token", "clip_high": 0.1}, "clip_high is 0.1; the ratio of 'gspo_token'"),
    (
        {"loss": "gmpo", "aggregation": "seq_mean_token_mean", "top_entropy": 0.2},
        "loss 'gmpo' is one number per completion, so top_entropy",
    ),
]


@pytest.mark.parametrize(("parts", "said"), NOTED, ids=lambda value: str(value)[:60])
def test_a_doubtful_combination_is_allowed_and_noted(parts: dict[str, Any], said: str) -> None:
    (note,) = make_algorithm("rloo", **parts).notes
    assert said in note


@pytest.mark.parametrize(
    ("parts", "idle"),
    [
        ({"clip_low": 0.1, "clip_high": 0.2}, "clip_low, clip_high"),
        ({"pass_k": 2}, "pass_k"),
        ({"advantage_eps": 0.1}, "advantage_eps"),
        ({"kl_reset_every": 5, "reference": "start"}, "kl_reset_every, reference"),
        ({"correction_cap": 2.0}, "correction_cap"),
        ({"correction": "token_masked", "correction_cap": 2.0}, "correction_cap"),
        ({"entropy_coefficient": 0.1, "entropy_step": 0.1}, "entropy_step"),
    ],
)
def test_a_key_that_no_part_uses_is_noted(parts: dict[str, Any], idle: str) -> None:
    notes = make_algorithm("rloo", **parts).notes
    assert notes == (f"no part of this algorithm uses {idle}",)


def test_keys_that_the_parts_use_are_not_noted() -> None:
    bounds = {"clip_low": 0.1, "clip_high": 0.2, "advantage_eps": 1e-4}
    correction = {"correction": "token_masked", "correction_low": 0.9, "correction_high": 1.1}
    kl = {"kl": "ratio_k3", "kl_beta": 0.1, "kl_reset_every": 5, "reference": "start"}
    entropy = {"entropy_target": 1.0, "entropy_step": 0.1}
    assert make_algorithm("grpo", **bounds, **correction, **kl, **entropy).notes == ()


@pytest.mark.parametrize(
    ("preset", "loss", "low", "high", "own"),
    [
        ("gspo", "ppo_clip", "0.0003", "0.0004", "gspo"),
        ("cispo", "ppo_clip", "1.0", "4.0", "cispo"),
        ("grpo", "cispo", "0.2", "0.2", "ppo_clip"),
        ("grpo", "luspo", "0.2", "0.2", "ppo_clip"),
    ],
)
def test_bounds_that_stay_behind_when_the_loss_is_replaced_are_noted(
    preset: str, loss: str, low: str, high: str, own: str
) -> None:
    (note,) = make_algorithm(preset, loss=loss).notes
    assert note.startswith(
        f"clip_low and clip_high stay {low} and {high}, which the preset has for loss {own!r}"
    )
    given = make_algorithm(preset, loss=loss, clip_low=0.01, clip_high=0.01)
    assert given.notes == make_algorithm(preset, loss=own).notes == ()


def test_off_turns_a_part_of_a_preset_off() -> None:
    assert make_algorithm("dapo").punish_length is not None
    plain = make_algorithm("dapo", overlong_share="off")
    assert plain.punish_length is None


# An algorithm of one's own


OWN = """
from verigrad.algorithms import Algorithm
from verigrad.core import advantages, aggregation, losses

signs = Algorithm(
    name="signs",
    advantages=lambda s: advantages.dr_grpo(s.rewards, s.group_index).sign(),
    loss=losses.reinforce,
    aggregation=aggregation.token_mean,
)
number = 3
"""


@pytest.fixture
def own(tmp_path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_an_algorithm_of_ones_own_is_named_by_its_file(own: str) -> None:
    algorithm = make_algorithm(f"{own}:signs")
    assert isinstance(algorithm, Algorithm)
    assert algorithm.name == "signs"


def test_its_parts_are_changed_in_its_file_only(own: str) -> None:
    with pytest.raises(ConfigError, match=r"kl_beta, epochs replace parts of a preset, but .*own"):
        make_algorithm(f"{own}:signs", kl_beta=0.1, epochs=2)


def test_what_is_no_algorithm_is_refused(own: str) -> None:
    with pytest.raises(ConfigError, match="is a int; expected a verigrad"):
        make_algorithm(f"{own}:number")


def test_a_name_that_the_file_does_not_define_is_refused_with_those_it_does(own: str) -> None:
    with pytest.raises(ConfigError, match=r"has no 'sings'; it defines: .*signs"):
        make_algorithm(f"{own}:sings")


@pytest.mark.parametrize("loss", ["gspo", "gmpo", "luspo"])
@pytest.mark.parametrize("rule", ["token_mean", "const_norm", "group_token_mean"])
def test_a_loss_per_sequence_with_a_weight_by_length_is_refused(loss: str, rule: str) -> None:
    with pytest.raises(ConfigError, match="seq_mean_token_mean"):
        make_algorithm("grpo", loss=loss, aggregation=rule)
