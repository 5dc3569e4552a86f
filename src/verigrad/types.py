"""What flows through a run: problem, prompt, completion, verdict, rollout, group.

    problem -> prompt -> completion -> verdict -> group -> advantages -> batch -> loss -> step

Every stage makes a new frozen object; nothing is filled in later. This module needs the standard
library only, so that a verifier or a data tool can import it without torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict

EQUAL_WITHIN = 1e-9
"""Rewards that spread less than this, relative to max(1, largest magnitude), count as equal."""

FULL_MARKS = 1.0
"""A completion solves its problem when its reward is at least this."""


class Message(TypedDict):
    """One turn of a chat: ``{"role": "user", "content": "What is 12 + 7?"}``."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One instance of a task, with an answer that a program can check.

    Example:
        Problem(id="addition/12+7", prompt="What is 12 + 7?", reference=19, content="7+12")
    """

    id: str
    """Stable and unique within its task; names the content, not the position."""

    prompt: str | tuple[Message, ...]
    """What the model may see: plain text (one user turn) or chat messages."""

    reference: Any
    """What only the verifier may see."""

    content: str = ""
    """What makes two problems the same one, for the held-out split; empty means the prompt."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Anything else worth keeping; never shown to the model or to the verifier."""

    @property
    def content_key(self) -> str:
        """The text that decides on which side of the held-out split this problem falls."""
        if self.content:
            return self.content
        if isinstance(self.prompt, str):
            return " ".join(self.prompt.split())
        return "\n".join(
            f"{turn['role']}: {' '.join(turn['content'].split())}" for turn in self.prompt
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A problem's prompt as the token ids the policy is conditioned on."""

    problem_id: str
    """The problem these tokens render."""

    token_ids: tuple[int, ...]
    """Rendered once by the policy's tokenizer and chat template; never made again from text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How completions are drawn."""

    temperature: float = 1.0
    """Logits are divided by it; 0 means greedy, with log-probs of the untempered policy."""

    max_new_tokens: int
    """Longest completion, in tokens, the stop token included."""

    stop_token_ids: tuple[int, ...]
    """Any of them ends a completion and belongs to it."""


class Finish(StrEnum):
    """How a completion ended."""

    STOPPED = "stopped"
    """The policy chose a stop token, which is the last of its tokens."""

    TRUNCATED = "truncated"
    """It reached the length limit first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What the policy produced after a prompt.

    Example (token 2 is the stop token):
        Completion(token_ids=(41, 2), log_probs=(-0.7, -0.1), finish=Finish.STOPPED,
                   policy_version=3, text="19")
    """

    token_ids: tuple[int, ...]
    """Every token the policy chose, in order, the stop token included if it stopped."""

    log_probs: tuple[float, ...]
    """Natural log-probability of each token when it was drawn, at the sampling temperature."""

    finish: Finish
    """Whether it stopped by itself."""

    policy_version: int
    """How many optimiser updates the sampling policy had seen."""

    text: str
    """The decoded tokens, for the verifier and for people; never tokenised again."""

    def __post_init__(self) -> None:
        """Refuse a completion whose log-probs do not belong to its tokens."""
        if len(self.token_ids) != len(self.log_probs):
            raise ValueError(
                f"a completion has {len(self.token_ids)} tokens but {len(self.log_probs)} "
                "log-probs; each token needs its own"
            )


class Status(StrEnum):
    """What became of a verification."""

    SCORED = "scored"
    """The verifier looked at an answer and gave it a reward."""

    UNPARSABLE = "unparsable"
    """There was no answer to look at; the reward is 0, and it is counted apart."""

    FAILED = "failed"
    """The verifier did not do its work; there is no reward."""


class FailureKind(StrEnum):
    """Why a verifier did not do its work."""

    EXCEPTION = "exception"
    """It raised an error, exited, or said itself that it failed."""

    TIMEOUT = "timeout"
    """It took too long."""

    MEMORY = "memory"
    """It needed too much memory."""

    BAD_VALUE = "bad_value"
    """It returned something that is no verdict."""

    DIED = "died"
    """The process it ran in came to an end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a verifier says about one completion.

    Example:
        Verdict.scored(1.0)                            the answer is right
        Verdict.unparsable("no number in the answer")  reward 0
        Verdict.failed("ValueError: bad reference")    no reward: left out of every mean
    """

    status: Status
    """Scored, unparsable or failed."""

    reward: float | None
    """The reward; None exactly when the verification failed."""

    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the reward before weighting."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each named part in the reward; 1 where none is given."""

    detail: str = ""
    """Words for a person."""

    kind: FailureKind | None = None
    """Why it failed; None exactly when it did not."""

    def __post_init__(self) -> None:
        """Hold the reward to its status, and to finite numbers."""
        if (self.reward is None) != (self.status is Status.FAILED):
            raise ValueError(
                f"a verdict is {self.status} with reward {self.reward}; "
                "the reward is None exactly when the verdict is failed"
            )
        if (self.kind is None) != (self.reward is not None):
            raise ValueError(
                f"a verdict is {self.status} with kind {self.kind}; it has a kind exactly when "
                "it is failed"
            )
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"a verdict has reward {self.reward}; a reward is a finite number")

    @classmethod
    def scored(cls, reward: float, detail: str = "") -> "Verdict":
        """A verdict with a reward."""
        return cls(status=Status.SCORED, reward=float(reward), detail=detail)

    @classmethod
    def unparsable(cls, detail: str) -> "Verdict":
        """No answer was found: reward 0, counted apart from wrong answers."""
        return cls(status=Status.UNPARSABLE, reward=0.0, detail=detail)

    @classmethod
    def failed(cls, detail: str, kind: FailureKind = FailureKind.EXCEPTION) -> "Verdict":
        """The verifier itself failed: no reward at all."""
        return cls(status=Status.FAILED, reward=None, detail=detail, kind=kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """A prompt, one completion of it, and the verdict on that completion."""

    prompt: Prompt
    completion: Completion
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The K rollouts of one problem in one step.

    Example: rewards (1, 0, failed, 0) -> ``scored`` has three members and there is a signal;
    (1, failed, failed, failed) -> one member is scored, so there is none.
    """

    problem: Problem
    rollouts: tuple[Rollout, ...]

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that have a reward; a failed one takes part in nothing."""
        return tuple(r for r in self.rollouts if r.verdict.reward is not None)

    @property
    def rewards(self) -> tuple[float, ...]:
        """The rewards of the scored rollouts, in order."""
        return tuple(r.verdict.reward for r in self.rollouts if r.verdict.reward is not None)

    @property
    def has_signal(self) -> bool:
        """True when at least two rollouts are scored and their rewards differ.

        Rewards within EQUAL_WITHIN of each other are equal: 0.1 + 0.2 beside 0.3 is no signal.
        """
        rewards = self.rewards
        if len(rewards) < 2:
            return False
        scale = max(1.0, *map(abs, rewards))
        return max(rewards) - min(rewards) > EQUAL_WITHIN * scale
