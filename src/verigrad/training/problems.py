"""Which problems a run trains on and is evaluated on, checked before anything is written."""

from collections.abc import Sequence

from verigrad.config import Config
from verigrad.errors import ConfigError, TaskError
from verigrad.policies.base import Policy
from verigrad.tasks import FiniteTask, Split, Task, problem_at, split
from verigrad.training.checks import check_lengths, check_problems
from verigrad.types import Problem, Prompt

RENDERED = 20_000
"""Most problems whose prompts are rendered before a run, and kept."""


def checked_split(task: Task, config: Config) -> Split:
    """Split a task, and make sure that no held-out problem can be drawn for training.

    Of a task whose problems are made when they are drawn, as many are held out as are evaluated;
    what is drawn for training is held against the split when it is made.

    Raises:
        TaskError: an item is no usable problem, a content is on both sides, or a side is empty
            that should not be.
    """
    check_problems(task)
    parts = split(task, config.task.held_out, config.evaluation.problems)
    if not isinstance(parts.training, Sequence):
        return parts
    training = {problem.content_key for problem in parts.training}
    for problem in parts.held_out:
        if problem.content_key in training:
            raise TaskError(
                f"held-out problem {problem.id!r} has the content of a training problem, "
                f"{problem.content_key!r}; accuracy on it would say nothing"
            )
    return parts


def describe_split(parts: Split) -> str:
    """How many problems there are on both sides, in words."""
    held_out = f"{len(parts.held_out)} held out"
    if isinstance(parts.training, Sequence):
        return f"{len(parts.training)} problems to train on, {held_out}"
    return f"problems to train on are made as they are drawn, {held_out}"


def finite(task: Task) -> FiniteTask:
    """The task, if it has the problems that a table has its rows for.

    Raises:
        TaskError: it makes its problems when they are drawn.
    """
    if isinstance(task, FiniteTask):
        return task
    raise TaskError(
        f'model = "tabular" has a row for each problem, but {task.name} makes its problems when '
        "they are drawn; train a language model, or take a finite task"
    )


def problems_to_evaluate(parts: Split, config: Config) -> Sequence[Problem]:
    """The held-out problems; where none is held out, training problems."""
    most = config.evaluation.problems
    problems = parts.held_out or parts.training
    if isinstance(problems, Sequence):
        return problems[: most or None]
    if not most:
        raise ConfigError(
            "evaluation.problems is 0, which means all problems, but the task has no end; set it "
            "to how many are to be evaluated"
        )
    drawn = {
        problem.id: problem
        for problem in (problem_at(parts.training, config.run.seed, n) for n in range(most))
    }
    return tuple(drawn.values())


def render_prompts(config: Config, parts: Split, policy: Policy) -> dict[str, Prompt]:
    """Render the prompts that the run will use, and measure them against the model's limit.

    Of a run that draws more than RENDERED problems the first ones are rendered here, the others
    when they are drawn.

    Raises:
        ModelError: a prompt and its completion do not fit; names the problem.
    """
    drawn = min(config.run.steps * config.sampling.problems, RENDERED)
    if isinstance(parts.training, Sequence):
        drawn = min(drawn, len(parts.training))
    problems = [
        *(problem_at(parts.training, config.run.seed, position) for position in range(drawn)),
        *parts.held_out[: config.evaluation.problems],
    ]
    prompts = {problem.id: policy.encode(problem) for problem in problems}
    check_lengths(prompts.values(), policy.max_positions, config.sampling.max_new_tokens)
    return prompts
