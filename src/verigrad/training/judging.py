"""From sampled completions to groups: each is verified, and put with the others of its problem."""

from collections.abc import Sequence

from verigrad.types import Completion, Group, Problem, Prompt, Rollout
from verigrad.verifiers.runner import Pending, Runner


class Judge:
    """Has completions verified, each as soon as it is there, and puts them into groups."""

    def __init__(self, runner: Runner, problems: Sequence[Problem]) -> None:
        """Begin a step.

        Args:
            runner: runs the task's verifier.
            problems: one per slot of the step.
        """
        self._runner = runner
        self._problems = problems
        self._pending: dict[tuple[int, int], Pending] = {}

    def take(self, slot: int, number: int, completion: Completion) -> None:
        """Have one completion of the problem in a slot verified, beside other work."""
        reference = self._problems[slot].reference
        self._pending[slot, number] = self._runner.submit(completion.text, reference)

    def groups(
        self, prompts: Sequence[Prompt], completions: Sequence[tuple[Completion, ...]]
    ) -> list[Group]:
        """Wait for the verdicts, in order, and put the completions of each problem into a group.

        Args:
            prompts: of the same problems.
            completions: of the same problems, K each, all of which were taken.
        """
        return [
            Group(
                problem=problem,
                rollouts=tuple(
                    Rollout(
                        prompt=prompt,
                        completion=completion,
                        verdict=self._pending[slot, number].result(),
                    )
                    for number, completion in enumerate(some)
                ),
            )
            for slot, (problem, prompt, some) in enumerate(
                zip(self._problems, prompts, completions, strict=True)
            )
        ]
