"""The real model, really learning: minutes on two cores, so ``make slow`` and not ``make test``."""

import runpy
from pathlib import Path

import pytest
from running import assert_same_run

import verigrad
from verigrad.training.records import read_lines

EXAMPLE = Path(__file__).parents[1] / "examples" / "addition.toml"


@pytest.mark.slow
def test_smollm2_learns_to_add_pairs_it_never_trained_on(tmp_path: Path) -> None:
    changes = [("run.folder", str(tmp_path / "run")), ("run.seed", "0")]
    result = verigrad.train(verigrad.load_config(EXAMPLE, changes))

    assert result.before is not None
    assert result.after is not None
    assert result.before.accuracy < 0.6
    assert result.after.accuracy >= 0.75
    assert result.after.low > result.before.high, "the improvement is within the noise"

    lines = read_lines(result.folder / "metrics.jsonl")
    mismatch = max(line["policy/largest_mismatch"] for line in lines if line["tokens/trained"])
    assert mismatch < 1e-4, "sampler and trainer disagree about the same weights"
    assert max(line["memory/peak"] for line in lines) < 6e9

    rollouts = read_lines(result.folder / "rollouts.jsonl")
    trained = {line["problem"] for line in rollouts if line["purpose"] == "train"}
    held_out = {line["problem"] for line in rollouts if line["purpose"] == "evaluate"}
    mirrored = {"addition/" + "+".join(reversed(p[9:].split("+"))) for p in held_out}
    assert not trained & (held_out | mirrored)

    solved = [line for line in rollouts if line["step"] == result.steps and line["reward"] == 1.0
              and line["purpose"] == "evaluate"]  # fmt: skip
    answer = answer_of_saved_model(result.folder / "final", solved[0]["prompt"])
    assert str(solved[0]["reference"]) in answer, (
        "the saved model is not the one that was evaluated"
    )


@pytest.mark.slow
def test_a_resumed_run_of_the_real_model_is_the_same_run(tmp_path: Path) -> None:
    changes = [
        *[("run.threads", "2"), ("sampling.problems", "2"), ("sampling.completions", "4")],
        *[("evaluation.problems", "4"), ("evaluation.every", "1"), ("checkpoint.every", "1")],
    ]

    def started(name: str, steps: int) -> Path:
        options = [*changes, ("run.steps", str(steps)), ("run.folder", str(tmp_path / name))]
        return verigrad.train(verigrad.load_config(EXAMPLE, options), quiet=True).folder

    whole = started("whole", 3)
    run = started("run", 2)
    verigrad.resume(run, [("run.steps", "3")], quiet=True)
    assert_same_run(run, whole)


@pytest.mark.slow
def test_the_first_lines_of_python_that_people_see_teach_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (EXAMPLE.parents[1] / "README.md").read_text()
    (tmp_path / "own.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    result = runpy.run_path("own.py")["result"]
    lines = read_lines(result.folder / "metrics.jsonl")[1:]
    assert all(line["groups/with_signal"] for line in lines)
    assert result.after.accuracy > result.before.accuracy


def answer_of_saved_model(folder: Path, question: str) -> str:
    """What the folder's model answers greedily, through the model library alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    new = output[0, inputs["input_ids"].shape[1] :]
    return tokenizer.decode(new, skip_special_tokens=True)
