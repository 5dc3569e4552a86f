"""Saving while training goes on: a copy of the state, written by a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from verigrad.config import Config
from verigrad.errors import StorageError
from verigrad.training.checkpoint import Snapshot, snapshot, write_checkpoint
from verigrad.training.contract import fixed_keys
from verigrad.training.memory import MemoryWatch
from verigrad.training.progress import Progress
from verigrad.training.state import TrainerState

SHARE_OF_FREE_MEMORY = 0.5
"""A copy of the state may take so much of it; a larger state is written while training waits."""

MEMORY = Path("/proc/meminfo")
LIMIT = Path("/sys/fs/cgroup/memory.max")
USED = Path("/sys/fs/cgroup/memory.current")


class Saver:
    """Writes the checkpoints of a run, one at a time."""

    def __init__(
        self,
        root: Path,
        config: Config,
        progress: Progress,
        sync: Callable[[], None],
        watch: MemoryWatch | None = None,
    ) -> None:
        """Prepare to write to a folder.

        Args:
            root: the run's folder of checkpoints.
            config: the run's; says how many to keep, and each checkpoint names its fixed keys.
            progress: told of a checkpoint that cannot be written.
            sync: puts the lines that lead to a checkpoint on the disk, before it is there.
            watch: knows how much memory the run may take, where somebody does.
        """
        self._root = root
        self._config = config.checkpoint
        self._configuration = fixed_keys(config)
        self._progress = progress
        self._sync = sync
        self._watch = watch
        self._pending: Future[Path] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def start(self, state: TrainerState) -> None:
        """Save a state; training may go on at once, unless memory has no room for a copy.

        Raises:
            StorageError: the run folder has gone.
        """
        self.settle()
        taken = snapshot(state, self._configuration)
        free = self._free()
        room = free is not None and taken.bytes <= SHARE_OF_FREE_MEMORY * free
        self._pending = self._thread.submit(self._write, taken.copied() if room else taken)
        if not room:
            self.settle()

    def check(self) -> None:
        """Say what became of the last checkpoint, if that is known.

        Raises:
            StorageError: the run folder has gone.
        """
        if self._pending is not None and self._pending.done():
            self.settle()

    def finish(self, state: TrainerState) -> None:
        """Save the last state of a run, and wait for it.

        Raises:
            StorageError: it cannot be written.
        """
        self.settle()
        # In the same thread: an interrupted start() may have left it a checkpoint of this step.
        self._thread.submit(self._write, snapshot(state, self._configuration)).result()

    def close(self) -> None:
        """Wait for what is being written."""
        self._thread.shutdown()

    def _free(self) -> int | None:
        """Bytes that a copy could take, within the limit of the run."""
        free, watch = free_memory(), self._watch
        if free is None or watch is None or watch.device != "cpu":
            return free
        return min(free, watch.limit - watch.used())

    def _write(self, taken: Snapshot) -> Path:
        self._sync()
        keep, best = self._config.keep, self._config.best
        return write_checkpoint(self._root, taken, keep=keep, best=best)

    def settle(self) -> None:
        """Wait for the checkpoint that is being written, and hear of its failure.

        Raises:
            StorageError: the run folder has gone.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except StorageError as error:
            self._go_on_without(error)

    def _go_on_without(self, error: StorageError) -> None:
        """The state in memory is still good: go on, and save it the next time."""
        if not self._root.parent.is_dir():
            raise error
        self._progress.alert(f"{error}; training goes on, and the next checkpoint tries again")


def free_memory() -> int | None:
    """Bytes of memory that this process may still take; None where the system does not say."""
    try:
        lines = dict(line.split(":") for line in MEMORY.read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None
    try:
        # A container's limit; "max" where it has none.
        return min(free, int(LIMIT.read_text()) - int(USED.read_text()))
    except (OSError, ValueError):
        return free
