"""What a configuration names: keys and their nearest ones, files, paths, models and tasks."""

import os
from pathlib import Path

import pytest
from configs import SMALLEST, refusal

from verigrad.config import load_config
from verigrad.config.keys import KEYS, nearest_key

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
    assert refusal(Path("no.toml")).startswith("no.toml: there is no such file; expected the TOML")


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


@pytest.mark.parametrize("name", ["words.jsonl.gz", "data/words.txt", "words.py"])
def test_a_file_of_another_kind_is_no_task_and_no_hub_id(name, write):
    path = write(f'task = "{name}"\nmodel = "tabular"')
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).touch()
    assert refusal(path) == (
        f'{path}: task.name is "{name}", a file of another kind than is read; data ends in .jsonl, '
        ".json, .csv, .tsv, .parquet, so unpack it or convert it, and a task of your own is "
        "file.py:name"
    )
