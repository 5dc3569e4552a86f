"""From a configuration to everything fixed that a run needs, checked before anything is written."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from verigrad import machine
from verigrad.algorithms import Algorithm
from verigrad.config import Config
from verigrad.errors import ModelError
from verigrad.policies.base import Policy
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.models import load_model
from verigrad.policies.precision import Precision
from verigrad.policies.recompute import recompute_layers
from verigrad.policies.tabular import TabularPolicy
from verigrad.tasks import Mixture, Split, Task, task_of
from verigrad.training.checks import check_device, check_lengths, checked_algorithm
from verigrad.training.decisions import Decisions, choose_device, choose_precision, choose_threads
from verigrad.training.preflight import DEFAULT, Preflight, preflight
from verigrad.training.problems import checked_split, finite, render_prompts
from verigrad.training.reference import check_reference
from verigrad.types import Problem, Prompt, Sampling


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run is made of and does not change."""

    config: Config
    task: Task
    split: Split
    policy: Policy
    algorithm: Algorithm

    reference: Policy | None
    """The frozen policy of the divergence term, if there is one."""

    prompts: Mapping[str, Prompt]
    """By problem id: the prompts this run will use, rendered once; the first RENDERED of them."""

    sampling: Sampling
    """How training completions are drawn."""

    decisions: Decisions
    """What was measured and chosen."""

    reasons: dict[str, str]
    """Why, by the name of the decision; empty where a resume took them over."""

    preflight: Preflight | None
    """What a pass takes; None for a table, whose passes take next to nothing."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the tasks of a mixture; none where the task is no mixture."""
        return self.task.names if isinstance(self.task, Mixture) else ()

    @property
    def evaluated(self) -> tuple[Problem, ...]:
        """The held-out problems that are evaluated, the same ones every time."""
        return tuple(self.split.held_out[: self.config.evaluation.problems])

    def prompt_of(self, problem: Problem) -> Prompt:
        """The prompt of a problem: as it was rendered before the run, or rendered now.

        Raises:
            ModelError: a prompt that was not looked at before the run does not fit.
        """
        known = self.prompts.get(problem.id)
        if known is not None:
            return known
        prompt = self.policy.encode(problem)
        for policy in (self.policy, self.reference):
            if policy is not None:
                check_lengths([prompt], policy.max_positions, self.sampling.max_new_tokens)
        return prompt

    @property
    def greedy(self) -> Sampling:
        """How completions are drawn for evaluation."""
        return greedy(self.sampling)


def greedy(sampling: Sampling) -> Sampling:
    """The same limits, always taking the likeliest token."""
    return Sampling(
        temperature=0.0,
        max_new_tokens=sampling.max_new_tokens,
        stop_token_ids=sampling.stop_token_ids,
    )


def prepare(config: Config, task: Task | None = None, decided: Decisions | None = None) -> Setup:
    """Load the task and the model, render and check the prompts, and decide what is measured.

    Args:
        config: the run.
        task: a task of the caller's; None loads the one that the configuration names.
        decided: the decisions of the run that is resumed; None measures.

    Raises:
        UserError: the task, the model, a prompt or the device cannot be used.
    """
    algorithm = checked_algorithm(config)
    task = task_of(config, task)
    parts = checked_split(task, config)
    device = decided.device if decided else device_for(config)
    check_device(device)
    shares = decided.shares_prompts if decided else None
    precision = decided.precision if decided else None
    policy = load_policy(config, task, device, shares_prompts=shares, precision=precision)
    prompts = render_prompts(config, parts, policy)
    sampling = Sampling(
        temperature=config.sampling.temperature,
        max_new_tokens=config.sampling.max_new_tokens,
        stop_token_ids=policy.stop_token_ids,
    )
    reference = _reference(config, task, policy, algorithm, device)
    if reference is not None:
        longest = sampling.max_new_tokens
        check_lengths(prompts.values(), reference.max_positions, longest)
    decisions, reasons = _decide(config, policy, list(prompts.values()), device, decided)
    flight = None
    if isinstance(policy, CausalLM):
        chooses = decided is None and config.run.token_budget == "auto"
        budget = None if chooses else decisions.token_budget
        flight = preflight(policy, algorithm, list(prompts.values()), config, device, budget)
        decisions = replace(decisions, token_budget=flight.token_budget)
        reasons = reasons and reasons | {"token_budget": flight.words}
    return Setup(
        config=config,
        task=task,
        split=parts,
        policy=policy,
        algorithm=algorithm,
        reference=reference,
        prompts=prompts,
        sampling=sampling,
        decisions=decisions,
        reasons=reasons,
        preflight=flight,
    )


def load_policy(
    config: Config,
    task: Task,
    device: str,
    folder: str | None = None,
    *,
    shares_prompts: bool | None = None,
    precision: Precision | None = None,
) -> Policy:
    """Make the policy that a configuration names, or load what a run saved in a folder.

    Args:
        config: names the policy, and sizes and seeds a table.
        task: what a table has its rows for.
        device: where a language model goes.
        folder: another model of the same kind to load instead, or "tabular" for a fresh table.
        shares_prompts: the decision of the run that is resumed; None finds out.
        precision: the same; None is what the configuration says for the device.

    Raises:
        ModelError: there is no such model, or it cannot be used.
    """
    if config.model.name != "tabular":
        loaded = load_model(folder or config.model.name, device=device)
        if config.model.activation_checkpointing:
            recompute_layers(loaded.model)
        if device == "cpu":
            machine.keep_freed()
        return CausalLM(
            loaded.model,
            loaded.tokenizer,
            shares_prompts=shares_prompts,
            precision=precision or choose_precision(config.model.precision, device),
        )
    positions = config.sampling.max_new_tokens
    problems = finite(task)
    ids = [problems[index].id for index in range(len(problems))]
    try:
        policy = TabularPolicy(ids, positions=positions, seed=config.run.seed)
    except RuntimeError as error:
        raise ModelError(
            f"a table of {len(ids)} problems and sampling.max_new_tokens = {positions} positions "
            f"cannot be made ({str(error).splitlines()[0]}); lower sampling.max_new_tokens"
        ) from error
    if folder not in (None, "tabular"):
        saved = _saved_table(Path(folder))
        if saved.shape != policy.table.shape:
            raise ModelError(
                f"{folder} holds a table of shape {tuple(saved.shape)}, but this task and "
                f"sampling.max_new_tokens need {tuple(policy.table.shape)}"
            )
        policy.table.data.copy_(saved)
    return policy


def _reference(
    config: Config, task: Task, policy: Policy, algorithm: Algorithm, device: str
) -> Policy | None:
    """The reference policy: another model, or a frozen copy of the policy as it starts."""
    if algorithm.divergence is None:
        return None
    name = algorithm.divergence.reference
    if name == "start":
        reference = copy.deepcopy(policy)
    else:
        reference = load_policy(config, task, device, name, precision=_precision(policy))
        resets = algorithm.divergence.reset_every is not None
        check_reference(policy, reference, name, resets=resets)
    reference.module.requires_grad_(False)
    return reference


def _precision(policy: Policy) -> Precision:
    return policy.precision if isinstance(policy, CausalLM) else "float32"


def _saved_table(folder: Path) -> torch.Tensor:
    try:
        return load_file(folder / "policy.safetensors")["table"]
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(
            f'{folder} holds no table that can be read, and the configuration has model = "tabular"'
            f"; name a tabular run, or the model's own configuration ({error})"
        ) from error


def device_for(config: Config) -> str:
    """The device of the policy that a configuration names; a table lives on the CPU.

    Raises:
        ModelError: another device is asked for a table.
    """
    if config.model.name != "tabular":
        return choose_device(config.run.device)
    if config.run.device not in ("auto", "cpu"):
        raise ModelError(
            f'run.device is {config.run.device!r}, but model = "tabular" is a table, which lives '
            "on the CPU; leave run.device out"
        )
    return "cpu"


def _decide(
    config: Config,
    policy: Policy,
    prompts: Sequence[Prompt],
    device: str,
    decided: Decisions | None,
) -> tuple[Decisions, dict[str, str]]:
    shares = getattr(policy, "shares_prompts", True)
    if decided is not None:
        torch.set_num_threads(decided.threads)
        return decided, {}
    threads, why = _threads(config, policy, prompts)
    budget = DEFAULT if config.run.token_budget == "auto" else config.run.token_budget
    decisions = Decisions(
        threads=threads,
        token_budget=budget,
        shares_prompts=shares,
        device=device,
        precision=_precision(policy),
    )
    reasons = {
        "threads": why,
        "token_budget": f"run.token_budget = {config.run.token_budget}",
        "shares_prompts": "exact for this model" if shares else "not exact for this model",
        "device": f'run.device = "{config.run.device}"',
        "precision": f'model.precision = "{config.model.precision}"',
    }
    return decisions, reasons


def _threads(config: Config, policy: Policy, prompts: Sequence[Prompt]) -> tuple[int, str]:
    if config.run.threads != "auto":
        torch.set_num_threads(config.run.threads)
        return config.run.threads, f"run.threads = {config.run.threads}"
    if config.model.name == "tabular":
        torch.set_num_threads(1)
        return 1, "1 CPU thread: a table has no work to share"
    some = prompts[: config.sampling.problems]

    @torch.inference_mode()
    def generate_a_little() -> None:
        rows = policy.continuation(some, config.sampling.completions)
        logits, states = rows.logits()
        every = torch.arange(len(states), device=states.device)
        # Each row goes on with a token of its own, so that no two of them are one.
        rows.advance(every, every % logits.shape[-1])

    return choose_threads(generate_a_little)
