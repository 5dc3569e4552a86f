"""The configuration: a file and overrides go in, one checked value or one clear line comes out."""

from pathlib import Path

import pytest
from configs import SMALLEST, refusal

from verigrad.config import (
    MODELS,
    PRESETS,
    TASKS,
    Config,
    ModelConfig,
    RunConfig,
    TaskConfig,
    config_from,
    load_config,
)
from verigrad.errors import ConfigError

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
            'it must be a whole number of at least 1 and at most 16384, or "auto"',
        ),
        (
            "[optimizer]\nlearning_rate = 3e38",
            "optimizer.learning_rate is 3e+38; it must be a finite number above 0 (0, or from "
            "1e-30 to 1e+30 in size, which a model can compute with)",
        ),
        (
            "[sampling]\ntemperature = 1e-46",
            "sampling.temperature is 1e-46; it must be a finite number above 0 (0, or from 1e-30 "
            "to 1e+30 in size, which a model can compute with)",
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
            "[verifier]\nworkers = 100000",
            "verifier.workers is 100000; it must be a whole number of at least 0 and at most "
            '1024, or "auto"',
        ),
        (
            "[verifier]\nwall_seconds = 1e9",
            "verifier.wall_seconds is 1000000000.0; it must be a finite number above 0 and at "
            "most 1e+06",
        ),
        (
            "[verifier]\nmemory_mb = 9223372036854775807",
            "verifier.memory_mb is 9223372036854775807; it must be a whole number of at least "
            "1 and at most 1e+09",
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
