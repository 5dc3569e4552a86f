"""The loop: draw problems, sample, verify, update, record, save."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from verigrad.batch import Batch, Measured, Tokens, make_batch, minibatches
from verigrad.config import OptimizerConfig
from verigrad.diagnosis import findings
from verigrad.engines import Draws, Engine
from verigrad.errors import TooManyFailuresError, VerigradError
from verigrad.evaluation import summarise
from verigrad.hashing import Purpose, stable_hash
from verigrad.tasks import problem_at
from verigrad.training.checkpoint import save_checkpoint
from verigrad.training.folder import RunFolder
from verigrad.training.interrupt import Interrupt
from verigrad.training.metrics import step_metrics
from verigrad.training.progress import Progress, printable
from verigrad.training.records import JsonLines, rollout_records, write_json
from verigrad.training.setup import Setup
from verigrad.training.state import TrainerState
from verigrad.training.step import Update, judge, measure, update
from verigrad.types import Group, Problem, Sampling, Status
from verigrad.verifiers.pool import VerifierPool


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
        pool: VerifierPool | None = None,
    ) -> None:
        self._pool = pool
        self._setup = setup
        self._state = state
        self._engine = engine
        self._folder = folder
        self._progress = progress
        self._metrics = JsonLines(folder.metrics)
        self._rollouts = JsonLines(folder.rollouts)

    def run(self) -> Outcome:
        """Make the remaining steps, or as many as a signal leaves time for.

        Whatever ends the loop, the state of the last finished step is saved, unless the step that
        failed has updated the policy already; the checkpoint before it then stays the newest.

        Raises:
            TooManyFailuresError: more verdicts of a step failed than the configuration allows.
            BadNumbersError: a loss or gradient is not finite.
        """
        state, steps = self._state, self._setup.config.run.steps
        self._engine.sync(state.policy_version)
        try:
            with Interrupt() as interrupt:
                if state.step == 0:
                    self._before()
                while state.step < steps and interrupt.received is None:
                    self._step()
        except VerigradError:
            if state.is_between_steps:
                self._save()
            raise
        finally:
            self._metrics.close()
            self._rollouts.close()
        self._save()
        return Outcome(finished=state.step == steps, exit_code=interrupt.exit_code)

    def _before(self) -> None:
        """Evaluate the untrained policy, as step 0."""
        started = time.perf_counter()
        evaluated, seconds = self._evaluate(step=0)
        evaluation = summarise(evaluated)
        if evaluation is None:
            return
        times = {"evaluate": seconds, "step": time.perf_counter() - started}
        self._metrics.write(
            step_metrics(
                0,
                [],
                None,
                policy_version=0,
                evaluation=evaluation,
                evaluated=evaluated,
                parts=self._setup.parts,
                times=times,
            )
        )
        self._progress.note(f"held-out accuracy before training: {evaluation.accuracy:.2f}")

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
        done = self._update(groups, times)
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
            policy_version=state.policy_version,
            entropy_coefficient=coefficient,
            evaluation=summarise(evaluated),
            evaluated=evaluated,
            parts=self._setup.parts,
            times=times,
        )
        self._rollouts.write_all(rollout_records(groups, step=step, purpose=Purpose.TRAIN))
        self._metrics.write(metrics)
        state.finish_step(metrics)
        self._progress.step(metrics)
        self._diagnose()
        if config.checkpoint.every > 0 and step % config.checkpoint.every == 0:
            self._save()

    def _collect(
        self, problems: Sequence[Problem], completions: int, sampling: Sampling, draws: Draws
    ) -> tuple[list[Group], dict[str, float]]:
        """Sample and verify; the seconds of each."""
        prompts = [self._setup.prompt_of(problem) for problem in problems]
        started = time.perf_counter()
        sampled = self._engine.generate(prompts, completions, sampling, draws)
        generated = time.perf_counter()
        groups = judge(self._setup.task.verifier, problems, prompts, sampled, pool=self._pool)
        verified = time.perf_counter()
        return groups, {"generate": generated - started, "verify": verified - generated}

    def _update(self, groups: list[Group], times: dict[str, float]) -> Update | None:
        """Make the updates of a step; None when nothing trains."""
        state, algorithm = self._state, self._setup.algorithm
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
        for part in self._minibatches(batch):
            one = self._update_once(part)
            if one is not None:
                state.policy_version += 1
                done = one if done is None else done + one
        self._after_updates(done)
        times["train"] = time.perf_counter() - started
        return done

    def _measure(self, tokens: Tokens) -> Measured:
        return measure(
            self._setup.policy,
            self._setup.reference,
            tokens,
            temperature=self._setup.config.sampling.temperature,
            token_budget=self._setup.decisions.token_budget,
        )

    def _minibatches(self, batch: Batch | None) -> Iterator[Batch]:
        """The batches of a step's updates: rows are shuffled anew in each epoch."""
        algorithm = self._setup.algorithm
        for epoch in range(algorithm.epochs if batch is not None else 0):
            assert batch is not None
            place = (self._setup.config.run.seed, Purpose.ROWS, self._state.step, epoch)
            rows = sorted(range(len(batch.mask)), key=lambda row: stable_hash(*place, row))
            yield from minibatches(batch, algorithm, rows)

    def _update_once(self, batch: Batch) -> Update | None:
        config = self._setup.config
        clip = config.optimizer.clip_norm
        return update(
            self._setup.policy,
            batch,
            self._setup.algorithm,
            self._state.optimizer,
            temperature=config.sampling.temperature,
            clip_norm=float("inf") if clip == "off" else clip,
            token_budget=self._setup.decisions.token_budget,
            entropy_coefficient=self._state.entropy_coefficient,
        )

    def _after_updates(self, done: Update | None) -> None:
        """Steer the entropy bonus, reset the reference when that is due, show the engine."""
        state, algorithm = self._state, self._setup.algorithm
        bonus, divergence = algorithm.entropy, algorithm.divergence
        if done is not None and bonus is not None and bonus.target is not None:
            entropy = done.output.entropy / done.output.tokens
            change = bonus.step if entropy < bonus.target else -bonus.step
            state.entropy_coefficient = max(0.0, state.entropy_coefficient + change)
        every = divergence.reset_every if divergence is not None else None
        if every is not None and (state.step + 1) % every == 0:
            state.reset_reference()
        self._engine.sync(state.policy_version)

    def _evaluate(self, step: int) -> tuple[list[Group], float]:
        """Greedy completions of the held-out problems, and the seconds they took."""
        problems = self._setup.evaluated
        if not problems:
            return [], 0.0
        started = time.perf_counter()
        draws = Draws(seed=self._setup.config.run.seed, purpose=Purpose.EVALUATE, step=step)
        groups, _ = self._collect(problems, 1, self._setup.greedy, draws)
        self._rollouts.write_all(rollout_records(groups, step=step, purpose=Purpose.EVALUATE))
        return groups, time.perf_counter() - started

    def _diagnose(self) -> None:
        """Record what is found, and say it once per cause."""
        new = False
        for finding in findings(self._state.recent):
            if self._state.record(finding):
                self._progress.warn(finding)
                new = True
        if new:
            self._write_findings()

    def _write_findings(self) -> None:
        write_json(self._folder.findings, list(self._state.findings.values()))

    def _save(self) -> Path:
        self._write_findings()
        keep = self._setup.config.checkpoint.keep
        return save_checkpoint(self._folder.checkpoints, self._state, keep=keep)


def learning_rate(config: OptimizerConfig, done: int) -> float:
    """The learning rate of the step that follows ``done`` finished ones."""
    if config.decay_steps == "off":
        return config.learning_rate
    return config.learning_rate * max(0.0, 1 - done / config.decay_steps)


def check_failures(groups: Sequence[Group], allowed: float, step: int) -> None:
    """Stop when too many verdicts of a step failed: what is left would not be the task any more.

    Raises:
        TooManyFailuresError: with the three commonest reasons and an example of each.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    failed = [rollout for rollout in rollouts if rollout.verdict.status is Status.FAILED]
    if len(failed) <= allowed * len(rollouts):
        return
    reasons = Counter(rollout.verdict.detail for rollout in failed)
    examples = {rollout.verdict.detail: rollout for rollout in reversed(failed)}

    def reason(detail: str, count: int) -> str:
        example = examples[detail]
        return (
            f"{count} x {printable(detail)} (for one, problem {example.prompt.problem_id!r} with "
            f"completion {example.completion.text[:60]!r})"
        )

    raise TooManyFailuresError(
        f"step {step}: {len(failed)} of {len(rollouts)} verifications failed, and "
        f"verifier.max_failures is {allowed:g}; the update was not made. Reasons: "
        + "; ".join(starmap(reason, reasons.most_common(3)))
    )
