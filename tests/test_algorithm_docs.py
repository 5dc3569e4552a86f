"""The page of algorithms says what the code holds."""

import re
import tomllib
from dataclasses import fields
from importlib import import_module

import pytest
from builders import make_algorithm
from running import REPOSITORY, TOY, read_jsonl

from verigrad import config as tables
from verigrad.algorithms import PRESETS, Recipe
from verigrad.cli import main
from verigrad.config import algorithm as parts
from verigrad.errors import ConfigError

PAGE = (REPOSITORY / "docs" / "algorithms.md").read_text()
HAVE_EPS = ("grpo", "batch_std", "gdpo", "sum_then_grpo", "passk_analytic")
SHOWN = {
    *("advantage", "advantage_eps", "loss", "clip_low", "clip_high", "aggregation"),
    *("kl", "kl_beta", "correction", "counts_no_signal", "epochs", "minibatches"),
    *("pass_k", "overlong_share"),
}
"""The fields of a recipe that the table of presets shows."""


def section(title: str) -> str:
    """The text of a section of the page."""
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows_of(text: str) -> list[list[str]]:
    """The cells of the tables of a text, without their heads."""
    tables_of_text = re.findall(r"^\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line for table in tables_of_text for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def ours(cell: str) -> str:
    """A cell without what it says of the paper, and without marks."""
    return re.sub(r"\(paper: .*\)", "", cell).replace("`", "").strip()


def as_shown(recipe: Recipe) -> list[str]:
    """The cells of a preset between its name and its paper."""
    clips = None if recipe.clip_low is None else f"{recipe.clip_low:g} / {recipe.clip_high:g}"
    other = [
        f"{key} {value:g}"
        for key in ("pass_k", "overlong_share")
        if (value := getattr(recipe, key)) is not None
    ]
    return [
        recipe.advantage,
        f"{recipe.advantage_eps:g}" if recipe.advantage in HAVE_EPS else "-",
        recipe.loss,
        clips or "-",
        recipe.aggregation,
        f"{recipe.kl}, {recipe.kl_beta:g}" if recipe.kl else "off",
        recipe.correction or "off",
        "stay" if recipe.counts_no_signal else "left out",
        str(recipe.epochs * recipe.minibatches),
        ", ".join(other) or "-",
    ]


def test_the_table_of_presets_is_what_the_presets_hold() -> None:
    shown = {
        ours(row[0]): [ours(cell) for cell in row[1:-1]] for row in rows_of(section("Presets"))
    }
    assert shown == {name: as_shown(recipe) for name, recipe in PRESETS.items()}


def test_no_preset_holds_anything_that_the_table_does_not_show() -> None:
    hidden = [field for field in fields(Recipe) if field.name not in SHOWN]
    for name, recipe in PRESETS.items():
        for field in hidden:
            assert getattr(recipe, field.name) == field.default, (name, field.name)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Presets", tables.PRESETS),
        ("Advantages", parts.ADVANTAGES),
        ("Losses", parts.LOSSES),
        ("Aggregation", parts.AGGREGATIONS),
        ("Divergence", parts.DIVERGENCES),
        ("Correction", parts.CORRECTIONS),
    ],
)
def test_the_page_names_everything_that_a_configuration_accepts(
    title: str, names: tuple[str, ...]
) -> None:
    assert {ours(row[0]) for row in rows_of(section(title))} == set(names)


def test_the_functions_of_the_page_exist() -> None:
    named = set(re.findall(r"`((?:core|algorithms|batch)(?:\.\w+)+)`", PAGE))
    assert len(named) > 40
    for name in named:
        module, _, function = name.rpartition(".")
        assert hasattr(import_module(f"verigrad.{module}"), function), name


def parts_of(cell: str) -> dict[str, object]:
    """The keys and values of a cell: ``kl = "k3"`` and so on, each in backticks."""
    return tomllib.loads("\n".join(re.findall(r"`([^`]*)`", cell)))


COMBINATIONS = section("What is refused, and what is noted").split("Allowed")
REFUSED = [row[0] for row in rows_of(COMBINATIONS[0])]
NOTED = [row[0] for row in rows_of(COMBINATIONS[1])]


@pytest.mark.parametrize("cell", REFUSED)
def test_what_the_page_calls_refused_is_refused(cell: str) -> None:
    with pytest.raises(ConfigError):
        make_algorithm("grpo", **parts_of(cell))


@pytest.mark.parametrize("cell", NOTED)
def test_what_the_page_calls_noted_is_allowed_with_one_note(cell: str) -> None:
    assert len(make_algorithm("grpo", **parts_of(cell)).notes) == 1


def test_the_algorithm_of_ones_own_trains_the_table(tmp_path) -> None:
    text = section("An algorithm of your own")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^ {4}(algorithm = .*)$", text, re.MULTILINE)
    (tmp_path / "mine.py").write_text(code)
    toy = TOY.read_text()
    assert toy.count('algorithm = "grpo"') == 1
    (tmp_path / "run.toml").write_text(toy.replace('algorithm = "grpo"', line))
    folder = tmp_path / "run"
    options = ["--run.steps", "60", "--run.folder", str(folder)]
    assert main(["train", str(tmp_path / "run.toml"), *options]) == 0
    metrics = read_jsonl(folder / "metrics.jsonl")
    assert metrics[-1]["optimizer/updates"] > 20
    early, late = ([line["reward/mean"] for line in part] for part in (metrics[:20], metrics[-20:]))
    assert sum(late) > 2 * sum(early)
