"""What one call of a verifier may use."""

from dataclasses import dataclass, fields

from verigrad.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on one call in a worker process."""

    cpu_seconds: float = 10.0
    """Of processor time, which is what a verifier needs whatever else the machine does."""

    wall_seconds: float = 60.0
    """From call to verdict. Several times the other, so that a busy machine decides no verdict."""

    memory_bytes: int = 2 * 2**30
    """Address space beyond what the worker had when it was ready."""

    output_bytes: int = 2**16
    """Of a verdict with its detail. What a verifier prints is not kept at all."""

    def __post_init__(self) -> None:
        """Refuse limits under which no call could succeed."""
        for spec in fields(self):
            value = getattr(self, spec.name)
            if not value > 0:
                raise UserError(f"the limit {spec.name} is {value}; expected a positive number")
        if self.wall_seconds < self.cpu_seconds:
            raise UserError(
                f"the limit wall_seconds is {self.wall_seconds} and cpu_seconds "
                f"{self.cpu_seconds}; a call cannot compute for longer than it lasts, so the first "
                "is several times the second"
            )
