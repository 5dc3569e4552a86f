"""The accuracy of a model or of a run, as the command ``eval`` prints it."""

import os
from pathlib import Path

from verigrad.config import Config
from verigrad.engines import Draws, LocalEngine
from verigrad.errors import RunFolderError
from verigrad.escaping import one_line
from verigrad.evaluation import describe, pass_rates, summarise
from verigrad.hashing import Purpose
from verigrad.tasks import task_of
from verigrad.training.checks import check_device, check_lengths
from verigrad.training.folder import RunFolder
from verigrad.training.judging import Judge
from verigrad.training.problems import checked_split, problems_to_evaluate
from verigrad.training.setup import device_for, greedy, load_policy
from verigrad.types import Sampling
from verigrad.verifiers.opening import opened


def evaluate(model_or_run: str, config: Config) -> str:
    """Greedy and sampled accuracy of a model, or of a run's final policy, and pass@k, in words.

    Args:
        model_or_run: a run folder, or a model as in the configuration.
        config: names the task, how many problems, and how completions are sampled.

    Raises:
        UserError: the model, the run or the task cannot be used.
    """
    task = task_of(config)
    parts = checked_split(task, config)
    device = device_for(config)
    check_device(device)
    problems = problems_to_evaluate(parts, config)
    policy = load_policy(config, task, device, _model_in(model_or_run))
    prompts = [policy.encode(problem) for problem in problems]
    check_lengths(prompts, policy.max_positions, config.sampling.max_new_tokens)
    sampling = Sampling(
        temperature=config.sampling.temperature,
        max_new_tokens=config.sampling.max_new_tokens,
        stop_token_ids=policy.stop_token_ids,
    )
    side = "held-out" if parts.held_out else "training"
    lines = [f"{model_or_run} on {len(problems)} {side} problems of {task.name}"]
    engine = LocalEngine(policy, config.sampling.rows_at_once)
    draws = Draws(seed=config.run.seed, purpose=Purpose.EVALUATE, step=0)
    with opened(task.verifier, config.verifier) as verifier:
        for name, how, number in (
            ("greedy", greedy(sampling), 1),
            (f"sampled at temperature {sampling.temperature:g}", sampling,
             config.sampling.completions),
        ):  # fmt: skip
            judging = Judge(verifier.runner, problems)
            sampled = engine.generate(prompts, number, how, draws, judging.take)
            groups = judging.groups(prompts, sampled)
            summary = summarise(groups)
            words = describe(summary) if summary else "every verification failed"
            passes = ", ".join(f"pass@{k} {rate:.2f}" for k, rate in pass_rates(groups).items())
            lines.append(f"{name}, {number} each: {words}" + (f"; {passes}" if passes else ""))
    return "\n".join(map(one_line, lines))


def _model_in(model_or_run: str) -> str:
    """The folder of a run's final policy, or the model itself."""
    run = RunFolder(root=Path(model_or_run))
    if not os.path.exists(run.config):
        return model_or_run
    if not run.final.exists():
        raise RunFolderError(
            f"{model_or_run} has no final policy yet; finish it with: verigrad train --resume "
            f"{model_or_run}"
        )
    return str(run.final.resolve())
