"""Ctrl-C and SIGTERM: the first finishes the step, the second stops at once.

A step that takes too long to finish is stopped as if by a second signal.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

GRACE_SECONDS = 20.0
"""How long a step may go on after the first signal. Schedulers kill 30 s after SIGTERM, most of
them, and the state has to be saved before that."""

ALARM: signal.Signals | None = getattr(signal, "SIGALRM", None)


class Interrupt:
    """Notes a signal while it is entered; outside the main thread signals stay as they are.

    The second signal, or the end of the grace, raises KeyboardInterrupt. Windows has no such end.
    """

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        """Prepare; ``grace`` is in seconds."""
        self._grace = grace
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Take over the signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        if ALARM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if ALARM is not None:
            # Only now: until then the alarm is a verifier's to use.
            self._before[ALARM] = signal.signal(ALARM, self._handle)
            signal.setitimer(signal.ITIMER_REAL, self._grace)

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it; 0 without a signal."""
        return 128 + self.received if self.received is not None else 0
