"""What a run is held to before anything is written: usable problems, prompts that fit, a device."""

from collections.abc import Iterable, Sequence

import torch

from verigrad.algorithms import Algorithm, algorithm_from
from verigrad.config import Config
from verigrad.errors import ConfigError, ModelError, TaskError
from verigrad.tasks import Split, Task, normalised
from verigrad.types import Problem, Prompt

SAMPLE = 256
"""Of the training problems that a run will not draw, so many prompts are measured too."""


def checked_algorithm(config: Config) -> Algorithm:
    """The algorithm that a configuration names, if its groups are large enough for it.

    Raises:
        ConfigError: they are not, or the combination of its parts is known to be wrong.
    """
    sampling = config.sampling
    algorithm = algorithm_from(config.algorithm, max_new_tokens=sampling.max_new_tokens)
    if sampling.completions < algorithm.smallest_group:
        raise ConfigError(
            f"sampling.completions is {sampling.completions}, but algorithm.pass_k asks for the "
            f"best of {algorithm.smallest_group} completions of a problem; raise the first or "
            "lower the second"
        )
    return algorithm


def check_problems(task: Task) -> None:
    """Refuse a task whose items are no problems, or whose prompts are neither text nor messages.

    Raises:
        TaskError: names the item, and what was found there.
    """
    for index in range(len(task)):
        problem: object = task[index]
        if not isinstance(problem, Problem):
            raise TaskError(
                f"task {task.name!r}: item {index} is a {type(problem).__name__}; expected a "
                "verigrad.Problem"
            )
        if not _is_prompt(problem.prompt):
            raise TaskError(
                f"task {task.name!r}: problem {problem.id!r} has the prompt {problem.prompt!r:.80};"
                ' expected text, or messages such as {"role": "user", "content": "What is 12 + 7?"}'
            )


def check_sides(parts: Split) -> None:
    """Refuse a held-out problem that is trained on, by its id or by its normalised prompt.

    Raises:
        TaskError: names both problems.
    """
    ids = {problem.id for problem in parts.training}
    prompts = {_asked(problem): problem.id for problem in parts.training}
    for problem in parts.held_out:
        same = problem.id if problem.id in ids else prompts.get(_asked(problem))
        if same is not None:
            raise TaskError(
                f"held-out problem {problem.id!r} is trained on, as {same!r}, which has the same "
                f"{'id' if problem.id in ids else 'prompt'}; accuracy on it would say nothing; "
                "give the two the same content"
            )


def _asked(problem: Problem) -> str:
    if isinstance(problem.prompt, str):
        return normalised(problem.prompt)
    return normalised("\n".join(f"{turn['role']}: {turn['content']}" for turn in problem.prompt))


def check_epochs(config: Config, problems: int) -> None:
    """Refuse a run that draws its problems more often than the configuration allows.

    Raises:
        ConfigError: says how many steps are allowed.
    """
    epochs, drawn = config.task.epochs, config.run.steps * config.sampling.problems
    if epochs is None or drawn <= epochs * problems:
        return
    allowed = epochs * problems // config.sampling.problems
    raise ConfigError(
        f"task.epochs is {epochs}, but {config.run.steps} steps of {config.sampling.problems} "
        f"problems draw each of the {problems} training problems about {drawn / problems:.1f} "
        f"times; set run.steps to at most {allowed}, or raise task.epochs"
    )


def draws(config: Config, problems: int) -> str:
    """Say how often a run draws its training problems, and how many prompts were measured.

    Args:
        config: the run.
        problems: how many training problems there are.
    """
    drawn = config.run.steps * config.sampling.problems
    left = problems - drawn
    if left <= 0:
        return f"each training problem is drawn about {drawn / problems:.1f} times"
    return (
        f"{drawn} training problems are drawn once, and their prompts fit; of the other {left} "
        f"prompts {min(left, SAMPLE)} were measured, and fit"
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
