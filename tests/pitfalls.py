"""The known mistakes of trainers of this family, and what catches each of them here.

``test_pitfalls.py`` holds that every test named here exists; ``tools/mutate.py`` plants each
mistake in a copy of the sources and holds that a test named here turns red.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pitfall:
    """One known mistake."""

    mistake: str
    """What goes wrong."""

    tests: tuple[str, ...] = ()
    """The tests that catch it, as ``file::function``; empty where it cannot occur."""

    cannot: str = ""
    """Why it cannot occur in what exists."""


def _by(mistake: str, *tests: str) -> Pitfall:
    return Pitfall(mistake, tuple(f"tests/test_{test}" for test in tests))


def _cannot(mistake: str, why: str) -> Pitfall:
    return Pitfall(mistake, cannot=why)


ADVANTAGES = "advantages.py::test_golden_advantages"
WEIGHTS = "aggregation.py::test_golden_weights"
LOSSES = "losses.py::test_golden_losses_per_token"

PITFALLS: dict[int, Pitfall] = {
    # Normalisation and accumulation
    1: _by(
        "the mean of means of passes",
        "invariance.py::test_every_other_part_is_the_same_too",
    ),
    2: _by(
        "the denominator counts tokens that were masked before the step",
        "taking_part.py::test_a_truncated_completion_that_is_masked_leaves_the_denominator",
    ),
    3: _by(
        "the denominator shrinks with a mask made inside the loss",
        "entropy.py::test_tokens_that_are_left_out_of_the_policy_loss_stay_in_the_denominator",
        "another_sampler.py::test_tokens_that_a_correction_rejects_stay_in_the_denominator",
    ),
    4: _by("the constant length is the padded width", WEIGHTS),
    5: _cannot("a factor of the number of ranks is missing", "one process trains"),
    6: _by(
        "the denominator is that of another set of rows than the update's",
        "minibatches.py::test_each_minibatch_has_the_denominator_of_its_own_rows",
    ),
    7: _by(
        "a second code path forgets a factor",
        "sharing.py::test_a_shared_prompt_gives_values_and_gradients_of_separate_sequences",
    ),
    8: _by("one loss takes a mean over the pass", LOSSES),
    9: _by("a fully masked row counts as one token", WEIGHTS),
    10: _by(
        "nothing trains, and the result is nan",
        "aggregation.py::test_nothing_weighs_when_nothing_trains",
    ),
    11: _by("the mean over a group's tokens is taken over the batch", WEIGHTS),
    # Advantages
    12: _by("a group of one gets its raw reward", ADVANTAGES),
    13: _by(
        "float dust of equal rewards is divided by a small deviation",
        "advantages.py::test_equal_rewards_give_exactly_zero",
    ),
    14: _by("equal rewards are told by == 0", ADVANTAGES),
    15: _by(
        "a leave-one-out deviation divides",
        "advantages.py::test_one_completion_that_differs_gets_no_huge_advantage",
        "advantages.py::test_the_leave_one_out_mean_is_not_divided_by_a_leave_one_out_deviation",
    ),
    16: _by("rows are grouped by their place", ADVANTAGES),
    17: _by(
        "rows are grouped by the content of the prompt",
        "taking_part.py::test_the_same_prompt_drawn_twice_makes_two_groups",
    ),
    18: _by(
        "a reward that is missing or no number becomes 0",
        ADVANTAGES,
        "verifiers.py::test_a_verifier_that_raises_or_exits_has_failed",
        "taking_part.py::test_a_failed_verdict_leaves_the_batch_of_a_step_without_that_rollout",
    ),
    19: _by(
        "a centred advantage is taken for an unbiased one",
        "advantages.py::test_rloo_compares_with_the_mean_of_the_others",
        "exact_expectation.py::test_golden_weights_of_the_true_gradient",
    ),
    20: _by("maxrl takes negative rewards", ADVANTAGES),
    21: _by("whitening over another set than the step's trained tokens", ADVANTAGES),
    22: _by("whitening on top of the group's normalisation", ADVANTAGES),
    23: _cannot("the divergence is gathered twice", "one process trains; nothing is gathered"),
    # Log-probs
    24: _by(
        "the trainer leaves the temperature out",
        "step.py::test_the_gradient_of_a_token_is_its_weight_times_advantage_times_the_score",
        "minibatches.py::test_log_probs_of_before_the_first_update_do_not_depend_on_the_passes",
    ),
    25: _by(
        "the sampler's log-probs leave the temperature out",
        "sampling.py::test_sampling_log_probs_are_the_policys_own",
    ),
    26: _by(
        "log-probs are divided by the temperature, not logits",
        "logprobs.py::test_golden_log_probs_entropy_and_gradient",
    ),
    27: _cannot("top-p or top-k are not replayed", "the sampler has neither"),
    28: _by(
        "entropy without temperature, without gradient, or nan at an impossible token",
        "logprobs.py::test_golden_log_probs_entropy_and_gradient",
        "logprobs.py::test_an_impossible_token_contributes_nothing_to_the_entropy",
        "entropy.py::test_the_entropy_bonus_has_the_gradient_of_the_mean_entropy",
        "entropy.py::test_the_entropy_of_a_language_model_has_the_gradient_of_its_logits",
        "entropy.py::test_an_impossible_token_leaves_the_gradient_of_the_entropy_finite",
    ),
    29: _by(
        "the mask is a factor, and 0 * inf is nan",
        LOSSES,
        "losses.py::test_whatever_stands_behind_the_mask_changes_nothing",
    ),
    30: _by(
        "log-probs are computed in half precision",
        "logprobs.py::test_half_precision_logits_are_computed_in_float32",
    ),
    31: _by(
        "old log-probs depend on how the batch was cut",
        "minibatches.py::test_log_probs_of_before_the_first_update_do_not_depend_on_the_passes",
    ),
    32: _by(
        "dropout is on",
        "causal_lm.py::test_the_policy_has_no_dropout_even_if_the_model_was_in_training_mode",
    ),
    33: _by(
        "logits and tokens are one place apart",
        "sharing.py::test_log_probs_and_entropy_are_those_of_the_plain_models_whole_table",
    ),
    34: _by(
        "positions count the padding",
        "continuation.py::test_greedy_decoding_is_that_of_each_sequence_alone",
    ),
    # Losses
    35: _by(
        "a divergence's gradient is that of another one",
        "reference.py::test_a_divergence_in_the_loss_descends_the_reverse_divergence",
        "reference.py::test_a_divergence_with_a_ratio_does_so_for_samples_of_the_old_policy",
        "reference.py::test_k3_in_the_loss_descends_the_forward_divergence",
    ),
    36: _by(
        "a documented name does not run",
        "reference.py::test_every_divergence_that_a_configuration_accepts_reaches_the_gradient",
        "another_sampler.py::test_every_correction_that_a_configuration_accepts_reaches_the_gradient",
        "algorithm_docs.py::test_the_page_names_everything_that_a_configuration_accepts",
    ),
    37: _by("k3 is clamped, and its gradient goes", "kl.py::test_golden_divergences"),
    38: _by(
        "the correction is that of the current policy",
        "another_sampler.py::test_the_correction_stays_that_of_the_policy_before_the_first_update",
    ),
    39: _by(
        "product and geometric mean go by one name",
        "corrections.py::test_product_and_geometric_mean_of_a_row_are_two_corrections",
    ),
    40: _by(
        "the mismatch is measured after truncation",
        "another_sampler.py::test_the_mismatch_is_measured_before_anything_is_truncated",
    ),
    41: _by("cispo's bound is read as a distance, or the reverse", LOSSES),
    42: _by(
        "gspo with weights by length, or with a product of ratios",
        LOSSES,
        "rules.py::test_a_loss_per_sequence_with_a_weight_by_length_is_refused",
    ),
    43: _by(
        "later updates on a batch are treated as the first",
        "minibatches.py::test_every_update_on_a_batch_has_the_log_probs_of_before_the_first",
        "minibatches.py::test_a_step_makes_as_many_updates_as_epochs_times_minibatches",
    ),
    44: _by(
        "whether groups without signal have a divergence term is left to chance",
        "reference.py::test_groups_without_signal_are_held_to_the_reference_too",
    ),
    45: _by(
        "a loss of 0 is taken for nothing to learn",
        "step.py::test_an_update_raises_the_probability_of_what_was_rewarded",
    ),
    46: _by(
        "the page says something else than the code does",
        "algorithm_docs.py::test_the_table_of_presets_is_what_the_presets_hold",
        LOSSES,
    ),
    # Data, masks, layout
    47: _by(
        "the mask is made from token ids, and the stop token is the padding",
        "batch.py::test_golden_mask_with_the_stop_token_as_padding",
        "step.py::test_the_stop_token_trains_and_the_padding_behind_it_does_not",
    ),
    48: _by(
        "without a stop token the padding trains",
        "taking_part.py::test_a_short_truncated_completion_trains_its_own_tokens_only",
    ),
    49: _by(
        "tokens are made again from text",
        "engine_lm.py::test_tokens_are_never_made_again_from_text",
    ),
    50: _by(
        "boundaries of packed rows are told by positions that start again",
        "packing.py::test_each_distinct_beginning_is_there_once_and_sees_itself_and_no_other",
    ),
    51: _by(
        "groups are dropped by the shaped reward",
        "taking_part.py::test_a_punishment_for_length_brings_no_group_without_signal_back",
    ),
    52: _by(
        "completions of a shared prompt see each other",
        "sharing.py::test_a_shared_prompt_gives_values_and_gradients_of_separate_sequences",
    ),
    # Sampler
    53: _by(
        "updates never reach the sampler",
        "engine_lm.py::test_sampling_log_probs_are_the_policys_after_every_update",
    ),
    54: _by(
        "keys and values of before an update are used after it",
        "engine_lm.py::test_sampling_log_probs_are_the_policys_after_every_update",
    ),
    55: _by(
        "completions of a group are drawn from the same random numbers",
        "sampling.py::test_the_completions_of_a_prompt_differ_and_so_do_those_of_the_next_step",
    ),
    56: _by(
        "rollouts that are too old take part",
        "taking_part.py::test_a_rollout_that_is_too_old_is_left_out_before_any_mean",
    ),
    57: _by(
        "the reward that is logged is an advantage",
        "metrics.py::test_rewards_are_those_of_scored_rollouts",
    ),
}
"""By number, in the order of the sections."""
