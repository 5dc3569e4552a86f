"""Some problems of a task, as the model will see them, with the verdict on each reference."""

import json

from verigrad.config import Config
from verigrad.errors import ConfigError
from verigrad.escaping import printable
from verigrad.policies.models import load_tokenizer, render
from verigrad.tasks import Task, problem_at, solution_of_problem, task_of
from verigrad.training.problems import checked_split, describe_split
from verigrad.types import Problem, Verdict
from verigrad.verifiers import verify


def show_problems(config: Config, number: int) -> str:
    """The problems that a run would draw first, rendered with its model's tokenizer.

    Args:
        config: the run; no weights are loaded.
        number: how many problems.

    Raises:
        UserError: the task, the tokenizer or a prompt cannot be used.
    """
    if config.model.name == "tabular":
        raise ConfigError(
            'the model is "tabular", which sees the number of a problem and no text; name a '
            "language model"
        )
    task = task_of(config)
    parts = checked_split(task, config)
    tokenizer = load_tokenizer(config.model.name)
    drawn = [
        problem_at(parts.training, config.run.seed, place, config.task.order)
        for place in range(number)
    ]
    blocks = [f"{task.name}: {describe_split(parts)}; rendered for {config.model.name}"]
    for problem in drawn:
        prompt = render(tokenizer, problem.prompt)
        lines = [
            f"== {problem.id}",
            f"-- prompt, {len(prompt)} tokens",
            tokenizer.decode(list(prompt), skip_special_tokens=False),
        ]
        answer = answer_of(task, problem)
        if answer != str(problem.reference):
            lines.append(f"-- reference: {problem.reference!r}")
        if answer is not None:
            tokens = len(tokenizer.encode(answer, add_special_tokens=False))
            lines += _verified(task, problem, answer, tokens)
        blocks.append("\n".join(lines))
    return printable("\n\n".join(blocks))


def _verified(task: Task, problem: Problem, answer: str, tokens: int) -> list[str]:
    return [
        f"-- right answer, {tokens} tokens, and what ends a turn",
        answer,
        f"-- the verifier says: {_words(verify(task.verifier, answer, problem.reference))}",
    ]


def answer_of(task: Task, problem: Problem) -> str | None:
    """What a model that is right would write, as the task or its verifier says, or the reference.

    A reference that neither can write is shown as JSON; None stands for no known answer.
    """
    written = solution_of_problem(task, problem)
    answer = problem.metadata.get("answer", problem.reference)
    if written is not None or answer is None:
        return written
    try:
        return json.dumps(answer)
    except (TypeError, ValueError):
        return str(answer)


def _words(verdict: Verdict) -> str:
    reward = "no reward" if verdict.reward is None else f"reward {verdict.reward:g}"
    parts = ", ".join(f"{name} {value:g}" for name, value in verdict.components.items())
    of_parts = f" ({parts})" if parts else ""
    detail = f": {verdict.detail}" if verdict.detail else ""
    return f"{verdict.status}, {reward}{of_parts}{detail}"
