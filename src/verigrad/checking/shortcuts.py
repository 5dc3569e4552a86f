"""Completions that know no answer, or take one back: none of them may be paid."""

from collections.abc import Sequence
from dataclasses import dataclass

from verigrad.tasks import Task, solution_of_problem
from verigrad.types import Problem
from verigrad.verifiers.code import CodeVerifier

CONSTANTS = ("0", "1", "A", "yes", "true", "I do not know.")

TEMPLATES = (
    "<think>\n\n</think>\n<answer></answer>",
    "The answer is \\boxed{}.",
    "#### ",
    "The answer is",
    "```python\n```",
)
"""What an answer is often asked to stand in, without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortcut:
    """A completion that must not be paid."""

    name: str
    """The kind of shortcut, in words."""

    problem: Problem
    """What it is given as an answer to."""

    text: str
    """The completion."""

    may_be_right: bool = False
    """It may be the answer to a problem by chance, so that being paid once says nothing."""


def shortcuts_of(task: Task, problems: Sequence[Problem]) -> list[Shortcut]:
    """The shortcuts through each of some problems.

    Args:
        task: theirs.
        problems: the more there are, the more wrong answers can be put beside the right ones.
    """
    answers = [solution_of_problem(task, problem) for problem in problems]
    distinct = list(dict.fromkeys(answer for answer in answers if answer is not None))
    made = []
    for problem, answer in zip(problems, answers, strict=True):
        texts = {"empty text": [""], "a template without an answer": list(TEMPLATES)}
        if answer is not None and not isinstance(task.verifier, CodeVerifier):
            # Beside a right program another one is no contradiction.
            texts |= _with_wrong_ones(answer, [other for other in distinct if other != answer])
        made += [
            Shortcut(name=name, problem=problem, text=text)
            for name, some in texts.items()
            for text in some
        ]
    return [*made, *_blind(problems)]


def _blind(problems: Sequence[Problem]) -> list[Shortcut]:
    """Each constant, and the problem's own prompt, as the answer to each problem."""
    constants = {f"the constant {text!r}": text for text in CONSTANTS}
    return [
        Shortcut(name=name, problem=problem, text=text, may_be_right=True)
        for problem in problems
        for name, text in {"the prompt echoed": _prompt(problem), **constants}.items()
    ]


def _prompt(problem: Problem) -> str:
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(turn["content"] for turn in problem.prompt)


def _with_wrong_ones(answer: str, others: Sequence[str]) -> dict[str, list[str]]:
    """The right answer beside wrong ones; it never comes last, where it would count."""
    other = others[0] if others else "something else"
    texts = {"the answer, then a contradiction": [f"{answer}\n\nNo, that is wrong. It is {other}."]}
    if others:
        every = [answer, *others[:3]]
        texts["every choice at once"] = [", ".join(every), " or ".join(every), "\n".join(every)]
    return texts
