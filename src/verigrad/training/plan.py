"""What a run would do and need, said before any weights are loaded.

Memory is an estimate of the process's peak: weights, gradients and the two moments of AdamW are
exact; activations are those of one pass at the token budget, with about 20 vectors of the hidden
size kept per layer and token (with activation checkpointing one a layer, and 20 in the one that is
run again; in bfloat16 the room of 14, beside the weights as they were cast); logits are those that
exist at a time, in training and when a token of every completion is drawn; to which come the copy
that a checkpoint is written from, and Python with its libraries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verigrad.algorithms import Divergence
from verigrad.config import Config
from verigrad.core.head import LOGITS_AT_ONCE
from verigrad.escaping import one_line
from verigrad.policies.models import count_parameters, load_model_config
from verigrad.policies.precision import Precision
from verigrad.tasks import Prepared, Split, Task, task_of
from verigrad.training.checks import checked_algorithm
from verigrad.training.decisions import choose_precision
from verigrad.training.folder import check_free
from verigrad.training.memory import SHARE, available, in_words, limit_of
from verigrad.training.preflight import BOUNDS, DEFAULT, bounded
from verigrad.training.problems import checked_split, describe_split, finite
from verigrad.training.setup import device_for

FLOAT = 4
HALF = 2
"""Bytes of a weight in bfloat16."""
VECTORS_PER_LAYER = {"float32": 20, "bfloat16": 14}
LIBRARIES = 400_000_000
CHECKPOINTED = 3
"""Numbers per parameter in a checkpoint: the weight and two moments."""
LOGIT_TABLES = 3
DRAWN_LOGIT = 5 * FLOAT
"""Bytes per logit when tokens are drawn: it, its probability, and their sums in float64."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """What matters about a model for memory and disk."""

    parameters: int
    layers: int
    hidden: int
    vocabulary: int


def plan(config: Config) -> str:
    """Describe a run in problems, completions, tokens, memory and disk.

    Args:
        config: the run; its task is made and its model's configuration read, but no weights.

    Raises:
        UserError: the task, the model or the run folder cannot be used.
    """
    check_free(config.run.folder)
    algorithm = checked_algorithm(config)
    task = task_of(config)
    parts = checked_split(task, config)
    size = _size(config, task)
    run, sampling = config.run, config.sampling
    drawn = run.steps * sampling.problems
    rows = sampling.problems * sampling.completions
    term = algorithm.divergence
    lines = {
        "task": f"{task.name}: {describe_split(parts)}",
        "model": f"{config.model.name}: {size.parameters:,} parameters, all of them trained"
        + ("; layers compute in bfloat16" if _precision(config) == "bfloat16" else ""),
        "algorithm": algorithm.name,
        "a step": f"{sampling.problems} problems x {sampling.completions} completions = {rows} "
        f"completions of at most {sampling.max_new_tokens} tokens = at most "
        f"{rows * sampling.max_new_tokens:,} new tokens",
        "the run": f"{run.steps} steps draw {drawn:,} problems{_how_often(drawn, parts)}, and at "
        f"most {drawn * sampling.completions * sampling.max_new_tokens:,} new tokens",
        "evaluation": _evaluations(config, len(parts.held_out)),
        "passes": _passes(config),
        "memory": f"about {in_words(_memory(config, size, term))}{_with_passes(config)}",
        "limit": _limit(config),
        "disk": _disk(config, size, term, bool(parts.held_out)),
        "folder": run.folder or f"the next free runs/{task.name}-N",
    }
    notes = task.notes if isinstance(task, Prepared) else ()
    if notes:
        lines["data"] = "; ".join(notes)
    if algorithm.notes:
        lines["note"] = "; ".join(algorithm.notes)
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {one_line(text)}" for name, text in lines.items())


def _how_often(drawn: int, parts: Split) -> str:
    if not isinstance(parts.training, Sequence):
        return ""
    return f", each about {drawn / len(parts.training):.1f} times"


def _evaluations(config: Config, held_out: int) -> str:
    problems = min(held_out, config.evaluation.problems)
    if not problems:
        return "none"
    every, steps = config.evaluation.every, config.run.steps
    during = (steps - 1) // every if every else 0
    return f"greedy on {problems} held-out problems, {2 + during} times: before, after" + (
        f", and every {every} steps" if during else ""
    )


def _passes(config: Config) -> str:
    """The token budget, as far as it is known before the preflight."""
    budget = config.run.token_budget
    if budget != "auto":
        return f"at most {budget:,} tokens in each"
    if config.model.name == "tabular":
        return f"at most {DEFAULT:,} tokens in each"
    low, high = BOUNDS["cuda" if device_for(config).startswith("cuda") else "cpu"]
    return (
        f"at most {low:,} to {high:,} tokens in each, by the largest group, or fewer where memory "
        "has no room; a preflight before the first step decides"
    )


def _with_passes(config: Config) -> str:
    chosen_later = config.run.token_budget == "auto" and config.model.name != "tabular"
    return f", if passes have {_tokens(config):,} tokens" if chosen_later else ""


def _tokens(config: Config) -> int:
    """The token budget as the completions alone ask for it, where it is not given."""
    budget = config.run.token_budget
    if budget != "auto":
        return budget
    sampling = config.sampling
    return bounded(sampling.completions * sampling.max_new_tokens, device_for(config))


def _limit(config: Config) -> str:
    """What memory there is for a language model."""
    if config.model.name == "tabular":
        return "none: the passes of a table take next to nothing"
    device, setting = device_for(config), config.run.memory_limit
    limit, there = limit_of(setting, device), available(device)
    if device.startswith("cuda") and there is None:
        return f"unknown: there is no device {device} here"
    if limit is None or there is None:
        return "none: this system does not say how much memory a process takes"
    why = f"{SHARE:.0%} of what is here" if setting == "auto" else "run.memory_limit"
    return f"{in_words(limit)} of memory ({why}); passes get smaller before it is reached"


def _precision(config: Config) -> Precision:
    return choose_precision(config.model.precision, device_for(config))


def _memory(config: Config, size: Size, term: Divergence | None) -> int:
    states = FLOAT * (4 * size.parameters + _referred(config, size, term))
    tokens = _tokens(config)
    precision = _precision(config)
    if precision == "bfloat16":
        states += HALF * size.parameters
    vectors = VECTORS_PER_LAYER[precision]
    kept = size.layers * vectors
    if config.model.activation_checkpointing:
        kept = size.layers + vectors
    activations = tokens * size.hidden * kept * FLOAT
    rows = config.sampling.problems * config.sampling.completions
    trained = LOGIT_TABLES * FLOAT * min(LOGITS_AT_ONCE, tokens * size.vocabulary)
    side_by_side = max(config.sampling.completions, min(config.sampling.rows_at_once, rows))
    drawn = DRAWN_LOGIT * side_by_side * size.vocabulary
    copy = (CHECKPOINTED + _is_state(term)) * FLOAT * size.parameters
    return LIBRARIES + states + copy + activations + max(trained, drawn)


def _referred(config: Config, size: Size, term: Divergence | None) -> int:
    """Parameters of the reference policy: another model, or a copy of the policy."""
    if term is None:
        return 0
    if term.reference == "start" or config.model.name == "tabular":
        return size.parameters
    return count_parameters(load_model_config(term.reference))


def _disk(config: Config, size: Size, term: Divergence | None, held_out: bool) -> str:
    """What the checkpoints and the final policy take."""
    every, steps = config.checkpoint.every, config.run.steps
    made = -(-steps // every) if every else 1
    # The best of them is kept too, if one before the last is saved in a step that is evaluated.
    both = math.lcm(every, config.evaluation.every if held_out else 0)
    best = config.checkpoint.best and config.evaluation.problems > 0 and 0 < both < steps
    kept = min(made, config.checkpoint.keep + best)
    # One more while the newest is written, before the oldest goes.
    at_most = min(made, kept + 1)
    numbers = (CHECKPOINTED + _is_state(term)) * at_most + 1
    return (
        f"about {in_words(numbers * FLOAT * size.parameters)}: {kept} "
        f"checkpoint{'s' if kept > 1 else ''} at once and the final policy"
    )


def _is_state(term: Divergence | None) -> bool:
    """Whether the reference policy is reset, and so belongs into a checkpoint."""
    return term is not None and term.reset_every is not None


def _size(config: Config, task: Task) -> Size:
    if config.model.name == "tabular":
        positions, answers = config.sampling.max_new_tokens, 10
        count = len(finite(task)) * positions * answers
        return Size(parameters=count, layers=1, hidden=1, vocabulary=answers)
    model: Any = load_model_config(config.model.name)
    text = model.get_text_config()
    return Size(
        parameters=count_parameters(model),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
    )
