"""Groups and advantages -> tensors, and the tensors cut into minibatches and passes.

A batch holds completion tokens only, and each prompt once. Entry ``t`` of every field ``[B, T]``
speaks about completion token ``t``. Masks come from lengths, never from token ids: the id that pads
is often the id that stops.
"""

from verigrad.batch.carriers import Batch, LossOutput, Measured, Tokens
from verigrad.batch.cutting import Pass, minibatches, passes_of, select_rows
from verigrad.batch.making import Measure, lay_out, make_batch, scores_of

__all__ = [
    "Batch",
    "LossOutput",
    "Measure",
    "Measured",
    "Pass",
    "Tokens",
    "lay_out",
    "make_batch",
    "minibatches",
    "passes_of",
    "scores_of",
    "select_rows",
]
