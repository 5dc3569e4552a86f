"""Engines: what samples completions from a policy, without gradients."""

from verigrad.engines.base import Draws, Engine, Finished
from verigrad.engines.local import LocalEngine

__all__ = ["Draws", "Engine", "Finished", "LocalEngine"]
