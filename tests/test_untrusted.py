"""Folders from elsewhere bring data along, and none of it is run; text from elsewhere is shown."""

import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import TOY, write_task
from safetensors.torch import load_file
from tiny import save_tiny_model

from verigrad import resume
from verigrad.cli import main
from verigrad.errors import ModelError, RunFolderError
from verigrad.policies.models import load_model, load_model_config, render
from verigrad.training.checkpoint import checkpoints


class Opens:
    """A pickle of it creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that exists when code of a folder was run."""
    return tmp_path / "was-run"


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def add_code(folder: Path, mark: Path) -> None:
    code = f"open({str(mark)!r}, 'w')\nclass Own: pass\n"
    for name in ("own.py", "configuration_own.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)


def test_the_pickle_of_these_tests_creates_a_file_when_it_is_read(mark):
    pickle.loads(pickle.dumps(Opens(mark))).close()  # noqa: S301
    assert mark.exists()


# Model folders


def test_a_known_model_that_brings_code_loads_without_it(folder, mark):
    add_code(folder, mark)
    own = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "own.Own"}
    change(folder / "config.json", auto_map=own)
    assert type(load_model(str(folder), device="cpu").model).__name__ == "LlamaForCausalLM"
    assert not mark.exists()


@pytest.mark.parametrize("load", [load_model_config, lambda name: load_model(name, device="cpu")])
def test_a_model_that_needs_its_own_code_is_refused(load, folder, mark):
    add_code(folder, mark)
    own = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "own.Own"}
    change(folder / "config.json", auto_map=own, model_type="own")
    with pytest.raises(ModelError, match="cannot be loaded: ValueError: "):
        load(str(folder))
    assert not mark.exists()


def test_a_tokenizer_that_needs_its_own_code_is_refused(folder, mark):
    add_code(folder, mark)
    own = {"AutoTokenizer": ["own.Own", "own.Own"]}
    change(folder / "tokenizer_config.json", auto_map=own, tokenizer_class="Own")
    with pytest.raises(ModelError, match="cannot be loaded: ValueError: "):
        load_model(str(folder), device="cpu")
    assert not mark.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_attention_from_the_hub_is_refused(key, folder):
    change(folder / "config.json", **{key: "someone/fast-attention"})
    with pytest.raises(ModelError, match=f"config.json has {key} = 'someone/fast-attention', code"):
        load_model_config(str(folder))


def test_a_pickle_of_weights_is_refused_alone_and_not_read_beside_safetensors(folder, mark):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Opens(mark)))
    load_model(str(folder), device="cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has its weights in pytorch_model\.bin only, a pickle"):
        load_model(str(folder), device="cpu")
    assert not mark.exists()


def test_a_pickle_named_as_safetensors_is_not_read_as_a_pickle(folder, mark):
    (folder / "model.safetensors").write_bytes(pickle.dumps(Opens(mark)))
    with pytest.raises(ModelError, match="cannot be loaded: SafetensorError: "):
        load_model(str(folder), device="cpu")
    assert not mark.exists()


def test_an_index_that_names_a_pickle_is_refused(folder, mark):
    names = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "shard.bin").write_bytes(pickle.dumps(Opens(mark)))
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "shard.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"names the file 'shard\.bin', which is not in safetens"):
        load_model(str(folder), device="cpu")
    assert not mark.exists()


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_refused(index, folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=r"index\.json is no index of weights: "):
        load_model(str(folder), device="cpu")


def test_a_chat_template_cannot_reach_what_is_around_it(folder, mark):
    code = f"{{{{ cycler.__init__.__globals__.os.system('touch {mark}') }}}}"
    (folder / "chat_template.jinja").write_text(code)
    with pytest.raises(ModelError, match="refuses a prompt of roles user: SecurityError: "):
        render(load_model(str(folder), device="cpu").tokenizer, "Say 3.")
    assert not mark.exists()


# Checkpoints and final policies


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    assert main(["train", str(TOY), "--run.steps", "3", "--run.folder", str(run)]) == 0
    return run


@pytest.mark.parametrize("name", ["policy", "optimizer", "reference"])
def test_a_pickle_in_a_checkpoint_is_not_read(name, run, mark):
    (newest,) = checkpoints(run / "checkpoints")
    (newest / f"{name}.safetensors").write_bytes(pickle.dumps(Opens(mark)))
    with pytest.raises(RunFolderError):
        resume(run, [("run.steps", "5")], quiet=True)
    assert not mark.exists()


def test_a_pickle_in_a_final_policy_is_not_read(run, mark, capsys):
    (run / "final" / "policy.safetensors").write_bytes(pickle.dumps(Opens(mark)))
    assert main(["eval", str(run), str(TOY)]) == 2
    assert "holds no table that can be read" in capsys.readouterr().err
    assert not mark.exists()


# Text

ESCAPES = "\x1b[2J\x1b]0;title\x07\r\x9b1A\u202e"


def assert_harmless(text: str) -> None:
    assert not set(text) & set("\x1b\x07\r\x9b\u202e")


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", f"{ESCAPES}.toml"],
        ["train", str(TOY), "--run.folder", f"a{ESCAPES}"],
        ["train", str(TOY), "--model", f"a{ESCAPES}"],
        ["train", str(TOY), f"--run.{ESCAPES}", "3"],
        ["train", str(TOY), f"{ESCAPES}"],
        ["train", "--resume", f"{ESCAPES}"],
        ["eval", f"{ESCAPES}", str(TOY)],
        ["replay", f"{ESCAPES}", "3"],
        ["replay", ".", f"{ESCAPES}"],
        [f"{ESCAPES}"],
    ],
)
def test_nothing_in_an_argument_is_obeyed_by_the_terminal_that_shows_the_error(
    arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("verigrad: error: ")
    assert captured.err.count("\n") == 1
    assert_harmless(captured.out + captured.err)


def test_nothing_in_a_file_of_the_configuration_is_obeyed(tmp_path, capsys):
    file = tmp_path / "run.toml"
    for line in ('task = "\\u001B[2J"', '"\\u001B[2J" = 3', '[run]\n"\\u001B[2J\\r" = 3'):
        file.write_text(line)
        assert main(["plan", str(file)]) == 2
        assert_harmless(capsys.readouterr().err)


def test_names_of_a_task_are_shown_and_not_obeyed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = (
        f"name = {ESCAPES!r} + '[red]x[/red]\\nverigrad: error: forged'\n"
        "names = [f'{n}{name}' for n in range(9)]\n"
        "problems = [Problem(id=name, prompt=name, reference=0) for name in names]\n"
        "task = ProblemTask(name, problems, lambda c, r: c == str(r))"
    )
    options = [str(TOY), "--task", f"{write_task(tmp_path, code)}:task", "--task.held-out", "0.4"]
    assert main(["train", *options, "--run.steps", "2", "--run.folder", "run"]) == 0
    assert main(["eval", "run", *options]) == 0
    assert main(["plan", *options]) == 0
    captured = capsys.readouterr()
    assert_harmless(captured.out + captured.err)
    assert "[red]x[/red]" in captured.err
    assert "\nverigrad: error" not in captured.out + captured.err


def test_a_character_that_the_terminal_lacks_is_shown_as_an_escape(tmp_path, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    code = "task = ProblemTask('h\u00e9', [Problem(id='a', prompt='a', reference=1)], len)"
    options = ["--task", f"{write_task(tmp_path, code)}:task", "--task.held-out", "0"]
    assert main(["plan", str(TOY), *options]) == 0
    assert raw.getvalue().startswith(b"task        h\\xe9: 1 problems")
