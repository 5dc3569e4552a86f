"""The loop: draw problems, sample, verify, update, record, save."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from verigrad.batch import Batch, Measured, Tokens, make_batch
from verigrad.engines import Draws, Engine
from verigrad.errors import StorageError, VerigradError
from verigrad.evaluation import summarise
from verigrad.hashing import Purpose
from verigrad.tasks import problem_at
from verigrad.training.bad_updates import BadUpdate, stop_after
from verigrad.training.checks import check_failures
from verigrad.training.folder import RunFolder
from verigrad.training.interrupt import Interrupt
from verigrad.training.journal import Journal
from verigrad.training.judging import Judge
from verigrad.training.memory import Result, TokenBudget
from verigrad.training.metrics import step_metrics
from verigrad.training.progress import Progress
from verigrad.training.recorded import record_bad_update
from verigrad.training.saving import Saver
from verigrad.training.schedule import learning_rate, shuffled, steer
from verigrad.training.setup import Setup
from verigrad.training.state import TrainerState
from verigrad.training.step import Update, measure, update
from verigrad.types import Group, Problem, Sampling
from verigrad.verifiers.runner import InProcess, Runner

WORTH_A_SYNC = 0.1
"""A step of so many seconds waits for the disk to have its lines; the lines of quicker ones are
with the system, which a crash of the process does not touch, and on the disk at the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the loop ended."""

    finished: bool
    """True when every step was made."""

    exit_code: int
    """0, or 130 or 143 when a signal ended it."""


class Trainer:
    """Runs a setup from a state to the last step; the state is all that it changes."""

    def __init__(
        self,
        setup: Setup,
        state: TrainerState,
        engine: Engine,
        folder: RunFolder,
        progress: Progress,
        runner: Runner | None = None,
    ) -> None:
        self._runner = InProcess(setup.task.verifier) if runner is None else runner
        self._setup = setup
        self._state = state
        self._engine = engine
        self._folder = folder
        self._progress = progress
        self._journal = Journal(folder, state, progress)
        watch = setup.preflight.watch if setup.preflight else None
        self._saver = Saver(folder.checkpoints, setup.config, progress, self._journal.sync, watch)
        self._budget = TokenBudget(state.token_budget, watch, progress.alert, self._saver.settle)

    def run(self) -> Outcome:
        """Make the remaining steps, or as many as a signal leaves time for.

        Whatever ends the loop, the state of the last finished step is saved, unless the step that
        was not finished has changed the policy already; the checkpoint before it then stays the
        newest.

        Raises:
            TooManyFailuresError: more verdicts of a step failed than the configuration allows.
            BadNumbersError: too many updates in a row were not finite, or the policy's logits
                or a reward are not.
            MemoryLimitError: not even a single completion fits into memory any more.
            StorageError: the lines of a step, or the last checkpoint, cannot be written.
        """
        state, steps = self._state, self._setup.config.run.steps
        self._engine.sync(state.policy_version)
        interrupt = Interrupt()
        try:
            self._loop(interrupt)
            if not state.updating:
                self._finish()
        except StorageError:
            raise
        except VerigradError:
            if state.is_between_steps:
                self._finish()
            raise
        finally:
            self._saver.close()
            self._journal.close()
        return Outcome(finished=state.step == steps, exit_code=interrupt.exit_code)

    def _loop(self, interrupt: Interrupt) -> None:
        """Make steps until the last one or a signal; a second signal leaves one unfinished."""
        state, steps = self._state, self._setup.config.run.steps
        try:
            with interrupt:
                if state.step == 0:
                    self._before()
                while state.step < steps and interrupt.received is None:
                    self._step()
        except KeyboardInterrupt:
            if interrupt.received is None:
                raise

    def _before(self) -> None:
        """Evaluate the untrained policy, as step 0."""
        started = time.perf_counter()
        evaluated, seconds = self._evaluate(step=0)
        evaluation = summarise(evaluated)
        if evaluation is None:
            return
        times = {"evaluate": seconds, "step": time.perf_counter() - started}
        self._journal.metrics(
            step_metrics(
                0,
                [],
                None,
                policy_version=0,
                token_budget=self._state.token_budget,
                evaluation=evaluation,
                evaluated=evaluated,
                parts=self._setup.parts,
                times=times,
            )
        )
        self._progress.note(f"held-out accuracy before training: {evaluation.accuracy:.2f}")
        self._journal.compare_remade(step=0)

    def _step(self) -> None:
        """Make one step, all of it, and record it."""
        state, config = self._state, self._setup.config
        started = time.perf_counter()
        step = state.step + 1
        first = state.step * config.sampling.problems
        problems = [
            problem_at(self._setup.split.training, config.run.seed, first + slot, config.task.order)
            for slot in range(config.sampling.problems)
        ]
        draws = Draws(seed=config.run.seed, purpose=Purpose.TRAIN, step=step)
        groups, times = self._collect(
            problems, config.sampling.completions, self._setup.sampling, draws
        )
        check_failures(groups, config.verifier.max_failures, step)
        coefficient = state.entropy_coefficient if self._setup.algorithm.entropy else None
        done, bad = self._update(groups, times)
        due = step == config.run.steps or (
            config.evaluation.every > 0 and step % config.evaluation.every == 0
        )
        evaluated: list[Group] = []
        if due:
            evaluated, times["evaluate"] = self._evaluate(step)
        times["step"] = time.perf_counter() - started
        metrics = step_metrics(
            step,
            groups,
            done,
            skipped=len(bad),
            policy_version=state.policy_version,
            entropy_coefficient=coefficient,
            token_budget=state.token_budget,
            evaluation=summarise(evaluated),
            evaluated=evaluated,
            parts=self._setup.parts,
            times=times,
        )
        self._journal.rollouts(groups, step, Purpose.TRAIN)
        self._journal.metrics(metrics)
        state.finish_step(metrics)
        self._progress.step(metrics)
        self._journal.diagnose()
        state.updating = False
        if times["step"] >= WORTH_A_SYNC:
            self._journal.sync()
        self._saver.check()
        stop_after(bad, state.bad_updates, config.optimizer.max_bad_updates, step)
        if config.checkpoint.every > 0 and step % config.checkpoint.every == 0:
            self._checkpoint()

    def _collect(
        self, problems: Sequence[Problem], completions: int, sampling: Sampling, draws: Draws
    ) -> tuple[list[Group], dict[str, float]]:
        """Sample, and verify what has ended meanwhile; the seconds of each, verifying alone."""
        prompts = [self._setup.prompt_of(problem) for problem in problems]
        started = time.perf_counter()
        judging = Judge(self._runner, problems)
        sampled = self._engine.generate(prompts, completions, sampling, draws, judging.take)
        generated = time.perf_counter()
        groups = judging.groups(prompts, sampled)
        verified = time.perf_counter()
        times = {"generate": generated - started, "verify": verified - generated}
        calls = self._runner.take_report().times()
        return groups, times | {f"verify_{name}": seconds for name, seconds in calls.items()}

    def _update(
        self, groups: list[Group], times: dict[str, float]
    ) -> tuple[Update | None, list[BadUpdate]]:
        """Make the updates of a step: those made, None when nothing trains, and those skipped."""
        state, algorithm = self._state, self._setup.algorithm
        state.updating = True
        started = time.perf_counter()
        batch = make_batch(
            groups,
            algorithm,
            measure=self._measure,
            policy_version=state.policy_version,
            device=self._setup.decisions.device,
        )
        for parameters in state.optimizer.param_groups:
            parameters["lr"] = learning_rate(self._setup.config.optimizer, state.step)
        done: Update | None = None
        bad: list[BadUpdate] = []
        for number, part in enumerate(
            shuffled(batch, algorithm, self._setup.config.run.seed, state.step), start=1
        ):
            one = self._update_once(part)
            if isinstance(one, BadUpdate):
                bad.append(one)
                state.bad_updates += 1
                self._record_bad(part, one, number)
            elif one is not None:
                state.bad_updates = 0
                state.policy_version += 1
                done = one if done is None else done + one
        steer(state, algorithm, done.output if done else None, [] if bad else groups)
        self._engine.sync(state.policy_version)
        times["train"] = time.perf_counter() - started
        return done, bad

    def _measure(self, tokens: Tokens) -> Measured:
        setup = self._setup
        return self._within_memory(
            lambda budget: measure(
                setup.policy,
                setup.reference,
                tokens,
                temperature=setup.config.sampling.temperature,
                token_budget=budget,
            )
        )

    def _record_bad(self, batch: Batch, bad: BadUpdate, number: int) -> None:
        """Keep an update for a replay; a run that can go on does not end for want of it."""
        try:
            record_bad_update(self._folder.bad_updates, self._state, batch, bad, number)
        except StorageError as error:
            self._progress.alert(str(error))

    def _update_once(self, batch: Batch) -> Update | BadUpdate | None:
        config = self._setup.config
        clip = config.optimizer.clip_norm
        return self._within_memory(
            lambda budget: update(
                self._setup.policy,
                batch,
                self._setup.algorithm,
                self._state.optimizer,
                temperature=config.sampling.temperature,
                clip_norm=float("inf") if clip == "off" else clip,
                token_budget=budget,
                entropy_coefficient=self._state.entropy_coefficient,
            )
        )

    def _within_memory(self, work: Callable[[TokenBudget], Result]) -> Result:
        """Do work made of passes, whose budget stays as small as it had to become."""
        result = self._budget.run(lambda: work(self._budget))
        # Only now: one that was made small in vain would stay so in a resume that has more memory.
        self._state.token_budget = self._budget.tokens
        return result

    def _evaluate(self, step: int) -> tuple[list[Group], float]:
        """Greedy completions of the held-out problems, and the seconds they took."""
        problems = self._setup.evaluated
        if not problems:
            return [], 0.0
        started = time.perf_counter()
        draws = Draws(seed=self._setup.config.run.seed, purpose=Purpose.EVALUATE, step=step)
        groups, _ = self._collect(problems, 1, self._setup.greedy, draws)
        self._journal.rollouts(groups, step, Purpose.EVALUATE)
        return groups, time.perf_counter() - started

    def _checkpoint(self) -> None:
        """Save on the way, while training goes on."""
        self._journal.write_findings()
        self._saver.start(self._state)

    def _finish(self) -> None:
        """Save for good, and wait for it."""
        self._journal.write_findings()
        self._saver.finish(self._state)
