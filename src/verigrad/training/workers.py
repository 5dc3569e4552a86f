"""The worker processes that verify completions, where a run asks for them."""

from collections.abc import Iterator
from contextlib import contextmanager

from verigrad.training.setup import Setup
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import VerifierPool


@contextmanager
def workers_of(setup: Setup) -> Iterator[VerifierPool | None]:
    """The worker processes of a run's verifier, if it has any."""
    config = setup.config.verifier
    if not config.workers:
        yield None
        return
    limits = Limits(
        cpu_seconds=config.cpu_seconds,
        wall_seconds=config.wall_seconds,
        memory_bytes=config.memory_mb * 1_000_000,
    )
    with VerifierPool(setup.task.verifier, workers=config.workers, limits=limits) as pool:
        yield pool
