"""Engines: what samples completions from a policy, without gradients."""

from verigrad.engines.base import Draws, Engine
from verigrad.engines.local import LocalEngine

__all__ = ["Draws", "Engine", "LocalEngine"]
