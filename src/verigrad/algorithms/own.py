"""An algorithm of the user's own, held to what each of its functions has to give.

A loss of one number per row would be spread over the rows of a batch as if they were tokens, where
there happen to be as many of the one as of the other: another objective, and nothing would show it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verigrad.algorithms.algorithm import Algorithm
from verigrad.errors import ConfigError, VerigradError
from verigrad.userfile import describe_failure, load_from_file

Shapes = dict[str, torch.Size]
"""The shapes that a result may have, by what they are called."""


def own_algorithm(name: str, changes: Collection[str]) -> Algorithm:
    """Load the algorithm that ``file.py:name`` names.

    Args:
        name: the file and the name.
        changes: parts that a configuration would replace, of which there may be none.

    Raises:
        ConfigError: it cannot be loaded, is none, or is to be changed elsewhere than in its file.
    """
    found = load_from_file(name, kind="an algorithm", error=ConfigError)
    if not isinstance(found, Algorithm):
        raise ConfigError(
            f"{name} is a {type(found).__name__}; expected a verigrad.algorithms.Algorithm"
        )
    if changes:
        raise ConfigError(
            f"algorithm: {', '.join(changes)} replace parts of a preset, but {name} is an "
            "algorithm of your own; change it in its file"
        )
    return held(found, Path(name.rpartition(":")[0]))


def held(algorithm: Algorithm, file: Path) -> Algorithm:
    """The same algorithm, whose functions say in words what is wrong with them.

    Args:
        algorithm: of the user's own.
        file: where it stands.

    Raises:
        ConfigError: a part is no function. Later, when it is called: it raises, or gives something
            else than a tensor of one of its shapes, or a loss without a gradient.
    """

    def part(name: str, function: object, shapes: Callable[[Any], Shapes]) -> Any:
        what = f"{file}: {name} of algorithm {algorithm.name!r}"
        if not callable(function):
            raise ConfigError(f"{what} is a {type(function).__name__}; expected a function")

        def call(*arguments: Any) -> Tensor:
            result = _called(function, arguments, what, file)
            allowed = shapes(arguments[0])
            if result.shape not in allowed.values():
                words = " or ".join(f"{axes} = {list(shape)}" for axes, shape in allowed.items())
                raise ConfigError(
                    f"{what} gave a tensor of shape {list(result.shape)}; expected {words}"
                )
            if name == "loss" and torch.is_grad_enabled() and not result.requires_grad:
                raise ConfigError(
                    f"{what} gave a tensor without a gradient, so that nothing could be learned; "
                    "compute it from the log_probs, its first argument"
                )
            return result

        return call

    term, correction = algorithm.divergence, algorithm.correction
    punishment = algorithm.punish_length
    if term is not None and term.estimator is not None:
        term = replace(
            term, estimator=part("divergence.estimator", term.estimator, _rows_or_tokens)
        )
    return replace(
        algorithm,
        advantages=part("advantages", algorithm.advantages, lambda s: _any(s.mask)),
        loss=part("loss", algorithm.loss, _rows_or_tokens),
        aggregation=part("aggregation", algorithm.aggregation, _tokens),
        divergence=term,
        correction=correction and part("correction", correction, _tokens),
        punish_length=punishment and part("punish_length", punishment, _rows),
    )


def _called(
    function: Callable[..., object], arguments: Sequence[Any], what: str, file: Path
) -> Tensor:
    try:
        result = function(*arguments)
    except (VerigradError, torch.OutOfMemoryError):
        raise
    except Exception as failure:
        raise ConfigError(describe_failure(failure, f"{what} fails", file)) from failure
    if not isinstance(result, Tensor):
        raise ConfigError(f"{what} gave a {type(result).__name__}; expected a tensor")
    return result


def _rows(first: Tensor) -> Shapes:
    return {"[B]": first.shape[:1]}


def _tokens(first: Tensor) -> Shapes:
    return {"[B, T]": first.shape}


def _rows_or_tokens(first: Tensor) -> Shapes:
    """A row's value may be given once: it is then spread over the tokens of the row."""
    return {"[B, T]": first.shape, "[B, 1]": torch.Size([len(first), 1])}


def _any(first: Tensor) -> Shapes:
    return _rows(first) | _rows_or_tokens(first)
