"""What is exact for a model: tried on a few tokens when a policy is made."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from verigrad.batch import Tokens
from verigrad.core.logprobs import token_log_probs
from verigrad.errors import ModelError
from verigrad.policies.base import Policy, device_of
from verigrad.policies.continuation import PlainContinuation
from verigrad.policies.folders import one_line
from verigrad.policies.forward import plain_logits, separate_logits
from verigrad.types import Prompt

WITHIN = 1e-3
"""Largest difference of any log-prob at which a path counts as exact for a model.

The order of float32 sums alone moves the log-probs of unlikely tokens by up to 1e-4, as it does
between batches of different sizes; a wrong mask or position moves them by 0.1 and more."""

GRADIENT_WITHIN = 1e-2
"""Largest difference of the gradient, relative to it: sums move it by 1e-4, a mistake by 0.1."""

TINY = 1e-30
"""Keeps a gradient of zeros from dividing."""

RAISED = (
    AttributeError,
    IndexError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a model raises that does not take what it is given."""

FORESIGHT = 1e-4
"""Largest difference, relative to the logits, that another token behind may make by rounding."""

PROMPTS = ((3, 1, 4, 1, 5), (2, 3))
COMPLETIONS = ((5, 3, 5), (5, 4), (1, 2))
GROUPS = (0, 0, 1)


def why_not_exact(policy: Policy) -> str | None:
    """Compare the fast paths with separate sequences; None when they agree.

    Log-probs and their gradient in training, and log-probs with a prompt that is run for several
    passes and while generating.
    """
    # Such layers may have windows that count places in the row, beyond what a few tokens reach.
    if not getattr(policy.module, "_supports_attention_backend", False):
        return "has layers that do not take their attention mask from outside"
    device = device_of(policy)
    tokens = _tokens(GROUPS, device)
    first = _tokens(GROUPS[:2], device)
    try:
        alone = token_log_probs(
            separate_logits(policy.module, tokens), tokens.token_ids[tokens.mask], 1.0
        )
        together = policy.score(tokens, 1.0).log_probs[tokens.mask]
        gradients = [_gradient(policy.module, log_probs) for log_probs in (alone, together)]
        behind = policy.score(first, 1.0, shared=policy.share(first.prompts[0])).log_probs
        difference = max(
            _largest(together - alone),
            _largest(behind[first.mask] - alone[:5]),
            _largest(_second_tokens(policy, tokens) - alone[[1, 6]]),
        )
        apart = _largest(gradients[1] - gradients[0]) / max(_largest(gradients[0]), TINY)
    except torch.OutOfMemoryError:
        raise
    except RAISED as error:
        return f"does not take a prompt shared by its completions ({type(error).__name__}: {error})"
    if difference > WITHIN:
        return f"has log-probs that a prompt shared by its completions changes by {difference:.1e}"
    if apart > GRADIENT_WITHIN:
        return f"has gradients that a prompt shared by its completions changes by {apart:.1e}"
    return None


@torch.no_grad()
def check_no_foresight(model: Any) -> None:
    """Refuse a model in which a token changes what is predicted before it.

    Raises:
        ModelError: it does, as in one that was trained to fill gaps (BERT): what is trained on
            whole completions would not be what they were drawn from. Or it cannot be run at all.
    """
    ids = torch.tensor([[3, 1, 4], [3, 1, 5]], device=model.device)
    vocabulary = model.get_input_embeddings().num_embeddings
    try:
        logits = model(input_ids=ids % vocabulary, use_cache=False).logits[:, :2]
    except torch.OutOfMemoryError:
        raise
    except RAISED as error:
        raise ModelError(
            f"{type(model).__name__} cannot be run on three tokens ({one_line(error)}); its "
            "config.json does not fit its kind of model, or asks for what is not installed"
        ) from error
    apart = float((logits[1] - logits[0]).abs().max() / logits.abs().max().clamp(min=TINY))
    if apart > FORESIGHT:
        raise ModelError(
            f"{type(model).__name__} predicts a token from those after it too (another one behind "
            f"changes its logits by {apart:.1e} of the largest), so it is no causal language model "
            'and cannot continue a prompt; set "is_decoder" to true in its config.json if it was '
            "trained as one, or choose a model such as Llama or Qwen"
        )


@torch.no_grad()
def goes_on(model: Any) -> bool:
    """Whether a model goes on from what it keeps of the tokens before as if it ran them again."""
    prompt, ids = (list(some) for some in (PROMPTS[0], COMPLETIONS[0]))
    try:
        rows = PlainContinuation(model, [Prompt(problem_id="", token_ids=tuple(prompt))], 1)
        found = [rows.logits()[0]]
        for token in ids[:-1]:
            one = torch.tensor([token], device=model.device)
            rows.advance(torch.zeros_like(one), one)
            found.append(rows.logits()[0])
    except torch.OutOfMemoryError:
        raise
    except RAISED:
        return False
    wanted = plain_logits(model, [*prompt, *ids], len(prompt))
    return _largest(torch.cat(found).log_softmax(-1) - wanted.log_softmax(-1)) <= WITHIN


def _tokens(groups: tuple[int, ...], device: str) -> Tokens:
    completions = [torch.tensor(ids) for ids in COMPLETIONS[: len(groups)]]
    token_ids = pad_sequence(completions, batch_first=True)
    lengths = torch.tensor([len(ids) for ids in completions])
    mask = torch.arange(token_ids.shape[1]) < lengths.unsqueeze(1)
    return Tokens(
        prompts=tuple(
            Prompt(problem_id="", token_ids=PROMPTS[group]) for group in range(max(groups) + 1)
        ),
        group_index=torch.tensor(groups, device=device),
        token_ids=token_ids.to(device),
        lengths=lengths.to(device),
        mask=mask.to(device),
        sampling_log_probs=torch.zeros(mask.shape, device=device),
    )


def _gradient(module: nn.Module, log_probs: Tensor) -> Tensor:
    """Of some sum of the log-probs, with respect to what is small: gains and biases, if any.

    One zero where nothing trains.
    """
    training = sorted(
        (value for value in module.parameters() if value.requires_grad), key=Tensor.numel
    )
    small = [value for value in training if value.dim() == 1] or training[:1]
    if not small:
        return torch.zeros(1, device=log_probs.device)
    weights = torch.arange(1, len(log_probs) + 1, device=log_probs.device)
    gradients = torch.autograd.grad((log_probs * weights).sum(), small, allow_unused=True)
    return torch.cat([gradient for gradient in gradients if gradient is not None])


@torch.no_grad()
def _second_tokens(policy: Policy, tokens: Tokens) -> Tensor:
    """Log-probs of the second token of a completion of each prompt, through the generating path."""
    device = tokens.token_ids.device
    rows = policy.continuation(tokens.prompts[:1], 1)
    rows.admit(tokens.prompts[1:], 1)
    first = tokens.token_ids[[0, 2]]
    rows.advance(torch.tensor([0, 1], device=device), first[:, 0])
    logits, states = rows.logits()
    return token_log_probs(logits, first[:, 1], 1.0, states)


def _largest(values: Tensor) -> float:
    return float(values.detach().abs().max())
