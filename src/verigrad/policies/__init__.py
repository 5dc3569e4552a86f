"""Policies: what scores completions with gradients and is trained."""
