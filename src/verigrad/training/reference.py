"""Whether another model can be the reference of a policy: its log-probs must be of the same tokens.

A token is a number to both. Where the same number means another token the divergence would be one
from nonsense, and nothing would show it.
"""

from verigrad.errors import ModelError
from verigrad.policies.base import Policy
from verigrad.policies.causal_lm import CausalLM


def check_reference(policy: Policy, reference: Policy, name: str, *, resets: bool) -> None:
    """Refuse a reference that means other tokens, or cannot become the policy where it is to.

    Args:
        policy: what is trained.
        reference: what holds it.
        name: of the reference, for people.
        resets: whether it becomes the policy from time to time.

    Raises:
        ModelError: says what differs.
    """
    if isinstance(policy, CausalLM) and isinstance(reference, CausalLM):
        _check_tokens(policy, reference, name)
    shapes = [
        {key: tuple(value.shape) for key, value in each.module.state_dict().items()}
        for each in (policy, reference)
    ]
    if resets and shapes[0] != shapes[1]:
        raise ModelError(
            f"algorithm.reference is {name!r}, whose weights are not laid out as the policy's, but "
            "algorithm.kl_reset_every has the policy copied into it; name a model of the same "
            'kind, or set kl_reset_every to "off"'
        )


def _check_tokens(policy: CausalLM, reference: CausalLM, name: str) -> None:
    known, other = policy.tokenizer.get_vocab(), reference.tokenizer.get_vocab()
    by_id = {number: token for token, number in other.items()}
    for token, number in sorted(known.items(), key=lambda item: item[1]):
        if by_id.get(number, token) != token:
            raise ModelError(
                f"algorithm.reference is {name!r}, to which token {number} is {by_id[number]!r}, "
                f"but to the policy it is {token!r}; a divergence compares the same tokens, so "
                "name a model with the policy's tokenizer"
            )
    sizes = [each.module.get_input_embeddings().num_embeddings for each in (policy, reference)]
    if sizes[1] < sizes[0]:
        raise ModelError(
            f"algorithm.reference is {name!r}, which has {sizes[1]:,} tokens, but the policy has "
            f"{sizes[0]:,} and may choose any of them; name a model with as many"
        )
