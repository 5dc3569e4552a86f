"""Pure mathematics on tensors: no input or output, no logging, no global random state."""
