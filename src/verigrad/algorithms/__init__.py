"""Algorithms: values that hold their functions; presets by the names people know."""

from verigrad.algorithms.algorithm import Algorithm, Divergence, EntropyBonus, Scores
from verigrad.algorithms.build import algorithm_from
from verigrad.algorithms.presets import PRESETS, Recipe

__all__ = [
    "PRESETS",
    "Algorithm",
    "Divergence",
    "EntropyBonus",
    "Recipe",
    "Scores",
    "algorithm_from",
]
