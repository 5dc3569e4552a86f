"""The plan of a run: what it says, and that it needs no weights to say it."""

from pathlib import Path

import pytest
from running import TOY, read_jsonl, write_tiny_run
from tiny import save_tiny_model

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


def test_disk_is_every_checkpoint_one_more_and_the_final_policy(config, capsys):
    # Weights and two moments in each.
    found = planned(capsys, config, "--checkpoint.keep", 4)
    kilobytes = (5 * 3 * 4 + 4) * 22_688 / 1e3
    assert kilobytes == pytest.approx(1452.032)
    assert found["disk"] == "about 1 MB: 4 checkpoints at once and the final policy"


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


def test_a_plan_for_a_device_that_is_not_here_says_so(capsys, tmp_path):
    save_tiny_model(tmp_path / "model")
    file = tmp_path / "run.toml"
    file.write_text('task = "addition"\nmodel = "model"\n[run]\ndevice = "cuda:99"\n')
    assert main(["plan", str(file)]) == 0
    assert "unknown: there is no device cuda:99 here" in capsys.readouterr().out
