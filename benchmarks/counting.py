"""What the work of a step needs at least: floating-point operations, and bytes to and from memory.

Everything is counted once. What sequences begin with together enters the model once, a token
attends to its own sequence up to itself and to nothing else, and the vocabulary head sees only the
places that predict something. Norms, activations, lookups of embeddings and the softmax are not
counted, nor are intermediate results, which need not leave the processor. So both numbers are below
what any program needs, and a time made from them is a limit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Ids = Sequence[int]
FLOAT32 = 4
"""Bytes of a number."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a language model, what its work is counted from."""

    layer_weights: int
    """Of all matrices that each token is multiplied by in the layers."""

    head_weights: int
    """Of the vocabulary head."""

    layers: int
    query_width: int
    """Of one layer's queries, all heads together."""

    key_width: int
    """Of one layer's keys, all heads together; values are as wide."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What goes through the model in one go."""

    tokens: int
    """Places that enter the layers; their keys and values are written where there is a cache."""

    pairs: int
    """Of a place and one that it attends to, itself included."""

    predicting: int
    """Places that enter the vocabulary head."""

    cached: int = 0
    """Places whose keys and values were made before and are read."""


def sizes_of(model: Any) -> Sizes:
    """Count a Hugging Face model whose layers are made of ``torch.nn.Linear``."""
    from torch.nn import Linear

    config = model.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    linear = [part for part in model.base_model.modules() if isinstance(part, Linear)]
    return Sizes(
        layer_weights=sum(part.weight.numel() for part in linear),
        head_weights=model.get_output_embeddings().weight.numel(),
        layers=config.num_hidden_layers,
        query_width=heads * width,
        key_width=config.num_key_value_heads * width,
    )


def places(sequences: Iterable[Ids]) -> list[list[int]]:
    """Of each token of each sequence a number, the same where sequences have begun alike so far."""
    numbers: dict[tuple[int, int], int] = {}
    found = []
    for ids in sequences:
        row: list[int] = []
        for token in ids:
            before = row[-1] if row else -1
            row.append(numbers.setdefault((before, token), len(numbers)))
        found.append(row)
    return found


def training_load(rows: Sequence[tuple[Ids, Ids]]) -> Load:
    """One pass over all rows, each a prompt and a completion of at least one token.

    The last token of a completion predicts nothing and does not enter.
    """
    entering = places([*prompt, *completion[:-1]] for prompt, completion in rows)
    starts = [len(prompt) - 1 for prompt, _ in rows]
    return load_of(
        entering, {n for row, at in zip(entering, starts, strict=True) for n in row[at:]}
    )


def generation_loads(rows: Sequence[tuple[Ids, Ids]]) -> Iterator[Load]:
    """The prompts in one go, and then one more token of each row at a time."""
    sequences = places([*prompt, *completion] for prompt, completion in rows)
    lengths = [len(prompt) for prompt, _ in rows]
    prompts = [row[:length] for row, length in zip(sequences, lengths, strict=True)]
    yield load_of(prompts, {row[-1] for row in prompts})
    for step in range(1, max(len(completion) for _, completion in rows)):
        # The last token of a row is never fed.
        live = [
            row[: length + step]
            for row, length in zip(sequences, lengths, strict=True)
            if len(row) > length + step
        ]
        states = {row[-1]: len(row) for row in live}
        yield Load(
            tokens=len(states),
            pairs=sum(states.values()),
            predicting=len(states),
            cached=len({place for row in live for place in row[:-1]}),
        )


def load_of(rows: Sequence[Sequence[int]], predicting: set[int]) -> Load:
    """All places of the rows in one go."""
    attends = {place: depth for row in rows for depth, place in enumerate(row, start=1)}
    return Load(tokens=len(attends), pairs=sum(attends.values()), predicting=len(predicting))


def forward_flops(sizes: Sizes, load: Load) -> int:
    """A product and a sum for each weight and token, and for each pair's query, key and value."""
    layers = sizes.layer_weights * load.tokens
    attention = 2 * sizes.layers * sizes.query_width * load.pairs
    return 2 * (layers + attention + sizes.head_weights * load.predicting)


def training_flops(sizes: Sizes, load: Load) -> int:
    """Forwards, and backwards once for the inputs and once for the weights of each product."""
    return 3 * forward_flops(sizes, load)


def generation_bytes(sizes: Sizes, load: Load) -> int:
    """The weights and the keys and values of before are read, those of the new tokens written."""
    weights = sizes.layer_weights + sizes.head_weights
    kept = 2 * sizes.layers * sizes.key_width * (load.cached + load.tokens)
    return FLOAT32 * (weights + kept)


def training_bytes(sizes: Sizes) -> int:
    """The weights are read forwards and backwards, and their gradients written."""
    return FLOAT32 * 3 * (sizes.layer_weights + sizes.head_weights)
