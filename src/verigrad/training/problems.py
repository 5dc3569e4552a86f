"""Which problems a run trains on and is evaluated on, checked before anything is written."""

from collections.abc import Sequence

from verigrad.config import Config
from verigrad.errors import ConfigError, TaskError
from verigrad.policies.base import Policy
from verigrad.tasks import FiniteTask, Prepared, Split, Task, normalised, problem_at, split
from verigrad.training.checks import check_lengths, check_problems
from verigrad.types import Problem, Prompt

SAMPLE = 256
"""Of the training problems that a run will not draw, so many prompts are measured too."""

RENDERED = 20_000
"""Most problems whose prompts are rendered before a run, and kept."""


def checked_split(task: Task, config: Config) -> Split:
    """Split a task, and make sure that no held-out problem can be drawn for training.

    Of a task whose problems are made when they are drawn, as many are held out as are evaluated;
    what is drawn for training is held against the split when it is made.

    Raises:
        TaskError: an item is no usable problem, an id or a prompt is on both sides, or a side is
            empty that should not be.
        ConfigError: the run draws its problems otherwise than they can be drawn.
    """
    # The rows of a prepared task were checked when they were indexed.
    prepared = isinstance(task, Prepared)
    if not prepared:
        check_problems(task)
    parts = split(task, config.task.held_out, config.evaluation.problems)
    if isinstance(parts.training, Sequence) and not prepared:
        check_sides(parts.training, parts.held_out)
    check_epochs(config, parts)
    return parts


def check_sides(training: Sequence[Problem], held_out: Sequence[Problem]) -> None:
    """Refuse a held-out problem that is trained on, by its id or by its normalised prompt.

    Raises:
        TaskError: names both problems.
    """
    ids = {problem.id for problem in training}
    prompts = {_asked(problem): problem.id for problem in training}
    for problem in held_out:
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


def check_epochs(config: Config, parts: Split) -> None:
    """Refuse a run that draws its problems more often, or otherwise, than its task allows.

    Raises:
        ConfigError: says how many steps are allowed, or that the problems have no order and end.
    """
    chosen = config.task
    if not isinstance(parts.training, Sequence):
        if chosen.epochs is None and chosen.order == "shuffled":
            return
        raise ConfigError(
            f"task.epochs and task.order are for problems that are listed, and {chosen.name} makes "
            "them when they are drawn; leave both out"
        )
    problems, drawn = len(parts.training), config.run.steps * config.sampling.problems
    if chosen.epochs is None or drawn <= chosen.epochs * problems:
        return
    allowed = chosen.epochs * problems // config.sampling.problems
    mend = f"set run.steps to at most {allowed}" if allowed else "lower sampling.problems"
    raise ConfigError(
        f"task.epochs is {chosen.epochs}, but {config.run.steps} steps of "
        f"{config.sampling.problems} problems draw each of the {problems} training problems about "
        f"{drawn / problems:.1f} times; {mend}, or raise task.epochs"
    )


def draws(config: Config, parts: Split) -> str:
    """Say how often a run draws its training problems, and how many prompts were measured."""
    drawn = config.run.steps * config.sampling.problems
    if not isinstance(parts.training, Sequence):
        return f"{drawn} problems are drawn; the first {min(drawn, RENDERED)} prompts fit"
    left = len(parts.training) - drawn
    if left <= 0:
        return f"each training problem is drawn about {drawn / len(parts.training):.1f} times"
    return (
        f"{drawn} training problems are drawn once, and their prompts fit; of the other {left} "
        f"prompts {min(left, SAMPLE)} were measured, and fit"
    )


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
        return tuple(problems[: most or None])
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
    when they are drawn. Of listed problems that the run will not draw, SAMPLE are measured too.

    Raises:
        ModelError: a prompt and its completion do not fit; names the problem.
    """
    drawn = min(config.run.steps * config.sampling.problems, RENDERED)
    beyond = drawn
    if isinstance(parts.training, Sequence):
        drawn = min(drawn, len(parts.training))
        beyond = min(drawn + SAMPLE, len(parts.training))

    def prompt_at(position: int) -> Prompt:
        chosen = problem_at(parts.training, config.run.seed, position, config.task.order)
        return policy.encode(chosen)

    used = [prompt_at(position) for position in range(drawn)]
    used += [policy.encode(each) for each in parts.held_out[: config.evaluation.problems]]
    rest = (prompt_at(position) for position in range(drawn, beyond))
    for prompts in (used, rest):
        check_lengths(prompts, policy.max_positions, config.sampling.max_new_tokens)
    return {prompt.problem_id: prompt for prompt in used}
