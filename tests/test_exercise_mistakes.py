"""The exercise's tests catch the mistakes that learners make, and say what to look at."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOLUTION = ROOT / "exercises" / "15-grpo-rlvr" / "solution" / "grpo_rlvr.py"


class Mistake(NamedTuple):
    """A change to the solution, the test that has to notice it, and what its message says."""

    name: str
    right: str
    wrong: str
    test: str
    says: str


APPEND = "        step_rewards.append(rewards.mean().item())\n"
SMALLER = "torch.min(ratio * advantages, clipped * advantages)"
ZERO_CASE = "if all_equal or rewards.std() < eps:"
MISTAKES = [
    Mistake(
        "softmax in the policy",
        "return self.embed(torch.tensor(prompt_idx, dtype=torch.long))",
        "return self.embed(torch.tensor(prompt_idx, dtype=torch.long)).softmax(dim=0)",
        "test_policy_returns_the_row",
        "without a softmax",
    ),
    Mistake(
        "detached sampler",
        "return answers, distribution.log_prob(answers)",
        "return answers, distribution.log_prob(answers).detach()",
        "test_sample_log_probs_carry_the_gradient",
        "detached inside sample_group",
    ),
    Mistake(
        "logits as probabilities",
        "Categorical(logits=policy(prompt_idx))\n    answers",
        "Categorical(probs=policy(prompt_idx).exp() + 1)\n    answers",
        "test_sample_follows_the_policy",
        "not drawn with the policy's probabilities",
    ),
    Mistake(
        "no zero case for equal rewards",
        ZERO_CASE,
        "if len(rewards) == 1:",
        "test_advantages_of_equal_rewards",
        "equal rewards need their own case",
    ),
    Mistake(
        "no zero case for a group of one",
        ZERO_CASE,
        "if rewards.std() < eps:",
        "test_advantages_of_a_group_of_one",
        "K == 1 needs its own case",
    ),
    Mistake(
        "biased standard deviation",
        "(rewards.std() + eps)",
        "(rewards.std(correction=0) + eps)",
        "test_advantages_measure",
        "unbiased standard deviation",
    ),
    Mistake(
        "mean not subtracted",
        "(rewards - rewards.mean()) /",
        "rewards /",
        "test_advantages_measure",
        "subtract the mean",
    ),
    Mistake(
        "no minus sign",
        "return -surrogate.mean()",
        "return surrogate.mean()",
        "test_loss_is_minus",
        "the minus sign is missing",
    ),
    Mistake(
        "sum instead of mean",
        "return -surrogate.mean()",
        "return -surrogate.sum()",
        "test_loss_is_minus",
        "the mean over the group (not the sum",
    ),
    Mistake(
        "mean before min",
        SMALLER,
        "torch.min((ratio * advantages).mean(), (clipped * advantages).mean())",
        "test_loss_takes_the_smaller",
        "min comes before mean",
    ),
    Mistake(
        "inverted ratio",
        "torch.exp(log_probs_new - log_probs_old)",
        "torch.exp(log_probs_old - log_probs_new)",
        "test_loss_takes_the_ratio",
        "new over old",
    ),
    Mistake(
        "no clamp",
        "clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)",
        "clipped = ratio",
        "test_loss_stops_rewarding",
        "the clip is missing",
    ),
    Mistake(
        "clamp on one side",
        "ratio.clamp(1 - clip_eps, 1 + clip_eps)",
        "ratio.clamp(max=1 + clip_eps)",
        "test_loss_stops_rewarding",
        "one-sided",
    ),
    Mistake(
        "clip radius written out",
        "ratio.clamp(1 - clip_eps, 1 + clip_eps)",
        "ratio.clamp(0.8, 1.2)",
        "test_loss_clips_as_far",
        "clip_eps is ignored",
    ),
    Mistake(
        "only the clipped product",
        SMALLER,
        "clipped * advantages",
        "test_loss_does_not_clip",
        "take the smaller",
    ),
    Mistake(
        "the larger product",
        SMALLER,
        SMALLER.replace("min", "max"),
        "test_loss_does_not_clip",
        "take the smaller",
    ),
    Mistake(
        "old log-probs attached",
        "        log_probs_old = log_probs_old.detach()\n",
        "",
        "test_train_treats_the_old_log_probs",
        "detach it after sampling",
    ),
    Mistake(
        "second group scored",
        "log_probs_new = distribution.log_prob(answers)",
        "log_probs_new = distribution.log_prob(distribution.sample((K,)))",
        "test_train_scores_the_same_answers",
        "do not draw a second group",
    ),
    Mistake(
        "rewards in place of advantages",
        "log_probs_old, advantages, clip_eps)\n\n",
        "log_probs_old, rewards, clip_eps)\n\n",
        "test_train_passes_the_advantages",
        "not by the raw rewards",
    ),
    Mistake(
        "gradients not cleared",
        "        optimizer.zero_grad()\n",
        "",
        "test_train_steps_with_the_gradient",
        "optimizer.zero_grad() before",
    ),
    Mistake(
        "optimiser does not step",
        "        optimizer.step()\n",
        "",
        "test_train_steps_with_the_gradient",
        "call optimizer.step() once",
    ),
    Mistake(
        "step reward not appended",
        APPEND,
        "",
        "test_train_returns",
        "append to step_rewards once in every step",
    ),
    Mistake(
        "step reward appended after the loop",
        APPEND,
        APPEND.removeprefix("    "),
        "test_train_returns",
        "append to step_rewards once in every step",
    ),
    Mistake(
        "sum of the rewards appended",
        APPEND,
        APPEND.replace("mean", "sum"),
        "test_train_returns",
        "the mean reward of its group: not the sum",
    ),
]

# One process for all of them: importing torch takes far longer than grading one mistake.
GRADER = """
import contextlib, io, json, sys
import pytest

gradings = {}
for name, arguments in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main(arguments)
    gradings[name] = [int(code), output.getvalue()]
json.dump(gradings, sys.stdout)
"""


class Grading(NamedTuple):
    """What the exercise's tests gave: pytest's exit code and its output."""

    code: int
    output: str

    @property
    def messages(self) -> str:
        """The lines that explain a failure, without the source that pytest shows beside them."""
        return "\n".join(line for line in self.output.splitlines() if line.startswith("E  "))


@pytest.fixture(scope="module")
def gradings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Grading]:
    folder = tmp_path_factory.mktemp("mistakes")
    runs = {}
    for number, mistake in enumerate(MISTAKES):
        path = folder / f"mistake_{number}.py"
        path.write_text(with_mistake(mistake), encoding="utf-8")
        arguments = ["exercises/15-grpo-rlvr/", "--impl", str(path), "-k", mistake.test]
        runs[mistake.name] = [*arguments, "-p", "no:cacheprovider"]
    finished = subprocess.run(
        [sys.executable, "-c", GRADER],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {name: Grading(*result) for name, result in json.loads(finished.stdout).items()}


def with_mistake(mistake: Mistake) -> str:
    source = SOLUTION.read_text(encoding="utf-8")
    assert source.count(mistake.right) == 1, f"the solution no longer has: {mistake.right}"
    return source.replace(mistake.right, mistake.wrong)


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_common_mistake_fails_with_a_message_that_says_what_to_look_at(gradings, mistake):
    grading = gradings[mistake.name]
    assert grading.code == pytest.ExitCode.TESTS_FAILED, grading.output
    assert mistake.says in grading.messages
