"""A Hugging Face causal language model as a policy.

Whatever prompts and completions begin with together is run once, with gradients, and what differs
beside it, laid end to end under a mask that keeps sequences apart (see ``policies.packing``).
Whether that is exact for a model is checked when the policy is made; where it is not, the policy
says so once and runs every sequence alone.
"""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verigrad.batch import Tokens
from verigrad.core.head import head_scores
from verigrad.core.logprobs import entropy, token_log_probs
from verigrad.policies.base import Continuation, TokenScores
from verigrad.policies.continuation import PlainContinuation, SharedContinuation
from verigrad.policies.forward import hidden_states, plain_head, plain_logits, run_row
from verigrad.policies.models import render, stop_token_ids
from verigrad.policies.packing import Packed, distinct, pack
from verigrad.policies.precision import CastOnce, Precision, lower_layers
from verigrad.policies.quiet import quiet_transformers
from verigrad.types import Problem, Prompt

logger = logging.getLogger("verigrad")

EXACT_WITHIN = 1e-3
"""Largest difference of any log-prob at which the shared path counts as exact for a model.

The order of float32 sums alone moves the log-probs of unlikely tokens by up to 1e-4, as it does
between batches of different sizes; a wrong mask or position moves them by 0.1 and more."""


class CausalLM:
    """Scores, continues and saves a causal language model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        shares_prompts: bool | None = None,
        precision: Precision = "float32",
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: a transformers causal language model. It is put in evaluation mode and stays
                there: with dropout the policy that is scored would not be the one that sampled.
            tokenizer: its tokenizer.
            shares_prompts: whether each prompt's work is shared by its completions; None finds
                out whether that is exact for this model.
            precision: what the layers compute in; a model whose head is not a layer of its own says
                so and is left as it is.
        """
        self.module = model.eval()
        # The embedding of a padding id gets no gradient, and the padding id is often the stop id,
        # which ends every turn of a prompt. Nothing is padded here, so every token trains.
        model.get_input_embeddings().padding_idx = None
        self.tokenizer = tokenizer
        self.stop_token_ids = stop_token_ids(model, tokenizer)
        self.max_positions = _max_positions(model)
        self.shares_prompts = _is_exact(model) if shares_prompts is None else shares_prompts
        self._head = plain_head(model) if self.shares_prompts else None
        # After the checks, which are about masks and positions and must not see the rounding.
        self.precision = precision if precision == "float32" else _lowered(model)

    def encode(self, problem: Problem) -> Prompt:
        """Render the prompt with the chat template, or as plain text where there is none."""
        return Prompt(
            problem_id=problem.id, token_ids=tuple(render(self.tokenizer, problem.prompt))
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the tokens, without special tokens."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def continuation(self, prompts: Sequence[Prompt], completions: int) -> Continuation:
        """Start rows from prompts."""
        ids = [prompt.token_ids for prompt in prompts]
        kind = SharedContinuation if self.shares_prompts else PlainContinuation
        start = partial(kind, self.module, ids, completions)
        return start() if self.precision == "float32" else CastOnce(self.module, start)

    def score(
        self, tokens: Tokens, temperature: float, *, entropy_gradient: bool = False
    ) -> TokenScores:
        """Log-probs and entropy of tokens; see ``policies.base.Policy``."""
        mask = tokens.mask
        if not mask.any():
            nothing = torch.zeros(mask.shape, dtype=self.module.dtype, device=mask.device)
            return TokenScores(log_probs=nothing, entropy=nothing)
        chosen = tokens.token_ids[mask]
        if self._head is not None:
            packed, predictors = lay_out(tokens)
            places, ids, back = distinct(predictors, chosen, self._head.out_features)
            weight, bias = self._head.weight, self._head.bias
            hidden = hidden_states(self.module, packed, places).to(weight.dtype)
            log_probs, nats = (
                values.index_select(0, back)
                for values in head_scores(
                    hidden, weight, bias, ids, temperature, entropy_gradient=entropy_gradient
                )
            )
        else:
            logits_of = shared_logits if self.shares_prompts else separate_logits
            logits = logits_of(self.module, tokens)
            log_probs = token_log_probs(logits, chosen, temperature)
            nats = entropy(logits if entropy_gradient else logits.detach(), temperature)
        zeros = torch.zeros(mask.shape, dtype=log_probs.dtype, device=log_probs.device)
        return TokenScores(
            log_probs=zeros.masked_scatter(mask, log_probs),
            entropy=zeros.masked_scatter(mask, nats),
        )

    def save(self, folder: Path) -> None:
        """Write a folder that ``AutoModelForCausalLM`` and ``AutoTokenizer`` load."""
        with quiet_transformers():
            self.module.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def lay_out(batch: Tokens) -> tuple[Packed, Tensor]:
    """The sequences in one row, and where each trained token is predicted.

    Every token is there except the last of a completion, which predicts nothing. The second value,
    ``[mask.sum()]``, holds the place that predicts each trained token, row by row: that of the
    prompt's last for the first token of a completion, and of its predecessor for each other one.
    """
    prompts = [batch.prompts[group].token_ids for group in batch.group_index.tolist()]
    completions = [
        ids[: max(0, length - 1)]
        for ids, length in zip(batch.token_ids.tolist(), batch.lengths.tolist(), strict=True)
    ]
    packed, places = pack(
        [[*prompt, *ids] for prompt, ids in zip(prompts, completions, strict=True)],
        str(batch.mask.device),
    )
    last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=places.device)
    columns = last.unsqueeze(1) + torch.arange(batch.mask.shape[1], device=places.device)
    return packed, places.gather(1, columns.clamp(max=places.shape[1] - 1))[batch.mask]


def shared_logits(model: Any, batch: Tokens) -> Tensor:
    """Logits that predict the batch's trained tokens, row by row: ``[mask.sum(), V]``.

    Tokens enter the model once for each distinct beginning that they end, and the head sees each
    place that predicts a trained token once.
    """
    packed, predictors = lay_out(batch)
    places, back = torch.unique(predictors, return_inverse=True)
    return run_row(model, packed, None, places).index_select(0, back)


def separate_logits(model: Any, batch: Tokens) -> Tensor:
    """The same logits with every sequence run alone, prompt included."""
    parts = []
    for row, (group, length) in enumerate(
        zip(batch.group_index.tolist(), batch.lengths.tolist(), strict=True)
    ):
        prompt = list(batch.prompts[group].token_ids)
        if length:
            completion = batch.token_ids[row, :length].tolist()
            logits = plain_logits(model, prompt + completion, len(prompt))
            parts.append(logits[batch.mask[row, :length]])
    return torch.cat(parts)


def _max_positions(model: Any) -> int | None:
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit


def _lowered(model: Any) -> Precision:
    """The precision of a model whose layers were to compute in bfloat16."""
    if lower_layers(model):
        return "bfloat16"
    logger.warning(
        "the vocabulary head of %s is not a layer of its own; all of it computes in float32",
        type(model).__name__,
    )
    return "float32"


def _is_exact(model: Any) -> bool:
    """Whether a prompt may be shared by its completions; says why not where it may not."""
    reason = _why_not_exact(model)
    if reason is not None:
        logger.warning(
            "%s %s; every sequence runs alone, which is exact and slower",
            type(model).__name__, reason,
        )  # fmt: skip
    return reason is None


@torch.no_grad()
def _why_not_exact(model: Any) -> str | None:
    """Compare the shared paths with separate sequences on a few tokens; None when they agree."""
    # Such layers may have windows that count places in the row, beyond what a few tokens reach.
    if not getattr(model, "_supports_attention_backend", False):
        return "has layers that do not take their attention mask from outside"
    prompts = [[3, 1, 4, 1, 5], [2, 3]]
    completions = [[5, 3, 5], [5, 4], [1, 2]]
    groups = [0, 0, 1]
    wanted = [
        plain_logits(model, prompts[group] + ids, len(prompts[group])).log_softmax(-1)
        for group, ids in zip(groups, completions, strict=True)
    ]
    try:
        difference = max(
            _difference(_probe_scores(model, prompts, completions, groups), torch.cat(wanted)),
            _difference(_probe_steps(model, prompts), torch.stack([wanted[0][1], wanted[2][1]])),
        )
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError,
            ValueError) as error:  # fmt: skip
        return f"does not take a prompt shared by its completions ({type(error).__name__}: {error})"
    if difference > EXACT_WITHIN:
        return f"has log-probs that a prompt shared by its completions changes by {difference:.1e}"
    return None


def _difference(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max())


def _probe_scores(
    model: Any, prompts: list[list[int]], completions: list[list[int]], groups: list[int]
) -> Tensor:
    """Log-probs through the training path."""
    lengths = torch.tensor([len(ids) for ids in completions])
    mask = torch.arange(3) < lengths.unsqueeze(1)
    device = next(model.parameters()).device
    flat = torch.tensor([token for ids in completions for token in ids])
    tokens = Tokens(
        prompts=tuple(Prompt(problem_id="", token_ids=tuple(ids)) for ids in prompts),
        group_index=torch.tensor(groups, device=device),
        token_ids=torch.zeros(mask.shape, dtype=torch.int64).masked_scatter(mask, flat).to(device),
        lengths=lengths.to(device),
        mask=mask.to(device),
        sampling_log_probs=torch.zeros(mask.shape),
    )
    return shared_logits(model, tokens).log_softmax(-1)


def _probe_steps(model: Any, prompts: list[list[int]]) -> Tensor:
    """Log-probs of the second token through the generating path, after 5 and after 1."""
    device = next(model.parameters()).device
    rows = SharedContinuation(model, prompts, 1)
    rows.advance(torch.tensor([0, 1], device=device), torch.tensor([5, 1], device=device))
    logits, states = rows.logits()
    return logits[states].log_softmax(-1)
