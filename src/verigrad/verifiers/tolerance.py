"""How far a number may be from the reference and still be right."""

import math
from dataclasses import dataclass
from fractions import Fraction

from verigrad.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """Right within ``abs_tol`` or ``rel_tol`` times the reference; exact when both are 0."""

    abs_tol: float = 0.0
    rel_tol: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would accept nothing or everything."""
        for name, value in (("abs_tol", self.abs_tol), ("rel_tol", self.rel_tol)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                raise ConfigError(
                    f"{name} is {value!r}; expected a finite number of at least 0, "
                    "because any other tolerance refuses even equal numbers or accepts all"
                )

    @property
    def is_exact(self) -> bool:
        """Is only equality right?"""
        return self.abs_tol == 0 and self.rel_tol == 0

    def allowed(self, reference: Fraction) -> Fraction:
        """The largest difference from a reference, from the decimals as they are written."""
        relative = Fraction(str(self.rel_tol)) * abs(reference)
        return max(Fraction(str(self.abs_tol)), relative)
