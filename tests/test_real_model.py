"""The real model, really learning: minutes on two cores, so ``make slow`` and not ``make test``."""

import json
from pathlib import Path

import pytest

import verigrad

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

    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").open()]
    mismatch = max(line["policy/largest_mismatch"] for line in lines if line["tokens/trained"])
    assert mismatch < 1e-4, "sampler and trainer disagree about the same weights"
    assert max(line["memory/peak"] for line in lines) < 6e9

    trained = {json.loads(line)["problem"] for line in (result.folder / "rollouts.jsonl").open()
               if json.loads(line)["purpose"] == "train"}  # fmt: skip
    held_out = {json.loads(line)["problem"] for line in (result.folder / "rollouts.jsonl").open()
                if json.loads(line)["purpose"] == "evaluate"}  # fmt: skip
    mirrored = {"addition/" + "+".join(reversed(p[9:].split("+"))) for p in held_out}
    assert not trained & (held_out | mirrored)

    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(result.folder / "final")
    tokenizer = AutoTokenizer.from_pretrained(result.folder / "final")
    chat = [{"role": "user", "content": "What is 12 + 7? Answer with just the number."}]
    inputs = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "19" in answer
