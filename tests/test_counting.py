"""What a step needs at least, by hand and by torch's own counter."""

import pytest
import torch
from running import load_benchmark
from tiny import tiny_model
from torch.utils.flop_counter import FlopCounterMode

counting = load_benchmark("counting")
Load, Sizes = counting.Load, counting.Sizes

# Of a layer: queries and outputs 32 x 32, keys and values 32 x 16, and three matrices of 32 x 64.
TINY = Sizes(layer_weights=18432, head_weights=2048, layers=2, query_width=32, key_width=16)

ROWS = [((7, 8), (5, 6, 1)), ((7, 8), (5, 9, 1)), ((4,), (1, 2))]
"""Two completions of one prompt begin with the same token."""


def test_a_model_is_counted_without_its_embeddings():
    assert counting.sizes_of(tiny_model("llama")) == TINY


def test_training_counts_each_place_once_and_without_last_tokens():
    # The places 7, 8, 5, then 6 and 9 beside each other, and 4, 1; all but the first predict.
    assert counting.training_load(ROWS) == Load(tokens=7, pairs=17, predicting=6)


def test_generation_counts_prompts_and_then_a_token_at_a_time():
    assert list(counting.generation_loads(ROWS)) == [
        Load(tokens=3, pairs=4, predicting=2),
        Load(tokens=2, pairs=5, predicting=2, cached=3),
        Load(tokens=2, pairs=8, predicting=2, cached=3),
    ]


def test_the_operations_of_a_tiny_model_are_those_by_hand():
    load = Load(tokens=5, pairs=9, predicting=4)
    # 2 x (5 x 18,432 + 9 pairs x 2 layers x 2 x 32 + 4 x 2,048)
    assert counting.forward_flops(TINY, load) == 203_008
    assert counting.training_flops(TINY, load) == 609_024


def test_the_bytes_of_a_tiny_model_are_those_by_hand():
    # 4 x (20,480 weights + 5 places x 2 layers x 2 x 16)
    load = Load(tokens=2, pairs=5, predicting=2, cached=3)
    assert counting.generation_bytes(TINY, load) == 83_200
    assert counting.training_bytes(TINY) == 245_760


@pytest.mark.parametrize("length", [1, 5, 12])
def test_torch_counts_as_many_operations(length):
    model = tiny_model("llama", attention="eager")
    # Plain attention computes all pairs, those that may not attend too.
    load = Load(tokens=length, pairs=length**2, predicting=length)
    with FlopCounterMode(display=False) as forwards:
        logits = model(torch.arange(length).unsqueeze(0), use_cache=False).logits
    with FlopCounterMode(display=False) as backwards:
        logits.sum().backward()
    forward = counting.forward_flops(TINY, load)
    assert forwards.get_total_flops() == forward
    assert forward + backwards.get_total_flops() == counting.training_flops(TINY, load)
