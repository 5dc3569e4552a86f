"""Every configuration and every block of code that people are shown works as it stands."""

import ast
import re
import runpy
import shutil
import tomllib
from pathlib import Path

import pytest
from running import REPOSITORY, read_jsonl, write_tiny_run

from verigrad.cli import EXIT_CODES, main
from verigrad.verifiers import VERIFIERS
from verigrad.verifiers.sandbox import SandboxUnavailableError

PAGES = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "exercises").rglob("*.md"),
]
FILES = [
    path
    for folder in ("examples", "benchmarks", "docs", "exercises")
    for path in (REPOSITORY / folder).rglob("*.toml")
]


def blocks(language: str) -> list[tuple[str, str]]:
    """The fenced blocks of a language in all pages, each with a name for it."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        (f"{page.relative_to(REPOSITORY)}:{number}", text)
        for page in PAGES
        for number, text in enumerate(fence.findall(page.read_text()), start=1)
    ]


CONFIGURATIONS = [
    *((str(path.relative_to(REPOSITORY)), path.read_text()) for path in FILES),
    *blocks("toml"),
]
NAMES = [name for name, _ in CONFIGURATIONS]
TEXTS = [text for _, text in CONFIGURATIONS]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_run(tmp_path_factory.mktemp("tiny")).parent / "model"


@pytest.fixture
def here(tmp_path, tmp_path_factory, monkeypatch) -> Path:
    """A folder with the data of the examples, which nothing else is to be written beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path_factory.mktemp("cache")))
    for file in (REPOSITORY / "examples").glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    return tmp_path


def on_a_tiny_model(text: str, model: Path) -> list[str]:
    """The options that make a configuration run here, unless it is the table's."""
    if tomllib.loads(text)["model"] == "tabular":
        return []
    return ["--model", str(model), "--run.threads", "1", "--sampling.max-new-tokens", "16"]


def test_the_examples_and_the_page_of_the_project_are_among_them():
    assert {
        "examples/toy.toml",
        "examples/addition.toml",
        "examples/word-problems.toml",
        "README.md:1",
    } <= set(NAMES)


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_every_configuration_is_planned(text, model, here, capsys):
    (here / "run.toml").write_text(text)
    before = set(here.iterdir())
    assert main(["plan", "run.toml", *on_a_tiny_model(text, model)]) == 0
    task = tomllib.loads(text)["task"]
    name = task if isinstance(task, str) else task["name"]
    assert capsys.readouterr().out.startswith(f"task        {Path(name).stem}: ")
    assert set(here.iterdir()) == before


@pytest.mark.parametrize("text", TEXTS, ids=NAMES)
def test_every_configuration_trains_for_two_steps(text, model, here):
    (here / "run.toml").write_text(text)
    options = ["--run.folder", "run", "--run.steps", "2", *on_a_tiny_model(text, model)]
    assert main(["train", "run.toml", *options]) == 0
    assert read_jsonl(here / "run" / "metrics.jsonl")[-1]["step"] == 2


def test_the_ten_lines_of_python_train_a_task_of_ones_own(model, here, capsys):
    ((_, text),) = [block for block in blocks("python") if block[0].startswith("README.md")]
    for shown, tried in {
        '"smollm2-135m"': repr(str(model)),
        '"run": {"steps": 10}': '"run": {"steps": 2, "threads": 1}',
    }.items():
        assert text.count(shown) == 1
        text = text.replace(shown, tried)
    (here / "own.py").write_text(text)
    shown_names = runpy.run_path("own.py")
    result = shown_names["result"]
    assert (result.steps, result.exit_code) == (2, 0)
    assert result.folder == here / "runs" / "doubling-1"
    assert result.after.problems + result.after.failed > 0
    assert str(result.folder) in capsys.readouterr().out
    lines = read_jsonl(result.folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[1]["completions/total"] == 48
    check = shown_names["check"]
    assert (check(" 14.", 14), check("28", 14)) == (True, False)


@pytest.mark.parametrize("block", blocks("python"), ids=[name for name, _ in blocks("python")])
def test_every_block_of_python_is_python(block):
    ast.parse(block[1])


ON_VERIFIERS = [block for block in blocks("python") if re.match(r"docs/(verif|sandbox)", block[0])]


@pytest.mark.parametrize("block", ON_VERIFIERS, ids=[name for name, _ in ON_VERIFIERS])
def test_every_block_of_the_pages_on_verifiers_holds(block, here):
    (here / "block.py").write_text(block[1])
    try:
        runpy.run_path("block.py")
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


# What the pages say of the code


def test_the_verifiers_of_the_page_are_those_that_exist():
    page = (REPOSITORY / "docs" / "verifiers.md").read_text()
    table = page.partition("| name | the reward is 1 when |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(VERIFIERS)


def test_the_exit_codes_of_the_page_are_those_of_the_help():
    page = (REPOSITORY / "README.md").read_text()
    table = page.partition("| exit code | meaning |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    listed = [int(code) for row in rows for code in row.split(",")]
    told = [int(line.split()[0]) for line in EXIT_CODES.splitlines()[1:]]
    assert sorted(listed) == sorted(told)


def test_every_target_of_make_is_on_the_page_and_those_of_the_check_come_first():
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\| `make (\w+)` \|", page, re.MULTILINE)
    targets = re.findall(r"^(\w+):.*##", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert sorted([*listed, "help", "setup"]) == sorted(targets)
    checked = (REPOSITORY / ".ci" / "run").read_text().rpartition("make ")[2].split()
    assert listed[:5] == checked


def test_git_ignores_the_environments_that_the_pages_make():
    ignored = (REPOSITORY / ".gitignore").read_text().split()
    made = {name for page in PAGES for name in re.findall(r"-m venv (\S+)", page.read_text())}
    assert {f"{name}/" for name in made} == {".venv/", ".venv-exercise/"}
    assert {f"{name}/" for name in made} <= set(ignored)


def test_the_files_that_the_page_says_to_read_exist():
    page = (REPOSITORY / "README.md").read_text()
    tree = page.partition("    src/verigrad/\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in tree.splitlines()]
    assert len(names) > 8
    assert [n for n in names if not (REPOSITORY / "src" / "verigrad" / n).exists()] == []


def test_the_run_folder_of_the_page_is_that_of_a_run(model, here):
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    table = page.partition("## The run folder\n")[2].partition("\n## ")[0]
    listed = {name.split("/")[0] for name in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)}
    config = model.parent / "run.toml"
    assert main(["train", str(config), "--run.folder", "run", "--run.steps", "1"]) == 0
    assert {path.name for path in (here / "run").iterdir()} == listed


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(REPOSITORY)) for p in PAGES])
def test_links_to_files_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
