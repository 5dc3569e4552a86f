"""``verigrad init``."""

from importlib.resources import files
from pathlib import Path

from verigrad.cli.app import app, write
from verigrad.errors import UserError

STARTER = ("run.toml", "task.py", "problems.jsonl")


@app.command(sort_key=6)
def init(folder: Path = Path("starter"), /) -> int:
    """Write a folder to start from: a configuration, a task of your own, and ten problems.

    verigrad init my-task

    Args:
        folder: Where to; it is made where it does not exist, and no file in it is replaced.
    """
    taken = [name for name in STARTER if (folder / name).exists()]
    if taken:
        raise UserError(
            f"init: {folder / taken[0]} exists already, and nothing is replaced; name another "
            "folder, or move it away"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in STARTER:
            text = files("verigrad").joinpath("starter", name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"init: {folder} cannot be written: {error.strerror}") from error
    return write(
        f"wrote {', '.join(str(folder / name) for name in STARTER)}\n"
        f"look at the problems: verigrad tasks show {folder / 'run.toml'}\n"
        f"train:                verigrad train {folder / 'run.toml'}"
    )
