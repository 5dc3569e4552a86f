"""What a run writes down step by step: metrics, rollouts and findings."""

from collections.abc import Sequence

from verigrad.diagnosis import Finding, Metrics, findings, remade_differently
from verigrad.hashing import Purpose
from verigrad.training.disk import write_json
from verigrad.training.folder import RunFolder
from verigrad.training.progress import Progress
from verigrad.training.records import JsonLines, digests, rollout_records
from verigrad.training.state import TrainerState
from verigrad.types import Group


class Journal:
    """The lines and findings of a run."""

    def __init__(self, folder: RunFolder, state: TrainerState, progress: Progress) -> None:
        """Open the files.

        Args:
            folder: of the run.
            state: remembers findings; its step is the last one that is not made again.
            progress: shown each finding when its cause is new.

        Raises:
            StorageError: a file cannot be opened for writing.
        """
        # A run that resumes at step 0 evaluates the untrained policy again.
        done = state.step or -1
        self._metrics = JsonLines(folder.metrics, digests(folder.metrics, done))
        self._rollouts = JsonLines(folder.rollouts, digests(folder.rollouts, done))
        self._findings = folder.findings
        self._state = state
        self._progress = progress

    def rollouts(self, groups: Sequence[Group], step: int, purpose: Purpose) -> None:
        """Write the completions of a step."""
        self._rollouts.write_all(rollout_records(groups, step=step, purpose=purpose))

    def metrics(self, metrics: Metrics) -> None:
        """Write the line of a step."""
        self._metrics.write(metrics)

    def diagnose(self) -> None:
        """Record what is found, and say it once per cause."""
        for finding in findings(self._state.recent):
            self._record(finding)
        self.compare_remade(self._state.step)

    def compare_remade(self, step: int) -> None:
        """Find fault with lines that a resume has made again and that are not as they were."""
        made = [*self._metrics.take_remade(), *self._rollouts.take_remade()]
        others = [record for record, same in made if not same]
        if others:
            self._record(remade_differently(step, others, len(made)))

    def write_findings(self) -> None:
        """Write all findings; a resume makes them again, so nothing waits for the disk."""
        write_json(self._findings, [*self._state.findings.values()], flushed=False)

    def sync(self) -> None:
        """Have the disk take the lines so far."""
        self._metrics.sync()
        self._rollouts.sync()

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._rollouts.close()

    def _record(self, finding: Finding) -> None:
        if self._state.record(finding):
            self._progress.warn(finding)
            self.write_findings()
