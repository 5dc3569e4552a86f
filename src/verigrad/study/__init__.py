"""A bench for estimators: many runs at once, and the exact bias and variance of gradients."""

from verigrad.study.estimators import Estimate, exact_estimate
from verigrad.study.report import Result, algorithm_of, settings, study
from verigrad.study.runs import Setting, run_many

__all__ = [
    "Estimate",
    "Result",
    "Setting",
    "algorithm_of",
    "exact_estimate",
    "run_many",
    "settings",
    "study",
]
