"""Whatever is in a file, what comes out is one line of words, and never a traceback.

The damage is made from a seed, so that a failure can be made again.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import TOY

from verigrad import resume
from verigrad.cli import main
from verigrad.config import Config, config_from, load_config
from verigrad.config.keys import KEYS, SECTIONS
from verigrad.errors import ConfigError, VerigradError
from verigrad.training.checkpoint import checkpoints

PIECES = [
    b"", b"\x00", b"\xff\xfe", b"\n", b"\r", b'"', b"[", b"]", b"{", b"}", b"=", b",", b".", b"-",
    b"nan", b"inf", b"1e999", b"1e39", b"-1", b"99999999999999999999", b"null", b"true", b"[]",
    b"{}", b'""', b"\xe2\x80\xae", b"[[", b"# ", b"\\u0000", b"'''", b"0", b"[1]", b'"x"', b"1.5",
]  # fmt: skip
"""What is put into a file, or in the place of a part of it."""


def damaged(content: bytes, dice: random.Random) -> bytes:
    """A file with up to four places replaced, removed, doubled or cut off."""
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(content) + 1)
        end = min(len(content), start + dice.choice([0, 1, 1, 2, 4, 8, 40]))
        middle = dice.choice([dice.choice(PIECES), content[start:end] * 2])
        content = content[:start] + middle + content[end:]
        if dice.random() < 0.1:
            content = content[: dice.randrange(len(content) + 1)]
    return content


def assert_words(error: VerigradError) -> None:
    assert str(error)
    assert len(str(error)) < 2000


# The configuration


@pytest.mark.parametrize("seed", range(400))
def test_a_damaged_configuration_loads_or_says_why_not(seed, tmp_path):
    file = tmp_path / "run.toml"
    file.write_bytes(damaged(TOY.read_bytes(), random.Random(seed)))
    try:
        assert isinstance(load_config(file), Config)
    except ConfigError as error:
        assert_words(error)
        named = str(error).startswith(str(file))
        assert named


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from([key.name for key in KEYS.values()])
sections = st.sampled_from([*SECTIONS, *KEYS]) | st.text()
mappings = st.dictionaries(
    sections, values | st.dictionaries(names | st.text(), values, max_size=4), max_size=5
)


@settings(max_examples=300, deadline=None)
@given(mappings)
def test_any_mapping_is_a_configuration_or_is_refused_in_words(mapping: dict[str, Any]):
    complete = {"task": "toy", "model": "tabular"} | mapping
    try:
        assert isinstance(config_from(complete, source="here", base=Path("/")), Config)
    except ConfigError as error:
        assert_words(error)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(KEYS)) | st.text(), st.text() | st.floats().map(str))
def test_any_override_is_taken_or_refused_in_words(key: str, text: str):
    try:
        assert isinstance(load_config(TOY, [(key, text)]), Config)
    except ConfigError as error:
        assert_words(error)


# A run folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table with held-out problems and two checkpoints."""
    run = tmp_path_factory.mktemp("whole") / "run"
    options = ["--run.steps", "4", "--checkpoint.every", "2", "--task.held-out", "0.3"]
    assert main(["train", str(TOY), *options, "--run.folder", str(run)]) == 0
    return run


FILES: dict[str, Callable[[Path], Path]] = {
    "config.toml": lambda run: run / "config.toml",
    "environment.json": lambda run: run / "environment.json",
    "metrics.jsonl": lambda run: run / "metrics.jsonl",
    "rollouts.jsonl": lambda run: run / "rollouts.jsonl",
    "policy": lambda run: checkpoints(run / "checkpoints")[-1] / "policy.safetensors",
    "optimizer": lambda run: checkpoints(run / "checkpoints")[-1] / "optimizer.safetensors",
}


@pytest.mark.thorough
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_run_resumes_or_says_why_not(file, run, tmp_path):
    for seed in range(25):
        copy = Path(shutil.copytree(run, tmp_path / str(seed)))
        path = FILES[file](copy)
        path.write_bytes(damaged(path.read_bytes(), random.Random(seed)))
        try:
            resume(copy, [("run.steps", "6")], quiet=True)
        except VerigradError as error:
            assert_words(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threads", value) for value in ("x", None, 0, -1, 1.5, True, 10**30, [1])),
        *(("token_budget", value) for value in ("x", 0, [])),
        *(("shares_prompts", value) for value in ("x", 1, None)),
        *(("precision", value) for value in ("x", "auto", None, 16)),
        *(("device", value) for value in (5, None, ["cpu"], "nothing", "cuda:99")),
    ],
)
def test_decisions_that_are_none_are_refused(name, value, run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    environment = json.loads((copy / "environment.json").read_text())
    environment["decisions"][name] = value
    (copy / "environment.json").write_text(json.dumps(environment))
    with pytest.raises(VerigradError):
        resume(copy, [("run.steps", "6")], quiet=True)


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[]",
        "{}",
        "3",
        '{"step": "x"}',
        "[" * 5000,
        '{"step": 0, "eval/accuracy": "x"}',
        "\0",
    ],
)
@pytest.mark.parametrize("file", ["metrics.jsonl", "rollouts.jsonl"])
def test_a_line_that_is_no_record_does_not_keep_a_run_from_its_end(file, line, run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    first, rest = (copy / file).read_text().split("\n", 1)
    (copy / file).write_text(f"{first}\n{line}\n{rest}")
    assert resume(copy, [("run.steps", "6")], quiet=True).steps == 6
