"""The configuration: a file and overrides go in, one checked value or one clear line comes out."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.config import (
    MODELS,
    PRESETS,
    TASKS,
    VERIFIERS,
    Config,
    ModelConfig,
    RunConfig,
    TaskConfig,
    config_from,
    load_config,
    to_toml,
)
from verigrad.config.checks import Range, names_in
from verigrad.config.keys import KEYS, SECTIONS, key_docs, nearest_key
from verigrad.errors import ConfigError

ROOT = Path(__file__).parent.parent
SMALLEST = 'task = "toy"\nmodel = "tabular"\n'


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Work in an empty folder; the function writes run.toml there and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> Path:
        path = Path("run.toml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(path: Path, *overrides: tuple[str, str]) -> str:
    """The one line that a configuration is refused with."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


# What a file may say


def test_a_file_with_a_task_and_a_model_gets_every_default(write):
    assert load_config(write(SMALLEST)) == Config(
        task=TaskConfig(name="toy"), model=ModelConfig(name="tabular")
    )


def test_the_short_form_and_the_table_say_the_same(write):
    short = load_config(write(SMALLEST + 'algorithm = "rloo"'))
    tables = '[task]\nname = "toy"\n[model]\nname = "tabular"\n[algorithm]\npreset = "rloo"'
    assert load_config(write(tables)) == short


def test_a_file_may_be_named_by_text(write):
    assert load_config(str(write(SMALLEST))) == load_config(write(SMALLEST))


def test_a_whole_number_becomes_a_float_where_a_number_is_meant(write):
    config = load_config(write(SMALLEST + "[optimizer]\nlearning_rate = 1\nclip_norm = 2"))
    assert repr(config.optimizer.learning_rate) == "1.0"
    assert repr(config.optimizer.clip_norm) == "2.0"


def test_a_byte_order_mark_is_no_mistake(write):
    assert load_config(write(b"\xef\xbb\xbf" + SMALLEST.encode())).task.name == "toy"


def test_a_mapping_in_python_loads_like_the_file_it_mirrors(write):
    mapping = {"task": "toy", "model": "tabular", "run": {"steps": 7}}
    config = config_from(mapping, source="my run", base=Path("/"))
    assert config == load_config(write(SMALLEST + "[run]\nsteps = 7"))


def test_a_mistake_in_a_mapping_is_named_with_its_source():
    mapping = {"task": "toy", "model": "tabular", "run": {"steps": "7"}}
    with pytest.raises(ConfigError, match=r"^my run: run\.steps is \"7\"; it must be a whole"):
        config_from(mapping, source="my run", base=Path("/"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_built_in_name_is_accepted_as_it_is(task, model, preset, write):
    config = load_config(write(f'task = "{task}"\nmodel = "{model}"\nalgorithm = "{preset}"'))
    assert (config.task.name, config.model.name, config.algorithm.preset) == (task, model, preset)


# Overrides


def test_an_override_keeps_the_preset_that_the_file_names_in_short_form(write):
    path = write(SMALLEST + 'algorithm = "dr_grpo"')
    algorithm = load_config(path, [("algorithm.clip-high", "0.28")]).algorithm
    assert (algorithm.preset, algorithm.clip_high) == ("dr_grpo", 0.28)


def test_a_short_override_replaces_only_the_preset_of_a_table(write):
    path = write(SMALLEST + '[algorithm]\npreset = "grpo"\nclip_high = 0.3')
    algorithm = load_config(path, [("algorithm", "rloo")]).algorithm
    assert (algorithm.preset, algorithm.clip_high) == ("rloo", 0.3)


def test_the_later_of_two_overrides_for_a_key_holds(write):
    overrides = [("run.steps", "3"), ("run.steps", "4")]
    assert load_config(write(SMALLEST), overrides).run.steps == 4


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("run.steps", "16", 16),
        ("optimizer.learning_rate", "1e-5", 1e-5),
        ("optimizer.learning-rate", "1", 1.0),
        ("optimizer.clip_norm", "off", "off"),
        ("run.threads", "auto", "auto"),
        ("run.threads", "2", 2),
        ("algorithm.aggregation", "const_norm", "const_norm"),
        ("run.device", "cuda:1", "cuda:1"),
    ],
)
def test_an_override_is_read_as_the_type_of_its_key(key, text, value, write):
    config = load_config(write(SMALLEST), [(key, text)])
    section, name = key.replace("-", "_").split(".")
    found = getattr(getattr(config, section), name)
    assert (found, type(found)) == (value, type(value))


# Bad values


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[run]\nsteps = 6.5", "run.steps is 6.5; it must be a whole number of at least 1"),
        ('[run]\nsteps = "7"', 'run.steps is "7"; it must be a whole number of at least 1'),
        ("[run]\nsteps = true", "run.steps is true; it must be a whole number of at least 1"),
        ("[run]\nsteps = 0", "run.steps is 0; it must be a whole number of at least 1"),
        ("[run]\nsteps = []", "run.steps is an array; it must be a whole number of at least 1"),
        ("[run.steps]", "run.steps is a table; it must be a whole number of at least 1"),
        (
            "[run]\nsteps = 1979-05-27",
            "run.steps is the date or time 1979-05-27; it must be a whole number of at least 1",
        ),
        (
            f"[run]\nsteps = {10**400}",
            "run.steps is a whole number that does not fit into 64 bits; "
            "it must be a whole number of at least 1",
        ),
        (f"[run]\nsteps = {'9' * 5000}", "a whole number in it does not fit into 64 bits"),
        (
            '[run]\nthreads = "atuo"',
            'run.threads is "atuo"; did you mean "auto"? '
            'it must be a whole number of at least 1, or "auto"',
        ),
        (
            "[optimizer]\nlearning_rate = nan",
            "optimizer.learning_rate is nan; it must be a finite number above 0",
        ),
        (
            "[optimizer]\nlearning_rate = inf",
            "optimizer.learning_rate is inf; it must be a finite number above 0",
        ),
        (
            "[verifier]\nmax_failures = 1.5",
            "verifier.max_failures is 1.5; it must be a finite number of at least 0 and at most 1",
        ),
        (
            '[run]\ndevice = "gpu"',
            'run.device is "gpu"; it must be "auto", "cpu", "cuda" or "cuda:1"',
        ),
        (
            '[run]\nfolder = "a\\u0000b"',
            'run.folder is "a\\u0000b"; '
            "it must be text in quotes, not empty and without control characters",
        ),
        (
            'algorithm = "gpro"',
            'algorithm.preset is "gpro"; did you mean "grpo"? '
            f"it must be {', '.join(PRESETS)}, or file.py:name for one of your own",
        ),
        (
            "algorithm = 3",
            "algorithm.preset is 3; "
            "it must be text in quotes, not empty and without control characters",
        ),
        (
            'algorithm = "own.py:1st"',
            'algorithm.preset is "own.py:1st"; after the colon comes a name that the file '
            'defines, found "1st"',
        ),
        (
            '[algorithm]\nreference = "started"',
            'algorithm.reference is "started"; it must be '
            "smollm2-135m, tabular, a folder that exists, or a hub id owner/name",
        ),
        (
            '[algorithm]\nkl = "k4"',
            'algorithm.kl is "k4"; did you mean "k2"? it must be one of k2, k3, '
            "k3_value_k2_gradient, ratio_k1, ratio_k3, k1_in_reward, k1, k2_in_reward, "
            "k3_in_reward, off",
        ),
        ("run = 5", "run is 5; it must be a table [run]"),
        ("[[run]]\nsteps = 5", "run is an array; it must be a table [run]"),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(lines, message, write):
    assert refusal(write(SMALLEST + lines)) == f"run.toml: {message}"


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("run.steps", "6.5", 'run.steps is "6.5"; it must be a whole number of at least 1'),
        ("run.steps", "", 'run.steps is ""; it must be a whole number of at least 1'),
        ("run.steps", "-1", "run.steps is -1; it must be a whole number of at least 1"),
        ("run.steps", " 5", 'run.steps is " 5"; it must be a whole number of at least 1'),
        ("run.steps", "٣", 'run.steps is "٣"; it must be a whole number of at least 1'),
        (
            "optimizer.learning-rate",
            "1e999",
            "optimizer.learning_rate is inf; it must be a finite number above 0",
        ),
    ],
)
def test_a_bad_override_is_named_as_one_of_the_command_line(key, text, message, write):
    assert refusal(write(SMALLEST), (key, text)) == f"command line: {message}"


def test_a_single_completion_with_a_group_relative_algorithm_is_explained(write):
    text = refusal(write(SMALLEST), ("sampling.completions", "1"))
    assert text.startswith("run.toml: sampling.completions is 1, but the advantage of 'grpo'")


@pytest.mark.parametrize("missing", ["task", "model"])
def test_a_missing_task_or_model_is_asked_for(missing, write):
    lines = [line for line in SMALLEST.splitlines() if not line.startswith(missing)]
    text = refusal(write("\n".join(lines)))
    assert text.startswith(f'run.toml: {missing}.name is missing; write {missing} = "..."')


def test_a_section_made_in_python_names_its_class_and_field():
    with pytest.raises(ConfigError, match=r"^RunConfig\.steps is 0; it must be a whole number"):
        RunConfig(steps=0)


# Unknown keys


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        ("[run]\nstepz = 1", "run.stepz is not a key; did you mean run.steps? (keys of [run]: "),
        ("steps = 1", "steps is not a key; did you mean run.steps? (sections: task, "),
        ("temprature = 1", "temprature is not a key; did you mean sampling.temperature? "),
        ('algoritm = "rloo"', "algoritm is not a key; did you mean algorithm? "),
        ("[samplng]", "[samplng] is not a section; did you mean [sampling]? (sections: "),
        ("[RUN]", "[RUN] is not a section; did you mean [run]? "),
        ("[run]\ntemperature = 1", "run.temperature is not a key; did you mean sampling.temperat"),
        ("[optimizer]\nlr = 1", "optimizer.lr is not a key (keys of [optimizer]: learning_rate, "),
        ('"run.steps" = 3', '"run.steps" is one quoted key; write steps in [run]'),
        ('"a\\nb" = 3', '"a\\nb" is not a key (sections: '),
    ],
)
def test_an_unknown_key_of_a_file_gets_the_nearest_one(lines, start, write):
    assert refusal(write(f"{lines}\n[zzz]")).startswith(f"run.toml: {start}")


@pytest.mark.parametrize(
    ("key", "start"),
    [
        ("run.stepz", "run.stepz is not a key; did you mean run.steps? (keys of [run]: "),
        ("samplng.completions", "samplng.completions is not a key; did you mean sampling.complet"),
        ("run", "run is a section; name one of its keys (run.folder, run.seed, "),
    ],
)
def test_an_unknown_override_gets_the_nearest_key(key, start, write):
    assert refusal(write(SMALLEST), (key, "1")).startswith(f"command line: {start}")


@pytest.mark.parametrize("key", KEYS)
def test_any_key_with_its_last_letter_doubled_leads_back_to_the_key(key):
    assert nearest_key(key + key[-1]) == key


# Files that are none


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[run]\nsteps =", "is not valid TOML: Invalid value (at end of document)"),
        (b"a = 1\na = 2", "is not valid TOML: Cannot overwrite a value"),
        (b"[run\n", "is not valid TOML: Expected ']' at the end of a table declaration (at line 1"),
        (b"x = " + b"[" * 5000, "is not valid TOML: nested too deeply"),
        (b'a = 1\nb = "\xff"', "is not UTF-8 text (line 2)"),
    ],
)
def test_a_malformed_file_is_named_with_the_reason(content, message, write):
    assert refusal(write(content)).startswith(f"run.toml: {message}")


def test_a_missing_file_is_named(write):
    assert refusal(Path("no.toml")) == "no.toml: there is no such file"


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: is a folder; name the TOML file in it"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(write):
    write(SMALLEST)
    assert refusal(Path("run.toml/x")) == "run.toml/x: cannot be read (Not a directory)"


# Paths


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A file in one folder, the working directory in another; each has a task and a model."""
    for name in ("here", "there"):
        (tmp_path / name / "models/small").mkdir(parents=True)
        (tmp_path / name / "words.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_paths_of_a_file_are_relative_to_the_file(elsewhere):
    path = Path("../there/run.toml")
    path.write_text('task = "words.py:task"\nmodel = "models/small"\n[run]\nfolder = "out"')
    config = load_config(path)
    there = elsewhere / "there"
    assert config.task.name == f"{there}/words.py:task"
    assert config.model.name == f"{there}/models/small"
    assert config.run.folder == f"{there}/out"


def test_paths_of_the_command_line_are_relative_to_the_working_directory(elsewhere):
    path = Path("../there/run.toml")
    path.write_text(SMALLEST)
    overrides = [("task", "words.py:task"), ("model", "./models/small"), ("run.folder", "out")]
    config = load_config(path, overrides)
    here = elsewhere / "here"
    assert config.task.name == f"{here}/words.py:task"
    assert config.model.name == f"{here}/models/small"
    assert config.run.folder == f"{here}/out"


def test_the_home_folder_may_be_written_as_a_tilde(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    config = load_config(write(SMALLEST + '[run]\nfolder = "~/runs/a"'))
    assert config.run.folder == "/home/someone/runs/a"


def test_owner_and_name_are_a_hub_id_where_no_such_folder_exists(write):
    path = write('task = "toy"\nmodel = "models/small"')
    assert load_config(path).model.name == "models/small"


def test_an_alias_stays_an_alias_beside_a_folder_of_the_same_name(write):
    os.mkdir("tabular")
    assert load_config(write(SMALLEST)).model.name == "tabular"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "smollm2",
            'is "smollm2"; did you mean "smollm2-135m"? '
            "it must be smollm2-135m, tabular, a folder that exists, or a hub id owner/name",
        ),
        (
            "a/b/c",
            'is "a/b/c"; '
            "it must be smollm2-135m, tabular, a folder that exists, or a hub id owner/name",
        ),
        ("/nowhere/m", 'is "/nowhere/m", but there is no folder /nowhere/m'),
        ("./m", 'is "./m", but there is no folder {here}/m'),
    ],
)
def test_a_model_that_is_nothing_fails_at_once(model, message, write, tmp_path):
    text = refusal(write(f'task = "toy"\nmodel = "{model}"'))
    assert text == f"run.toml: model.name {message.format(here=tmp_path)}"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "additon",
            'is "additon"; did you mean "addition"? '
            "it must be addition, arithmetic, countdown, sorting, strings, json, functions, toy, ",
        ),
        ("words.py", 'is "words.py"; it must be addition, arithmetic, '),
        ("words.py:", 'is "words.py:"; after the colon comes a name that the file defines, found'),
        ("words.py:task", 'is "words.py:task", but there is no file {here}/words.py'),
        ("C:/words.py:task", 'is "C:/words.py:task", but there is no file {here}/C:/words.py'),
        ("words.jsonl", 'is "words.jsonl", but there is no file {here}/words.jsonl'),
        ("words.jsonl.gz", 'is "words.jsonl.gz"; it must be addition, arithmetic, '),
        ("../nowhere", 'is "../nowhere"; it must be addition, arithmetic, '),
    ],
)
def test_a_task_that_is_nothing_fails_at_once(task, message, write, tmp_path):
    text = refusal(write(f'task = "{task}"\nmodel = "tabular"'))
    assert text.startswith(f"run.toml: task.name {message.format(here=tmp_path)}")


@pytest.mark.parametrize("name", ["words.jsonl", "WORDS.CSV", "saved"])
def test_a_task_that_is_data_gets_an_absolute_path(name, write, tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / name).touch()
    config = load_config(write(f'task = "{name}"\nmodel = "tabular"'))
    assert config.task.name == str(tmp_path / name)


def test_a_task_of_the_hub_keeps_its_name(write):
    assert load_config(write('task = "a/b"\nmodel = "tabular"')).task.name == "a/b"


def test_a_verifier_that_is_none_fails_at_once(write):
    text = refusal(write(SMALLEST + '[data]\nverifier = "nummber"'))
    assert text.startswith('run.toml: data.verifier is "nummber"; did you mean "number"? it must')


def test_several_columns_are_a_list_or_separated_by_commas(write):
    path = write(SMALLEST + '[data]\nanswer = ["entry", "tests"]\njson_columns = ["tests"]')
    assert load_config(path).data.answer == ("entry", "tests")
    changed = load_config(path, [("data.json_columns", "tests, inputs")])
    assert changed.data.json_columns == ("tests", "inputs")


def test_a_list_of_something_else_is_refused(write):
    text = refusal(write(SMALLEST + "[data]\njson_columns = [1]"))
    assert text == "run.toml: data.json_columns is an array; it must be a list of texts in quotes"


# Back to TOML


def values(hint: object) -> st.SearchStrategy:
    """Every kind of value that a key of this type accepts."""
    names = names_in(hint)
    if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Range):
        scalar, limits = get_args(hint)
        if scalar is int:
            return st.integers(int(limits.low), 2**63 - 1)
        high = min(limits.high, sys.float_info.max)
        return st.floats(limits.low, high, exclude_min=limits.above)
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
    "sampling.completions": st.integers(2, 2**63 - 1),
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
        (f"{section}.{name}", json.dumps(value) if isinstance(value, list) else str(value))
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
