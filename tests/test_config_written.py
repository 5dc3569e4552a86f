"""A configuration written down again; the files and pages of the repository; the schema."""

import dataclasses
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import pytest
from configs import ROOT, SMALLEST
from hypothesis import given
from hypothesis import strategies as st

from verigrad.config import (
    MODELS,
    PRESETS,
    TASKS,
    VERIFIERS,
    Config,
    config_from,
    load_config,
    to_toml,
)
from verigrad.config.checks import LARGEST, Range, names_in
from verigrad.config.checks import SMALLEST as SMALLEST_NUMBER
from verigrad.config.keys import KEYS, SECTIONS, key_docs

# Back to TOML


def values(hint: object) -> st.SearchStrategy:
    """Every kind of value that a key of this type accepts."""
    names = names_in(hint)
    if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Range):
        scalar, limits = get_args(hint)
        if scalar is int:
            return st.integers(int(limits.low), int(min(limits.high, 2**63 - 1)))
        usable = st.floats(max(limits.low, SMALLEST_NUMBER), min(limits.high, LARGEST))
        usable = usable.filter(lambda value: value in limits)
        return st.just(limits.low) | usable if limits.low in limits else usable
    if hint is bool:
        return st.booleans()
    if get_origin(hint) in (Annotated, Literal):
        return st.sampled_from(names)
    if get_args(hint):
        return st.one_of([values(option) for option in get_args(hint)])
    return st.none()


COLUMN = st.text("äΩ\"'\\#= x", min_size=1)
SEVERAL_LINES = st.text("{q}\n\t\"'\\ä", min_size=1).map(lambda text: f"{text}.")
COLUMNS = st.lists(COLUMN, max_size=3).map(tuple)
WRITTEN = {
    "data.prompt": SEVERAL_LINES,
    "data.answer": COLUMN | COLUMNS,
    "data.answer_after": st.none() | SEVERAL_LINES,
    "data.id": st.none() | COLUMN,
    "data.verifier": st.none() | st.sampled_from(VERIFIERS),
    "data.system": st.none() | SEVERAL_LINES,
    "data.shot_answer": st.none() | SEVERAL_LINES,
    "data.json_columns": COLUMNS,
    "data.subset": st.none() | COLUMN,
    "data.split": COLUMN,
    "task.name": st.sampled_from(TASKS),
    "task.mixture": st.just(()),
    "model.name": st.sampled_from(MODELS),
    "algorithm.preset": st.sampled_from(PRESETS),
    "algorithm.reference": st.none() | st.sampled_from(("start", *MODELS)),
    "run.folder": st.none() | st.text("äΩ\"'\\#= x", min_size=1).map(lambda text: f"/r/{text}x"),
    "run.device": st.sampled_from(["auto", "cpu", "cuda:1"]),
    "run.memory_limit": st.integers(1, 2**63 - 1) | st.sampled_from(["auto", "6 GB", "0.5MiB"]),
    "sampling.completions": st.integers(2, 2**63 - 1),
    "verifier.name": st.none() | st.sampled_from(VERIFIERS),
}
"""The keys whose values a type does not say."""


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any configuration that the schema accepts."""
    sections = {}
    for section, kind in SECTIONS.items():
        keys = [key for key in KEYS.values() if key.section == section]
        drawn = {
            key.name: draw(WRITTEN[key.path] if key.path in WRITTEN else values(key.hint))
            for key in keys
        }
        if section == "model" and drawn["name"] == "tabular":
            drawn |= {"activation_checkpointing": False, "precision": "auto"}
        sections[section] = kind(**drawn)
    return Config(**sections)


@given(configs())
def test_a_configuration_written_as_toml_loads_to_the_same_value(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("written") / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert load_config(path) == config


@given(configs())
def test_a_configuration_said_on_the_command_line_is_the_one_in_a_file(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("smallest") / "run.toml"
    path.write_text(SMALLEST)
    overrides = [
        (f"{section}.{name}", json.dumps(value) if isinstance(value, list | bool) else str(value))
        for section, keys in tomllib.loads(to_toml(config)).items()
        for name, value in keys.items()
    ]
    assert load_config(path, overrides) == config


# The repository


FILES = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.toml")
    if path != ROOT / "pyproject.toml"
    and not any(part.startswith(".") or part == "runs" for part in path.relative_to(ROOT).parts)
)
PAGES = [page for folder in (".", "docs", "examples") for page in (ROOT / folder).glob("*.md")]


def test_the_examples_are_among_the_files_of_the_repository():
    assert {Path("examples/addition.toml"), Path("examples/toy.toml")} <= set(FILES)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_toml_file_of_the_repository_loads_and_comes_back(file, tmp_path):
    config = load_config(ROOT / file)
    copy = tmp_path / "copy.toml"
    copy.write_text(to_toml(config), encoding="utf-8")
    assert load_config(copy) == config


def test_every_toml_block_of_the_pages_is_a_part_of_a_configuration(tmp_path):
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            for file in re.findall(r'"([\w-]+\.(?:py(?=:)|jsonl))', block):
                (tmp_path / file).touch()
            whole = {"task": "toy", "model": "tabular"} | tomllib.loads(block)
            config_from(whole, source=str(page), base=tmp_path)


# The schema


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_has_a_docstring_for_the_help(section):
    assert list(key_docs(section)) == [
        field.name for field in dataclasses.fields(SECTIONS[section])
    ]


def test_configuration_and_types_leave_torch_alone():
    code = (
        "import sys, verigrad.config, verigrad.types\n"
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
