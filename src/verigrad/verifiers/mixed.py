"""The verifiers of several tasks as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verigrad.verifiers.boundary import Verifier, is_bounded


@dataclass(frozen=True, slots=True)
class PartVerifier:
    """The verifier of a mixture: the one of the part that the reference names.

    A reference is a table, ``{"task": NAME, "reference": ...}``.
    """

    verifiers: Mapping[str, Verifier]

    @property
    def is_bounded(self) -> bool:
        """It needs no process of its own if none of its parts does."""
        return all(map(is_bounded, self.verifiers.values()))

    def __call__(self, completion: str, reference: Mapping[str, Any]) -> Any:
        """Check one completion."""
        return self.verifiers[reference["task"]](completion, reference["reference"])
