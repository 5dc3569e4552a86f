"""More completions than run side by side: when some end, those of the next problem begin."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from ragged import as_prompts, prompts_of
from running import write_tiny_run
from test_continuation import follow
from tiny import KINDS, WINDOW, tiny_model, tiny_policy

from verigrad.cli import main
from verigrad.engines import Draws, LocalEngine
from verigrad.hashing import Purpose
from verigrad.policies.continuation import PlainContinuation, SharedContinuation
from verigrad.types import Completion, Sampling

DRAWS = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
PROMPTS = prompts_of(3, 1, 9, 5, 2, 7, 4)
STOPS = (2, *range(6, 12))
"""A completion stops after some nine tokens."""

SAMPLING = Sampling(max_new_tokens=20, stop_token_ids=STOPS)


def tokens_of(completions: Sequence[Sequence[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[row.token_ids for row in rows] for rows in completions]


@contextmanager
def live_rows() -> Iterator[list[int]]:
    """How many rows live at each step of generating."""
    seen: list[int] = []
    logits = SharedContinuation.logits

    def counted(self: SharedContinuation) -> tuple[torch.Tensor, torch.Tensor]:
        found = logits(self)
        seen.append(len(found[1]))
        return found

    with patch.object(SharedContinuation, "logits", counted):
        yield seen


@pytest.mark.parametrize("shares_prompts", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "mistral"])
def test_what_runs_side_by_side_changes_no_token(kind, shares_prompts):
    policy = tiny_policy(kind, dtype=torch.float64, shares_prompts=shares_prompts)
    together = tokens_of(LocalEngine(policy).generate(PROMPTS, 3, SAMPLING, DRAWS))
    lengths = {len(row) for rows in together for row in rows}
    assert max(lengths) - min(lengths) > 10
    for rows_at_once in (3, 4, 7):
        engine = LocalEngine(policy, rows_at_once)
        assert tokens_of(engine.generate(PROMPTS, 3, SAMPLING, DRAWS)) == together


def test_no_more_rows_live_than_are_allowed_and_their_places_are_taken_at_once():
    policy = tiny_policy()
    with live_rows() as live:
        completions = LocalEngine(policy, 8).generate(PROMPTS, 2, SAMPLING, DRAWS)
    tokens = sum(len(row.token_ids) for rows in completions for row in rows)
    assert sum(live) == tokens
    assert max(live) == 8
    # A place is empty only while that of the other completion of its problem is still taken.
    last_start = max(step for step in range(1, len(live)) if live[step] > live[step - 1])
    assert min(live[:last_start]) >= 7
    slowest = sum(
        max(len(row.token_ids) for rows in completions[first : first + 4] for row in rows)
        for first in (0, 4)
    )
    assert len(live) < slowest


def test_more_completions_of_a_problem_than_run_at_once_start_together():
    policy = tiny_policy()
    with live_rows() as live:
        LocalEngine(policy, 2).generate(PROMPTS[:2], 5, SAMPLING, DRAWS)
    assert max(live) == live[0] == 5


@pytest.mark.parametrize("kind", [*KINDS, "mistral"])
@pytest.mark.parametrize("way", [SharedContinuation, PlainContinuation])
@torch.no_grad()
def test_logits_are_those_of_the_sequence_while_rows_leave_and_others_come(kind, way):
    """Longer and shorter prompts come, some twice, some beside rows of three windows' length."""
    model = tiny_model(kind)
    rows = way(model, as_prompts([[3, 1, 4], [5]]), 2)
    sequences = [[3, 1, 4], [3, 1, 4], [5], [5]]
    generator = torch.Generator().manual_seed(1)
    coming = {2: [9] * 9, 5: [5], 7: [5, 6, 7], 3 * WINDOW: [8, 8]}
    for step in range(4 * WINDOW):
        if step in coming:
            rows.admit(as_prompts([coming[step]]), 2)
            sequences += [list(coming[step]), list(coming[step])]
        follow(rows, model, sequences)
        kept = [row for row in range(len(sequences)) if (step + row) % 6 or len(sequences) < 4]
        tokens = torch.randint(64, (len(kept),), generator=generator)
        rows.advance(torch.tensor(kept), tokens)
        sequences = [
            [*sequences[row], token] for row, token in zip(kept, tokens.tolist(), strict=True)
        ]
    follow(rows, model, sequences)


@torch.no_grad()
def test_columns_that_nobody_needs_any_more_and_prompts_without_rows_are_forgotten():
    rows = SharedContinuation(tiny_model("llama"), as_prompts([[3] * 40]), 1)
    for token in range(5, 15):
        rows.advance(torch.tensor([0]), torch.tensor([token]))
    rows.admit(as_prompts([[5]]), 1)
    rows.advance(torch.tensor([0, 1]), torch.tensor([6, 6]))
    assert rows._columns.positions.shape == (2, 11)
    rows.advance(torch.tensor([1]), torch.tensor([7]))
    assert rows._columns.positions.tolist() == [[1, 2]]
    assert rows._prompts.positions.tolist() == [[0]]


def test_a_run_generates_as_many_rows_at_once_as_its_configuration_says(tmp_path):
    """Two problems of three completions each."""
    config = str(write_tiny_run(tmp_path))
    for rows_at_once, most in ((3, 3), (6, 6)):
        folder = str(tmp_path / f"run-{rows_at_once}")
        with live_rows() as live:
            code = main(
                ["train", config, "--run.folder", folder, "--evaluation.problems", "0",
                 "--sampling.rows_at_once", str(rows_at_once)]
            )  # fmt: skip
        assert code == 0
        assert max(live) == most
