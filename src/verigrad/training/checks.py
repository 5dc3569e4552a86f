"""What a run is held to: usable problems, prompts that fit, a device, and few failed verdicts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import starmap

import torch

from verigrad.algorithms import PRESETS, Algorithm, algorithm_from
from verigrad.config import Config
from verigrad.errors import ConfigError, ModelError, TaskError, TooManyFailuresError
from verigrad.tasks import EndlessTask, FiniteTask, Task
from verigrad.tasks.base import check_is_problem
from verigrad.types import Group, Problem, Prompt, Status

SOME = 8
"""Problems of an endless task that are looked at before a run."""


def checked_algorithm(config: Config) -> Algorithm:
    """The algorithm that a configuration names, if its groups are large enough for it.

    Raises:
        ConfigError: they are not, or the combination of its parts is known to be wrong.
    """
    sampling = config.sampling
    algorithm = algorithm_from(config.algorithm, max_new_tokens=sampling.max_new_tokens)
    preset = PRESETS.get(config.algorithm.preset)
    k = (config.algorithm.pass_k or preset.pass_k) if preset else None
    if sampling.completions < algorithm.smallest_group:
        why = f"algorithm.pass_k asks for the best of {k}" if k else f"this is {algorithm.name!r}"
        raise ConfigError(
            f"sampling.completions is {sampling.completions}, but {why}, whose advantages take at "
            f"least {algorithm.smallest_group} completions of a problem; raise "
            "sampling.completions" + (", or lower algorithm.pass_k" if k else "")
        )
    advantage = config.algorithm.advantage or (preset.advantage if preset else None)
    if advantage == "passk_analytic" and sampling.completions == k:
        raise ConfigError(
            f"sampling.completions is {k}, and algorithm.pass_k too: with a single success the "
            f"best of all is right already, so {advantage!r} has no signal in any group; raise the "
            "first or lower the second"
        )
    if sampling.completions == 1 and not algorithm.counts_no_signal:
        raise ConfigError(
            "sampling.completions is 1, and counts_no_signal is false: a group of one has no "
            "reward that differs, so every group would be left out and nothing train; set "
            "algorithm.counts_no_signal to true, or sampling.completions to 2 or more"
        )
    return algorithm


def check_problems(task: Task) -> None:
    """Refuse a task whose items are no problems, or whose prompts are neither text nor messages.

    Raises:
        TaskError: names the item, and what was found there.
    """
    if isinstance(task, FiniteTask):
        for index in range(len(task)):
            _check_problem(task, index, task[index])
    elif isinstance(task, EndlessTask):
        for index in range(SOME):
            _check_problem(task, index, task.problem(0, index))


def _check_problem(task: Task, index: int, problem: Problem) -> None:
    check_is_problem(task.name, index, problem)
    if not _is_prompt(problem.prompt):
        raise TaskError(
            f"task {task.name!r}: problem {problem.id!r} has the prompt {problem.prompt!r:.80};"
            ' expected text, or messages such as {"role": "user", "content": "What is 12 + 7?"}'
        )

    prompt = problem.prompt
    texts = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in prompt]
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise TaskError(
            f"task {task.name!r}: the prompt of problem {problem.id!r} holds half of a character "
            "(a lone surrogate), which no model has a token for; repair the text"
        )


def _is_prompt(prompt: object) -> bool:
    if isinstance(prompt, str):
        return True
    return isinstance(prompt, Sequence) and all(
        isinstance(turn, dict)
        and all(isinstance(turn.get(key), str) for key in ("role", "content"))
        for turn in prompt
    )


def check_lengths(prompts: Iterable[Prompt], limit: int | None, new_tokens: int) -> None:
    """Refuse a prompt that is empty, or too long for the model together with its completion.

    Raises:
        ModelError: names the problem, its length and the limit.
    """
    for prompt in prompts:
        length = len(prompt.token_ids)
        if not length:
            raise ModelError(f"the prompt of problem {prompt.problem_id!r} renders to no token")
        if limit is not None and length + new_tokens > limit:
            raise ModelError(
                f"the prompt of problem {prompt.problem_id!r} has {length} tokens, and with "
                f"sampling.max_new_tokens = {new_tokens} that is more than the {limit} positions "
                "of the model; shorten the prompt or lower sampling.max_new_tokens"
            )


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here.

    Raises:
        ModelError: names the device and what there is.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f'run.device is {device!r}, which cannot be used here ({reason}); "cpu" always can, '
            'and "auto" takes a GPU where there is one'
        ) from error


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
            f"{count} x {detail} (for one, problem {example.prompt.problem_id!r} with "
            f"completion {example.completion.text[:60]!r})"
        )

    raise TooManyFailuresError(
        f"step {step}: {len(failed)} of {len(rollouts)} verifications failed, and "
        f"verifier.max_failures is {allowed:g}; the update was not made. Reasons: "
        + "; ".join(starmap(reason, reasons.most_common(3)))
    )
