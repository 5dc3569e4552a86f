"""A Hugging Face causal language model as a policy.

Whatever prompts and completions begin with together is run once, with gradients, and what differs
beside it, laid end to end under a mask that keeps sequences apart (see ``policies.packing``).
Whether that is exact for a model is checked when the policy is made; where it is not, the policy
says so once and runs every sequence alone.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from verigrad.batch import Tokens
from verigrad.core.head import head_scores
from verigrad.core.logprobs import entropy, token_log_probs
from verigrad.policies.attention import KeysValues, PackedAttention, Rule
from verigrad.policies.base import Continuation, TokenScores, device_of
from verigrad.policies.continuation import (
    PlainContinuation,
    SharedContinuation,
    WholeContinuation,
)
from verigrad.policies.exactness import check_no_foresight, goes_on, why_not_exact
from verigrad.policies.forward import hidden_states, logits_of, plain_head, separate_logits
from verigrad.policies.models import render, stop_token_ids
from verigrad.policies.packing import Packed, distinct, pack
from verigrad.policies.precision import CastOnce, Precision, lower_layers
from verigrad.policies.quiet import quiet_transformers
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.types import Problem, Prompt

logger = logging.getLogger("verigrad")


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

        Raises:
            ModelError: the model predicts a token from those after it too, or cannot be run.
        """
        self.module = model.eval()
        check_no_foresight(model)
        # The embedding of a padding id gets no gradient, and the padding id is often the stop id,
        # which ends every turn of a prompt. Nothing is padded here, so every token trains.
        for table in model.modules():
            if isinstance(table, nn.Embedding):
                table.padding_idx = None
        self.tokenizer = tokenizer
        self.stop_token_ids = stop_token_ids(model, tokenizer)
        self.max_positions = _max_positions(model)
        self.precision: Precision = "float32"
        self._vocabulary = model.get_input_embeddings().num_embeddings
        self.shares_prompts = shares_prompts is not False
        self._head = plain_head(model) if self.shares_prompts else None
        self._rows: Callable[[Any, Sequence[Prompt], int], Continuation] = SharedContinuation
        if shares_prompts is None and (reason := why_not_exact(self)) is not None:
            self.shares_prompts, self._head = False, None
            logger.warning(
                "%s %s; every sequence runs alone, which is exact and slower",
                type(model).__name__, reason,
            )  # fmt: skip
        if not self.shares_prompts:
            self._rows = PlainContinuation if goes_on(model) else WholeContinuation
        # After the checks, which are about masks and positions and must not see the rounding.
        if precision == "bfloat16":
            self.precision = _lowered(model)

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
        start = partial(self._rows, self.module, prompts, completions)
        return start() if self.precision == "float32" else CastOnce(self.module, start)

    def share(self, prompt: Prompt) -> SharedPrompt | None:
        """Run a prompt for several passes; see ``policies.base.Policy``."""
        if not self.shares_prompts:
            return None
        packed, _ = pack([prompt.token_ids], device_of(self))
        layers: dict[int, KeysValues] = {}
        last = torch.tensor([len(prompt.token_ids) - 1], device=packed.position.device)
        outputs = self._outputs(packed, PackedAttention(packed, kept=layers), last)
        shared = SharedPrompt.of(len(prompt.token_ids), outputs, layers)
        # What the graph may refer to would otherwise hold the graph.
        layers.clear()
        return shared

    def score(
        self,
        tokens: Tokens,
        temperature: float,
        *,
        entropy_gradient: bool = False,
        shared: SharedPrompt | None = None,
    ) -> TokenScores:
        """Log-probs and entropy of tokens; see ``policies.base.Policy``."""
        mask = tokens.mask
        if not mask.any():
            nothing = torch.zeros(mask.shape, dtype=self.module.dtype, device=mask.device)
            return TokenScores(log_probs=nothing, entropy=nothing)
        chosen = tokens.token_ids[mask]
        if self.shares_prompts:
            outputs, ids, back = self._predictions(tokens, chosen, shared)
        else:
            outputs, ids, back = separate_logits(self.module, tokens), chosen, None
        log_probs, nats = self._judge(outputs, ids, temperature, entropy_gradient)
        if back is not None:
            log_probs, nats = log_probs.index_select(0, back), nats.index_select(0, back)
        zeros = torch.zeros(mask.shape, dtype=log_probs.dtype, device=log_probs.device)
        return TokenScores(
            log_probs=zeros.masked_scatter(mask, log_probs),
            entropy=zeros.masked_scatter(mask, nats),
        )

    def _predictions(
        self, tokens: Tokens, chosen: Tensor, shared: SharedPrompt | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What predicts each distinct pair of a beginning and the token after it.

        Returns:
            Hidden states or logits ``[M, H or V]``, the tokens ``[M]``, and which of the pairs each
            chosen token is, ``[mask.sum()]``.
        """
        packed, predictors = lay_out(tokens)
        places, ids, back = distinct(predictors, chosen, self._vocabulary)
        if shared is None:
            return self._outputs(packed, PackedAttention(packed), places), ids, back
        # All sequences begin with the prompt, whose last token predicts the first of each.
        first = shared.prefix.tokens
        packed, places = packed.behind(first), places - first
        inside = places >= 0
        last = shared.last.expand(int((~inside).sum()), -1)
        if not inside.any():
            return last, ids, back
        rule = PackedAttention(packed, prefix=shared.prefix)
        outputs = self._outputs(packed, rule, places[inside])
        # By place, so that those of the prompt come first.
        return torch.cat([last, outputs]), ids, back

    def _outputs(self, packed: Packed, rule: Rule, keep: Tensor) -> Tensor:
        """What the head sees at some places of a row, or gives where it is not a plain product."""
        run = logits_of if self._head is None else hidden_states
        row, position = packed.token_ids.unsqueeze(0), packed.position.unsqueeze(0)
        return run(self.module, row, position, rule, keep)[0]

    def _judge(
        self, outputs: Tensor, ids: Tensor, temperature: float, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropy from what :meth:`_outputs` gives."""
        if self._head is not None:
            weight, bias = self._head.weight, self._head.bias
            hidden = outputs.to(weight.dtype)
            return head_scores(
                hidden, weight, bias, ids, temperature, entropy_gradient=entropy_gradient
            )
        nats = entropy(outputs if entropy_gradient else outputs.detach(), temperature)
        return token_log_probs(outputs, ids, temperature), nats

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


def _max_positions(model: Any) -> int | None:
    """Most positions that the model knows, whatever is beside a sequence.

    Some models encode positions in another way as soon as one in the row is beyond the length that
    they were first trained with (LongRoPE, dynamic NTK): then those of the tokens before mean
    something else than when these were sampled. Such a model ends at that length here.
    """
    config = model.config.get_text_config()
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    changing = [
        some.get("original_max_position_embeddings", limit)
        for some in (rope, *(value for value in rope.values() if isinstance(value, dict)))
        if some.get("rope_type") in ("longrope", "dynamic")
    ]
    return min((length for length in (limit, *changing) if length is not None), default=None)


def _lowered(model: Any) -> Precision:
    """The precision of a model whose layers were to compute in bfloat16."""
    if lower_layers(model):
        return "bfloat16"
    logger.warning(
        "the vocabulary head of %s is not a layer of its own; all of it computes in float32",
        type(model).__name__,
    )
    return "float32"
