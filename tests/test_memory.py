"""Memory that runs short: passes get smaller, and the gradient is the same."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import assert_same_gradient, batch_of, make_algorithm, make_group, make_table
from ragged import gradients, preset, ragged_batch, relative_difference
from running import assert_same_run, command, processes, read_jsonl, write_tiny_run
from tiny import exact_policy, save_tiny_model, tiny_policy
from torch import Tensor

from verigrad import machine
from verigrad.batch import Batch, Tokens
from verigrad.cli import main
from verigrad.config import load_config
from verigrad.config.fields import in_bytes
from verigrad.engines import LocalEngine
from verigrad.errors import MemoryLimitError
from verigrad.policies.base import TokenScores
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.tabular import TabularPolicy
from verigrad.training import memory
from verigrad.training.bad_updates import BadUpdate
from verigrad.training.folder import make_folder
from verigrad.training.memory import (
    MemoryWatch,
    PassCost,
    TokenBudget,
    cost_from,
    in_words,
    limit_of,
    missing_gradients,
    used,
)
from verigrad.training.preflight import Preflight
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import Setup, prepare
from verigrad.training.state import TrainerState
from verigrad.training.step import Update, accumulate, measure, update
from verigrad.training.trainer import Trainer

MANY = 10**6
"""A budget that any batch fits into."""


def watch_for(policy: CausalLM | TabularPolicy, tokens: int) -> MemoryWatch:
    """A watch that lets passes of so many tokens through, and none of more.

    A token is said to take 100 GB, beside which what this process takes does not matter.
    """
    cost = PassCost(fixed=0.0, per_token=1e11, per_pair=0.0)
    limit = int(1e11 * (tokens + 0.5))
    return MemoryWatch(limit=limit, device="cpu", cost=cost, module=policy.module)


# What the machine says


def machine_with(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:   1000 kB\nMemFree: 5 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GROUP_2 = {"proc/self/cgroup": "0::/slice/run\n"}
GROUP_1 = {"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/run/a\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, 1_024_000),
        (GROUP_2 | {"sys/fs/cgroup/slice/run/memory.max": "7000\n"}, 7000),
        (GROUP_2 | {"sys/fs/cgroup/slice/run/memory.max": "max\n"}, 1_024_000),
        # A group above it.
        (GROUP_2 | {"sys/fs/cgroup/slice/memory.max": "6000\n"}, 6000),
        # A container, whose own group is its root.
        (GROUP_2 | {"sys/fs/cgroup/memory.max": "5000\n"}, 5000),
        (GROUP_1 | {"sys/fs/cgroup/memory/run/a/memory.limit_in_bytes": "4000\n"}, 4000),
        (GROUP_1 | {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 1_024_000),
    ],
)  # fmt: skip
def test_memory_is_the_least_of_the_machine_and_its_groups(files, found, tmp_path):
    assert machine.memory(machine_with(tmp_path, files)) == found


def test_a_system_without_these_files_does_not_say(tmp_path):
    assert machine.memory(tmp_path) is None
    assert machine.resident(tmp_path) is None


def test_resident_memory_is_what_was_written_to():
    before = machine.resident()
    values = torch.ones(50_000_000)
    after = machine.resident()
    assert before is not None
    assert after is not None
    assert values.nbytes == 200_000_000
    assert 150e6 < after - before < 250e6


def test_memory_that_was_freed_is_given_back():
    before = machine.resident() or 0
    pieces = [torch.ones(5_000) for _ in range(5_000)]
    kept = pieces[::500]
    del pieces
    machine.give_back()
    assert len(kept) == 10
    assert (machine.resident() or 0) - before < 50e6


@pytest.mark.parametrize(
    ("text", "size"),
    [("6 GB", 6 * 10**9), ("512MiB", 2**29), ("1.5 kB", 1500), ("0.25 TB", 25 * 10**10)],
)
def test_a_size_is_a_number_and_a_unit(text, size, write):
    file = write('task = "toy"\nmodel = "tabular"\n')
    config = load_config(file, [("run.memory_limit", text)])
    assert config.run.memory_limit == text
    assert in_bytes(text) == limit_of(text, "cpu") == size


@pytest.mark.parametrize("text", ["6", "-6 GB", "6 gb", "0 GB", "GB", "6 GB ", "0.0 MB"])
def test_another_text_is_no_size(text, write):
    file = write(f'task = "toy"\nmodel = "tabular"\n[run]\nmemory_limit = "{text}"\n')
    with pytest.raises(Exception, match=r'a size such as "6 GB" or "512 MiB", or "auto"'):
        load_config(file)


def test_a_limit_is_bytes_or_a_share_of_what_is_here(monkeypatch):
    assert limit_of(123, "cpu") == 123
    monkeypatch.setattr(machine, "memory", lambda: 1000)
    assert limit_of("auto", "cpu") == 800
    monkeypatch.setattr(machine, "memory", lambda: None)
    assert limit_of("auto", "cpu") is None
    # Nobody says how much of it a process takes.
    assert limit_of("auto", "mps") is None
    assert used("mps") is None


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 bytes"), (34_400, "34 kB"), (5e8, "500 MB"), (12.3e9, "12.3 GB")]
)
def test_bytes_are_said_as_a_person_says_them(count, words):
    assert in_words(count) == words


# What a pass takes


def test_a_token_that_costs_more_among_many_has_pairs():
    cost = cost_from((10, 1000), (20, 2400))
    assert cost == PassCost(fixed=0.0, per_token=80.0, per_pair=2.0)
    assert cost.bytes(10) == 1000
    assert cost.bytes(40) == 40 * 80 + 1600 * 2


def test_what_a_pass_takes_once_is_not_taken_for_each_token():
    cost = cost_from((10, 1000), (20, 1600))
    assert cost == PassCost(fixed=400.0, per_token=60.0, per_pair=0.0)
    assert cost.bytes(40) == 400 + 40 * 60


def test_a_small_pass_that_took_more_counts_for_nothing():
    assert cost_from((10, 900), (20, 800)) == PassCost(fixed=800.0, per_token=0.0, per_pair=0.0)


def test_one_pass_alone_says_what_a_token_takes():
    assert cost_from((10, 900), (10, 900)) == PassCost(fixed=0.0, per_token=90.0, per_pair=0.0)


def test_a_small_pass_that_nobody_saw_says_nothing():
    """A fit through it would have a token cost less than nothing."""
    assert cost_from((100, 0), (400, 600)) == PassCost(fixed=0.0, per_token=1.5, per_pair=0.0)


def test_gradients_that_are_not_there_are_counted():
    policy = make_table(problems=2, answers=5, positions=3)
    watch = replace(watch_for(policy, 10), cost=PassCost(fixed=0, per_token=7, per_pair=0))
    assert missing_gradients(policy.module) == 2 * 5 * 3 * 8
    assert watch.needed(3) == 21 + 240
    policy.table.grad = torch.zeros_like(policy.table)
    assert missing_gradients(policy.module) == 0
    assert watch.needed(3) == 21


def test_a_pass_fits_up_to_the_limit_with_what_is_in_use(monkeypatch):
    in_use = [1000]
    monkeypatch.setattr(memory, "used", lambda device: in_use[0])
    monkeypatch.setattr(memory, "give_back", lambda device: None)
    policy = make_table()
    policy.table.grad = torch.zeros_like(policy.table)
    cost = PassCost(fixed=0.0, per_token=10.0, per_pair=0.0)
    watch = MemoryWatch(limit=1100, device="cpu", cost=cost, module=policy.module)
    assert watch.fits(10)
    assert not watch.fits(11)
    # What was freed and is kept is given back before a pass is found too large.
    monkeypatch.setattr(memory, "give_back", lambda device: in_use.__setitem__(0, 990))
    assert watch.fits(11)
    assert not watch.fits(12)


# Passes

ROWS = [((1, 2, 3, 0), 1.0), ((2, 0), 0.25), ((4, 4, 0), 0.0), ((3, 0), 0.5)]


GROUPS = [make_group(0, ROWS[:2]), make_group(1, ROWS), make_group(2, ROWS)]
"""Passes of at most 12 tokens have 2, 4 and 4 rows."""


def rows_of(budget: TokenBudget, batch: Tokens) -> list[list[int]]:
    return [some.rows for some in budget.passes(batch, range(len(batch.mask)))]


def test_without_a_watch_passes_are_those_of_the_budget():
    """Prompts have one token: 1 + 4 + 2 + 3 + 2 = 12 tokens."""
    batch = batch_of([make_group(0, ROWS)], make_algorithm())
    assert [len(rows) for rows in rows_of(TokenBudget(12), batch)] == [4]
    assert sorted(chain.from_iterable(rows_of(TokenBudget(7), batch))) == [0, 1, 2, 3]
    assert [len(rows) for rows in rows_of(TokenBudget(1), batch)] == [1, 1, 1, 1]


def test_a_budget_is_halved_until_a_pass_fits_and_stays_so():
    said: list[str] = []
    batch = batch_of([make_group(row, ROWS) for row in range(3)], make_algorithm())
    budget = TokenBudget(MANY, watch_for(make_table(), 20), said.append)
    passes = rows_of(budget, batch)
    assert budget.tokens == 18
    assert [len(rows) for rows in passes] == [4, 4, 4]
    assert len(said) == 1
    assert re.fullmatch(
        r"[\d.]+ [MG]B of memory are in use and a pass of 36 tokens takes about 3600.0 GB more, "
        r"beyond run.memory_limit \(2050.0 GB\); passes have at most 18 tokens from here on, with "
        r"which the gradient is the same but for rounding",
        said[0],
    )
    assert rows_of(budget, batch) == passes
    assert len(said) == 1


def test_a_budget_that_is_halved_twice_before_a_pass_fits_is_said_once():
    said: list[str] = []
    batch = batch_of([make_group(row, ROWS) for row in range(3)], make_algorithm())
    budget = TokenBudget(MANY, watch_for(make_table(), 6), said.append)
    assert sorted(chain.from_iterable(rows_of(budget, batch))) == [*range(12)]
    # 36, 18 tokens of which a pass has 12, and half of those.
    assert budget.tokens == 6
    assert len(said) == 1
    assert "a pass of 36 tokens takes" in said[0]
    assert "at most 6 tokens from here on" in said[0]


def test_a_single_row_that_does_not_fit_ends_it_with_what_to_do():
    batch = batch_of([make_group(0, ROWS)], make_algorithm())
    budget = TokenBudget(MANY, watch_for(make_table(), 4))
    with pytest.raises(MemoryLimitError, match=r"a single completion .* sampling.max_new_tokens"):
        rows_of(budget, batch)


def test_memory_that_runs_short_in_the_middle_cuts_what_is_left():
    """The first pass, of 7 tokens, fits; the second would have 12, and two thirds of it have 9."""
    batch = batch_of(GROUPS, make_algorithm())
    budget = TokenBudget(12, watch_for(make_table(), 9))
    first, *rest = rows_of(budget, batch)
    assert first == [0, 1]
    assert sorted(chain.from_iterable(rest)) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert max(map(len, rest)) < 4
    assert budget.tokens == 6


def test_rows_that_begin_alike_count_once():
    """Eleven tokens: a prompt of one and what all eight rows have together."""
    rows = [((*range(2, 12),), float(number)) for number in range(8)]
    batch = batch_of([make_group(0, rows)], make_algorithm())
    budget = TokenBudget(64, watch_for(make_table(), 11))
    assert rows_of(budget, batch) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert budget.tokens == 64


def test_a_copy_for_a_checkpoint_is_waited_for_before_passes_get_smaller(monkeypatch):
    in_use = [10**15]
    monkeypatch.setattr(memory, "used", lambda device: in_use[0])
    batch = batch_of(GROUPS, make_algorithm())
    watch = watch_for(make_table(), 40)
    waited = TokenBudget(MANY, watch, settle=lambda: in_use.__setitem__(0, 0))
    assert [len(rows) for rows in rows_of(waited, batch)] == [10]
    assert waited.tokens == MANY
    in_use[0] = 10**15
    with pytest.raises(MemoryLimitError):
        rows_of(TokenBudget(MANY, watch), batch)


# The same gradient


@cache
def exact() -> tuple[CausalLM, Batch, dict[str, Tensor]]:
    """A policy in float64, a batch, and its gradient in a single pass."""
    policy, batch = exact_policy("gpt2"), ragged_batch(torch.float64)
    policy.module.zero_grad()
    assert accumulate(policy, batch, preset("grpo"), temperature=0.9, token_budget=MANY)
    return policy, batch, gradients(policy)


def test_a_budget_that_is_halved_on_the_way_leaves_the_gradient_as_it_is():
    policy, batch, wanted = exact()
    policy.module.zero_grad()
    budget = TokenBudget(MANY, watch_for(policy, 16))
    done = accumulate(policy, batch, preset("grpo"), temperature=0.9, token_budget=budget)
    assert done is not None
    assert budget.tokens < 30
    assert done.passes > 2
    assert relative_difference(gradients(policy), wanted) <= 1e-12


def test_a_halved_budget_leaves_the_gradient_of_a_model_with_float32_norms_within_1e_6():
    policy, batch = tiny_policy("llama", dtype=torch.float64), ragged_batch(torch.float64)
    found = []
    for budget in (TokenBudget(MANY), TokenBudget(MANY, watch_for(policy, 16))):
        policy.module.zero_grad()
        accumulate(policy, batch, preset("grpo"), temperature=0.9, token_budget=budget)
        found.append(gradients(policy))
    assert relative_difference(found[1], found[0]) <= 1e-6


class Small(TabularPolicy):
    """A table on a device that has room for so many rows at once, and says so when it has not."""

    room = 3
    backwards = False
    """Whether memory runs out on the way back."""

    def score(self, tokens: Tokens, temperature: float, **options: Any) -> TokenScores:
        scores = super().score(tokens, temperature, **options)
        if len(tokens.mask) <= self.room:
            return scores
        if not self.backwards:
            raise torch.OutOfMemoryError("out of memory. Tried to allocate 2 GiB.\nMore of it")
        scores.log_probs.register_hook(self._run_out)
        return scores

    def _run_out(self, gradient: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("out of memory. Tried to allocate 2 GiB.")


def small(**attributes: Any) -> Small:
    policy = Small(
        [f"p{row}" for row in range(3)], answers=5, positions=4, stop_token_ids=(0,),
        dtype=torch.float64,
    )  # fmt: skip
    for name, value in attributes.items():
        setattr(policy, name, value)
    return policy


def updated(policy: TabularPolicy, budget: TokenBudget) -> Update | BadUpdate | None:
    algorithm = make_algorithm("grpo", entropy_coefficient=0.1)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=0.1)
    return budget.run(
        lambda: update(
            policy,
            batch_of(GROUPS, algorithm),
            algorithm,
            optimizer,
            temperature=0.7,
            clip_norm=float("inf"),
            token_budget=budget,
            entropy_coefficient=0.1,
        )
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_an_update_in_which_memory_ran_out_is_done_again_in_smaller_passes(backwards):
    """The first pass fits, so its gradient is there already when the second does not."""
    plain, short, said = small(room=100), small(backwards=backwards), list[str]()
    wanted, budget = updated(plain, TokenBudget(12)), TokenBudget(12, say=said.append)
    found = updated(short, budget)
    assert isinstance(wanted, Update)
    assert isinstance(found, Update)
    assert wanted.passes == 3
    assert found.passes > 3
    assert budget.tokens == 6
    assert_same_gradient(short.table.grad, plain.table.grad)
    assert_same_gradient(short.table.detach(), plain.table.detach())
    assert float(found.output.loss) == pytest.approx(float(wanted.output.loss), rel=1e-12)
    assert said == [
        "memory ran out (out of memory. Tried to allocate 2 GiB.); passes have at most 6 tokens "
        "from here on, with which the gradient is the same but for rounding"
    ]


def test_scores_before_the_first_update_are_measured_again_too():
    batch, budget = batch_of(GROUPS, make_algorithm()), TokenBudget(MANY)

    def scored(policy: TabularPolicy, budget: TokenBudget) -> Any:
        return budget.run(
            lambda: measure(policy, None, batch, temperature=0.7, token_budget=budget)
        )

    found, wanted = scored(small(), budget), scored(small(room=100), TokenBudget(MANY))
    assert budget.tokens < 12
    assert torch.equal(found.old_log_probs, wanted.old_log_probs)
    assert torch.equal(found.entropy, wanted.entropy)


def test_when_no_single_row_fits_it_ends_with_one_line():
    with pytest.raises(MemoryLimitError) as caught:
        updated(small(room=0), TokenBudget(MANY))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(
        "memory ran out (out of memory. Tried to allocate 2 GiB.), and that was a single completion"
    )
    assert caught.value.exit_code == 2


def test_memory_that_runs_out_between_passes_is_not_helped_by_smaller_ones():
    def step() -> None:
        raise torch.OutOfMemoryError("out of memory")

    budget = TokenBudget(MANY)
    with pytest.raises(MemoryLimitError, match="between passes"):
        budget.run(step)
    assert budget.tokens == MANY


# Runs


def run_with(
    config: Path, folder: Path, watch: Callable[[Setup], MemoryWatch], **changes: str
) -> tuple[TrainerState, list[dict[str, Any]]]:
    """A run under a watch; its state, and its lines."""
    pairs = [(f"run.{key}", value) for key, value in changes.items()]
    setup = prepare(load_config(config, pairs))
    flight = Preflight(token_budget=1, watch=watch(setup), words="")
    state = new_state(setup)
    run = make_folder(str(folder), "run")
    run.write_start(
        setup.config, {"decisions": vars(setup.decisions), "versions": {}, "inputs": {}}
    )
    steps = setup.config.run.steps
    progress = Progress(steps)
    Trainer(replace(setup, preflight=flight), state, LocalEngine(setup.policy), run, progress).run()
    setup.policy.save(_made(folder / "final"))
    return state, read_jsonl(folder / "metrics.jsonl")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    return write_tiny_run(tmp_path_factory.mktemp("config"))


def test_a_run_whose_budget_is_halved_at_once_is_that_of_the_smaller_budget(
    config, tmp_path, capsys
):
    """Bit for bit, in everything but the metrics of memory and time."""
    state, lines = run_with(
        config, tmp_path / "short", lambda setup: watch_for(setup.policy, 40), token_budget="2048"
    )
    assert lines[0]["memory/token_budget"] == 2048
    halved = state.token_budget
    assert halved == lines[-1]["memory/token_budget"]
    assert 10 < halved <= 40
    err = capsys.readouterr().err
    assert err.count("passes have at most") == 1
    run_with(
        config, tmp_path / "small", lambda setup: watch_for(setup.policy, MANY),
        token_budget=str(halved),
    )  # fmt: skip
    assert_same_run(tmp_path / "short", tmp_path / "small")


def test_a_step_that_does_not_fit_ends_the_run_and_the_steps_before_are_kept(config, tmp_path):
    with pytest.raises(MemoryLimitError, match="a single completion with its prompt"):
        run_with(config, tmp_path / "run", lambda setup: watch_for(setup.policy, 3))
    assert [line["step"] for line in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == [0]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000"]


# Processes

WIDE = {"hidden_size": 128, "intermediate_size": 2048, "num_hidden_layers": 6, "head_dim": 32}
"""A model whose passes take much more than a process's memory varies by: 250 kB a token."""

LONG = [
    *("--run.steps", "2"),
    *("--run.token-budget", "2048"),
    *("--evaluation.problems", "0"),
    *("--sampling.completions", "8"),
    *("--sampling.max-new-tokens", "64"),
]


def process(folder: Path, *arguments: object) -> str:
    """What a command in a process of its own says, when it has ended well."""
    (folder / "err").unlink(missing_ok=True)
    started = processes.Process(target=command, args=(folder, [str(a) for a in arguments]))
    started.start()
    started.join()
    text = (folder / "err").read_text()
    assert started.exitcode == 0, text
    return text


def megabytes(pattern: str, text: str) -> float:
    match = re.search(pattern + r" ([\d.]+) ([MG]B)", text)
    assert match is not None, text
    return float(match[1]) * (1000 if match[2] == "GB" else 1)


@pytest.mark.thorough
def test_a_process_near_its_limit_halves_its_budget_and_a_resume_goes_on_with_it(tmp_path):
    config = write_tiny_run(tmp_path)
    save_tiny_model(tmp_path / "model", **WIDE)
    free = process(tmp_path, "train", config, *LONG, "--run.folder", "free")
    group = megabytes(r"tokens takes [\d.]+ s and", free)
    # With the whole step, two groups, in one pass; two thirds of a group is the limit.
    limit = megabytes("with which about", free) - 2 * group + 0.66 * group
    tight = process(
        tmp_path, "train", config, *LONG, "--run.folder", "tight",
        "--run.memory-limit", f"{limit:.0f} MB",
    )  # fmt: skip
    assert "passes have at most" in tight
    budgets = [
        line["memory/token_budget"] for line in read_jsonl(tmp_path / "tight" / "metrics.jsonl")
    ]
    assert budgets[-1] < 600
    resumed = process(
        tmp_path, "train", "--resume", "tight", "--run.steps", 3, "--run.memory-limit", "100 GB"
    )
    assert f"memory ran short before: passes have at most {budgets[-1]:,} tokens" in resumed
    last = read_jsonl(tmp_path / "tight" / "metrics.jsonl")[-1]
    assert (last["step"], last["memory/token_budget"]) == (3, budgets[-1])
    assert last["optimizer/passes"] > 1


def test_a_limit_below_what_a_completion_needs_is_refused_before_anything_is_written(
    config, tmp_path, capsys
):
    arguments = ["train", str(config), "--run.folder", str(tmp_path / "run")]
    assert main([*arguments, "--run.memory-limit", "100 MB"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "a single completion with its prompt may have" in err
    assert "run.memory_limit is 100 MB" in err
    assert not (tmp_path / "run").exists()
