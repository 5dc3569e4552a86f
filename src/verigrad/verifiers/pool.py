"""Runs a verifier in worker processes, in parallel, and gives a verdict whatever becomes of them.

    with VerifierPool(check, workers=2) as pool:
        verdicts = pool.verify_all([("It is 19.", 19), ("I cannot add.", 19)])

The processes are started once, as programs of their own: they share no lock and no memory with this
one. One that dies, hangs or eats memory is replaced, and only the call that it was on fails.
"""

import queue
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from verigrad.errors import UserError
from verigrad.types import Verdict
from verigrad.verifiers.boundary import Verifier
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.process import WorkerError, WorkerProcess
from verigrad.verifiers.runner import Records, Report
from verigrad.verifiers.transport import Shipment, pack

START_TRIES = 3
"""How often a worker is started for one call before it is given up."""

STOP_SECONDS = 10.0
"""How long closing a pool may take; what is left then ends with this process."""


@dataclass(frozen=True, slots=True)
class _Call:
    request: bytes
    future: "Future[Verdict]"


class VerifierPool:
    """Worker processes that run one verifier."""

    def __init__(
        self, verifier: Verifier | str, *, workers: int = 2, limits: Limits | None = None
    ) -> None:
        """Start the workers, all at once, and wait until each has loaded the verifier.

        Args:
            verifier: a function or another callable, or its name: ``file.py:function`` or
                ``module:function``.
            workers: how many processes, at least 1.
            limits: on each call.

        Raises:
            UserError: the verifier cannot be sent to a worker or not be loaded there, and why.
            WorkerError: no worker process can be started.
        """
        if workers < 1:
            raise UserError(f"workers is {workers}; expected at least 1")
        self._shipment = pack(verifier)
        self._limits = Limits() if limits is None else limits
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._records = Records()
        self._closing = threading.Event()
        self._lanes = [
            _Lane(self._shipment, self._limits, self._calls, self._records, self._closing)
            for _ in range(workers)
        ]
        problems = [error for lane in self._lanes if (error := lane.wait_until_ready()) is not None]
        if problems:
            self.close()
            raise problems[0]

    def submit(self, completion: str, reference: Any) -> "Future[Verdict]":
        """Have a completion verified as soon as a worker is free.

        Raises:
            UserError: the reference cannot be sent to a worker.
        """
        import cloudpickle

        if self._closing.is_set():
            raise ValueError("the pool is closed")
        try:
            request = cloudpickle.dumps((completion, reference))
        except Exception as error:
            raise UserError(
                f"the reference {reference!r:.80} cannot be sent to a worker process: {error}; "
                "give plain data, such as text, numbers, lists and tables"
            ) from error
        future: Future[Verdict] = Future()
        self._calls.put(_Call(request, future))
        return future

    def verify_all(self, calls: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """The verdicts on completions and their references, in the same order.

        Raises:
            UserError: a reference cannot be sent to a worker.
            WorkerError: workers that ended cannot be replaced.
        """
        futures = [self.submit(completion, reference) for completion, reference in calls]
        return [future.result() for future in futures]

    def take_report(self) -> Report:
        """What happened since this was last asked."""
        return self._records.take()

    def close(self) -> None:
        """End the workers, in the middle of a call if need be."""
        self._closing.set()
        for _ in self._lanes:
            self._calls.put(None)
        for lane in self._lanes:
            lane.stop()
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call.future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Lane:
    """A thread with a worker of its own, which ends with it."""

    def __init__(
        self,
        shipment: Shipment,
        limits: Limits,
        calls: "queue.SimpleQueue[_Call | None]",
        records: Records,
        closing: threading.Event,
    ) -> None:
        self._shipment = shipment
        self._limits = limits
        self._calls = calls
        self._records = records
        self._closing = closing
        self._worker: WorkerProcess | None = None
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="verifier", daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> BaseException | None:
        """None when the worker is ready, or why it is not."""
        return self._ready.exception()

    def stop(self) -> None:
        """End the worker and the thread; a worker that is still starting is given some time."""
        deadline = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._worker is not None and self._worker.is_alive:
                self._worker.interrupt()
            self._thread.join(timeout=0.05)

    def _run(self) -> None:
        try:
            self._worker = WorkerProcess(self._shipment, self._limits)
        except Exception as error:  # noqa: BLE001  raised where the pool is made
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        while (call := self._calls.get()) is not None:
            if self._closing.is_set():
                call.future.cancel()
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.future.set_result(self._make(call))
            except Exception as error:  # noqa: BLE001  raised where the verdict is waited for
                call.future.set_exception(error)
        self._worker.kill()

    def _make(self, call: _Call) -> Verdict:
        worker = self._living_worker()
        began = time.monotonic()
        verdict = worker.call(call.request)
        self._records.call(verdict, time.monotonic() - began)
        return verdict

    def _living_worker(self) -> WorkerProcess:
        """The worker, or another in its place if it has ended.

        Raises:
            WorkerError: none can be started.
        """
        tries = 0
        while self._worker is None or not self._worker.is_alive:
            tries += 1
            if self._worker is not None:
                self._worker.kill()
            try:
                self._worker = WorkerProcess(self._shipment, self._limits)
                self._records.restart(self._worker.start_seconds)
            except WorkerError:
                if tries == START_TRIES or self._closing.is_set():
                    raise
        return self._worker
