"""What every test starts from: one thread, no network, the same random examples each time."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

settings.register_profile("verigrad", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("verigrad")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Work in an empty folder; the function writes run.toml there and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> Path:
        path = Path("run.toml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
