"""The plan of a run: what it says, and that it needs no weights to say it."""

from pathlib import Path

import pytest
from running import TOY, read_jsonl, write_tiny_run
from tiny import save_tiny_model, tiny_config

from verigrad.cli import main


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    """A configuration whose model is there without its weights and its tokenizer."""
    config = write_tiny_run(tmp_path)
    for path in (tmp_path / "model").iterdir():
        if path.name != "config.json":
            path.unlink()
    monkeypatch.chdir(tmp_path)
    return config


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, str]:
    """The plan's lines by their first words."""
    assert main(["plan", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    width = len("evaluation") + 2
    return {line[:width].strip(): line[width:] for line in captured.out.splitlines()}


def test_the_plan_of_the_table(capsys):
    assert planned(capsys, TOY) == {
        "task": "toy: 9 problems to train on, 0 held out",
        "model": "tabular: 90 parameters, all of them trained",
        "algorithm": "grpo",
        "a step": "1 problems x 8 completions = 8 completions of at most 1 tokens = at most 8 new "
        "tokens",
        "the run": "1500 steps draw 1,500 problems, each about 166.7 times, and at most 12,000 new "
        "tokens",
        "evaluation": "none",
        "passes": "at most 2,048 tokens in each",
        "memory": "about 400 MB",
        "limit": "none: the passes of a table take next to nothing",
        "disk": "about 4 kB: 2 checkpoints at once and the final policy",
        "folder": "the next free runs/toy-N",
    }


def test_a_language_model_is_planned_from_its_configuration_alone(config, tmp_path, capsys):
    found = planned(capsys, config)
    # Two layers of 32: as many as the model that is built has, which the test of the run loads.
    assert found["model"] == f"{tmp_path}/model: 22,688 parameters, all of them trained"
    assert found["a step"] == (
        "2 problems x 3 completions = 6 completions of at most 6 tokens = at most 36 new tokens"
    )
    assert found["the run"] == (
        "8 steps draw 16 problems, each about 1.2 times, and at most 288 new tokens"
    )
    assert not (tmp_path / "runs").exists()


def test_memory_is_libraries_states_one_pass_and_the_logits_of_a_moment(config, capsys):
    # Weights, gradients and two moments, and the copy without gradients for a checkpoint.
    states = (4 + 3) * 4 * 22_688
    activations = 1_000_000 * 2 * 32 * 20 * 4
    logits = 3 * 4 * 2**24
    total = 400_000_000 + states + activations + logits
    found = planned(capsys, config, "--run.token-budget", 1_000_000)
    assert found["memory"] == f"about {total / 1e9:.1f} GB" == "about 5.7 GB"


def test_a_plan_in_bfloat16_says_so_and_has_smaller_activations(config, tmp_path, capsys):
    # The weights once more in two bytes each; 14 vectors a layer and token in the place of 20.
    states = ((4 + 3) * 4 + 2) * 22_688
    activations = 1_000_000 * 2 * 32 * 14 * 4
    total = 400_000_000 + states + activations + 3 * 4 * 2**24
    budget = ["--run.token-budget", 1_000_000]
    for keys in (["--model.precision", "bfloat16"], ["--run.device", "cuda"]):
        found = planned(capsys, config, *budget, *keys)
        assert found["model"].endswith(" all of them trained; layers compute in bfloat16")
        assert found["memory"] == f"about {total / 1e9:.1f} GB" == "about 4.2 GB"


def test_the_budget_and_the_limit_are_planned_as_far_as_they_are_known(config, capsys):
    found = planned(capsys, config)
    assert found["passes"] == (
        "at most 1,024 to 2,048 tokens in each, by the largest group, or fewer where memory has no "
        "room; a preflight before the first step decides"
    )
    assert found["memory"].endswith(", if passes have 1,024 tokens")
    assert found["limit"].endswith("of what is here); passes get smaller before it is reached")
    keys = ["--run.token-budget", 700, "--run.memory-limit", "6 GB"]
    found = planned(capsys, config, *keys)
    assert found["passes"] == "at most 700 tokens in each"
    assert found["limit"] == (
        "6.0 GB of memory (run.memory_limit); passes get smaller before it is reached"
    )


TO_A_REFERENCE = ["--algorithm.kl", "ratio_k3", "--algorithm.kl_beta", 0.1]


@pytest.mark.parametrize(
    ("options", "kept", "numbers"),
    [
        # Four are made. Weights and two moments in each; the final policy; one while it is written.
        (["--checkpoint.keep", 1, "--checkpoint.best", "false"], 1, 2 * 3 + 1),
        (["--checkpoint.keep", 1], 2, 3 * 3 + 1),
        (["--checkpoint.keep", 3, "--checkpoint.best", "false"], 3, 4 * 3 + 1),
        (["--checkpoint.keep", 4], 4, 4 * 3 + 1),
        (["--checkpoint.keep", 9], 4, 4 * 3 + 1),
        # No step before the last is evaluated and saved.
        (["--checkpoint.keep", 1, "--evaluation.every", 3, "--run.steps", 6], 1, 2 * 3 + 1),
        (["--checkpoint.keep", 1, "--evaluation.every", 0], 1, 2 * 3 + 1),
        (["--checkpoint.keep", 1, "--evaluation.problems", 0], 1, 2 * 3 + 1),
        (["--checkpoint.every", 0, "--checkpoint.keep", 3], 1, 1 * 3 + 1),
        # A reference that is reset is in each; one that is not is not.
        (["--checkpoint.keep", 4, *TO_A_REFERENCE, "--algorithm.kl_reset_every", 2], 4, 4 * 4 + 1),
        (["--checkpoint.keep", 4, *TO_A_REFERENCE], 4, 4 * 3 + 1),
    ],
    ids=str,
)
def test_disk_is_every_checkpoint_that_is_there_at_once_and_the_final_policy(
    options, kept, numbers, config, tmp_path, capsys
):
    found = planned(capsys, config, "--model", wide_model(tmp_path), *options)
    checkpoints = "1 checkpoint" if kept == 1 else f"{kept} checkpoints"
    megabytes = numbers * 4 * WIDE / 1e6
    assert found["disk"] == f"about {megabytes:.0f} MB: {checkpoints} at once and the final policy"


WIDE = 22_688 + 2 * 3 * 32 * (50_000 - 64)
"""Parameters of the tiny model with wider layers, whose size shows in megabytes."""


def wide_model(folder: Path) -> Path:
    tiny_config("llama", intermediate_size=50_000).save_pretrained(folder / "wide")
    return folder / "wide"


def test_memory_has_room_for_the_reference_whoever_asks_for_it(config, tmp_path, capsys):
    wide = wide_model(tmp_path)
    (tmp_path / "own.py").write_text(
        "from dataclasses import replace\n"
        "from verigrad.algorithms import Divergence, algorithm_from\n"
        "from verigrad.config import AlgorithmConfig\n"
        "from verigrad.core.kl import ratio_k3\n"
        "term = Divergence(beta=0.1, estimator=ratio_k3)\n"
        "grpo = algorithm_from(AlgorithmConfig(preset='grpo'), max_new_tokens=6)\n"
        "held = replace(grpo, divergence=term)\n"
    )

    def memory(*options: object) -> float:
        words = planned(capsys, config, *options)["memory"].split()
        return float(words[1]) * {"MB": 1e6, "GB": 1e9}[words[2].strip(",")]

    reference = pytest.approx(4 * WIDE, abs=1e6)
    plain = memory()
    assert memory(*TO_A_REFERENCE) == pytest.approx(plain, abs=1e6)
    assert memory(*TO_A_REFERENCE, "--algorithm.reference", wide) - plain == reference
    itself = memory("--model", wide)
    for held in (TO_A_REFERENCE, ["--algorithm", f"{tmp_path / 'own.py'}:held"]):
        assert memory("--model", wide, *held) - itself == reference
    resets = [*TO_A_REFERENCE, "--algorithm.kl_reset_every", 2]
    twice = memory("--model", wide, *resets) - itself
    assert twice == pytest.approx(2 * 4 * WIDE, abs=1e6), "once more in the copy for a checkpoint"


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (2, "5 times: before, after, and every 2 steps"),
        (3, "4 times: before, after, and every 3 steps"),
        (8, "2 times: before, after"),
        (0, "2 times: before, after"),
    ],
)
def test_as_many_evaluations_are_planned_as_are_made(every, words, config, tmp_path, capsys):
    found = planned(capsys, config, "--evaluation.every", every)
    assert found["evaluation"] == f"greedy on 3 held-out problems, {words}"
    run = write_tiny_run(tmp_path).parent / "run"
    options = ["--evaluation.every", str(every), "--run.folder", str(run)]
    assert main(["train", str(config), *options]) == 0
    made = [line for line in read_jsonl(run / "metrics.jsonl") if line["eval/problems"]]
    assert len(made) == int(words.split()[0])


def test_a_folder_that_is_taken_is_found_by_the_plan(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert planned(capsys, TOY, "--run.folder", run)["folder"] == run
    assert main(["train", str(TOY), "--run.steps", "2", "--run.folder", run]) == 0
    capsys.readouterr()
    assert main(["plan", str(TOY), "--run.folder", run]) == 2
    assert f"run.folder {run} holds a run already" in capsys.readouterr().err


def test_steps_that_draw_more_epochs_than_allowed_are_refused_with_those_that_fit(capsys):
    assert main(["plan", str(TOY), "--task.epochs", "3"]) == 2
    assert (
        "task.epochs is 3, but 1500 steps of 1 problems draw each of the 9 training problems about "
        "166.7 times; set run.steps to at most 27" in capsys.readouterr().err
    )
    assert main(["plan", str(TOY), "--task.epochs", "3", "--run.steps", "27"]) == 0


def test_a_step_that_alone_draws_more_epochs_than_allowed_is_refused_with_its_problems(capsys):
    options = ["--task.epochs", "1", "--sampling.problems", "10", "--run.steps", "1"]
    assert main(["plan", str(TOY), *options]) == 2
    assert "about 1.1 times; lower sampling.problems, or raise task.ep" in capsys.readouterr().err


def test_a_file_is_planned_with_what_was_found_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    rows = [f'{{"prompt": "What is 1 + {n}?", "answer": {n + 1}}}\n' for n in (1, 2, 3, 3)]
    (tmp_path / "sums.jsonl").write_text("".join(rows))
    task = ["--task", str(tmp_path / "sums.jsonl"), "--data.verifier", "exact"]
    found = planned(capsys, TOY, *task)
    assert found["task"] == "sums: 4 problems to train on, 0 held out"
    assert found["data"] == (
        "sums.jsonl: 4 problems, every row checked, and the reference of the first 4 shown to the "
        "verifier; sums.jsonl: 1 rows repeat the prompt of another; equal prompts stay on one side "
        "of the held-out split"
    )


def test_the_plan_says_which_parts_are_replaced(capsys):
    options = ["--algorithm", "rloo", "--algorithm.aggregation", "token_mean"]
    assert planned(capsys, TOY, *options)["algorithm"] == "rloo with aggregation"


def test_the_plan_says_what_to_know_about_the_algorithm(capsys):
    options = ["--algorithm", "rloo", "--algorithm.clip_high", "0.3", "--algorithm.minibatches", 2]
    assert planned(capsys, TOY, *options)["note"] == (
        "loss 'reinforce' has no ratio, so updates after the first on a batch are biased; "
        "'ppo_clip' and 'cispo' have one; no part of this algorithm uses clip_high"
    )


def test_a_plan_for_a_device_that_is_not_here_says_so(capsys, tmp_path):
    save_tiny_model(tmp_path / "model")
    file = tmp_path / "run.toml"
    file.write_text('task = "addition"\nmodel = "model"\n[run]\ndevice = "cuda:99"\n')
    assert main(["plan", str(file)]) == 0
    assert "unknown: there is no device cuda:99 here" in capsys.readouterr().out
