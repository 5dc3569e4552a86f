"""Reads a Hugging Face model folder, and says in one line what is wrong with one.

Weights come from safetensors only, code that a folder brings along is never run, and a tensor that
the weights lack is an error: the model library would fill it with random numbers and a warning.
"""

import json
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verigrad.errors import ModelError
from verigrad.policies.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "spiece.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
)
MODEL_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "vocab.txt", "merges.txt")
"""What a hub model consists of here; files in its subfolders are other formats of the same."""


def fetch(source: str, *, files: Sequence[str] = MODEL_FILES) -> Path:
    """Return the folder itself, or the local copy of a hub model, downloaded where needed.

    Args:
        source: an absolute folder or a hub id ``owner/name``.
        files: patterns of the files wanted from the hub.

    Raises:
        ModelError: the hub has no such model, refuses it, or cannot be reached.
    """
    if Path(source).is_absolute():
        return Path(source)
    from huggingface_hub import snapshot_download

    try:
        copy = snapshot_download(
            source, allow_patterns=list(files), ignore_patterns=["*/*", "consolidated*"]
        )
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {source!r} is no folder here, and the hub does not give it: {one_line(error)}; "
            "check the id and the network, or name a folder"
        ) from error
    return Path(copy)


def read_config_file(folder: Path) -> "PretrainedConfig":
    """Read ``config.json``.

    Raises:
        ModelError: it is missing or malformed, or its kind of model is not known.
    """
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a complete Hugging Face model folder; "
            "model.save_pretrained writes one"
        )
    with readable_errors(folder):
        _check_no_foreign_code(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def read_tokenizer(folder: Path) -> "PreTrainedTokenizerBase":
    """Read the tokenizer of a model folder.

    Raises:
        ModelError: the folder holds no vocabulary, or one that cannot be read.
    """
    from transformers import AutoTokenizer

    # Without this check some kinds of model get a tokenizer with an empty vocabulary.
    if not any((folder / name).is_file() for name in VOCABULARIES):
        raise ModelError(
            f"{folder} has no tokenizer (tokenizer.json), so no prompt can be turned into tokens; "
            "tokenizer.save_pretrained writes it"
        )
    with readable_errors(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def read_model(folder: Path) -> "PreTrainedModel":
    """Read the causal language model of a folder, in float32, on the CPU.

    Raises:
        ModelError: no causal language model, or weights that are missing, incomplete, corrupt, or
            not in safetensors.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = read_config_file(folder)
    check_causal(config)
    _check_weights(folder)
    with readable_errors(folder):
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    _check_complete(folder, report)
    return model


def check_causal(config: "PretrainedConfig") -> None:
    """Refuse a model that does not predict the next token of a text.

    Raises:
        ModelError: it is of another kind, for example an encoder-decoder.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {config.name_or_path} is of type {config.model_type!r}, which is no causal "
            "language model, so it cannot continue a prompt; choose one such as Llama or Qwen"
        )


@contextmanager
def readable_errors(source: object) -> Iterator[None]:
    """Quiet the model library in the block, and turn what it raises into a ModelError of one line.

    Args:
        source: the folder or name that is being read, for the message.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        with quiet_transformers():
            yield
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        AttributeError,
        RuntimeError,
        ImportError,
        SafetensorError,
        StrictDataclassError,
    ) as error:
        raise ModelError(f"model {source} cannot be loaded: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """An exception's kind and message on one line of at most 300 characters."""
    text = f"{type(error).__name__}: {error}"
    return textwrap.shorten(text, width=300, placeholder=" ...")


def _check_no_foreign_code(config: Any) -> None:
    """Refuse an attention that lives on the hub: the model library would fetch it and run it.

    Raises:
        ValueError: a part of the configuration names one.
    """
    for key, value in config.items() if isinstance(config, dict) else ():
        if key.endswith("_implementation") and "/" in str(value):
            raise ValueError(
                f"config.json has {key} = {value!r}, code from elsewhere that would be run; "
                "remove that key"
            )
        _check_no_foreign_code(value)


def _check_weights(folder: Path) -> None:
    if any((folder / name).is_file() for name in WEIGHTS):
        _check_index(folder)
        return
    if any((folder / name).is_file() for name in PICKLED_WEIGHTS):
        raise ModelError(
            f"{folder} has its weights in pytorch_model.bin only, a pickle, and reading a pickle "
            "can run any code; convert it where you trust it, with model.save_pretrained, which "
            "writes model.safetensors"
        )
    raise ModelError(
        f"{folder} has no weights (model.safetensors); model.save_pretrained writes them"
    )


def _check_index(folder: Path) -> None:
    """The model library would read a file that the index names as a pickle, whatever is asked."""
    whole, index = (folder / name for name in WEIGHTS)
    if whole.is_file():
        return
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is no index of weights: {one_line(error)}") from error
    wrong = sorted(str(name) for name in files if not str(name).endswith(".safetensors"))
    if wrong:
        raise ModelError(
            f"{index} names the file {wrong[0]!r}, which is not in safetensors, so reading it "
            "could run any code; convert it where you trust it, with model.save_pretrained"
        )


def _check_complete(folder: Path, report: dict[str, Any]) -> None:
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights in {folder} lack {len(missing)} of the model's tensors, first "
            f"{missing[0]!r}, which would start as random numbers; save the whole model again"
        )
    mismatched = sorted(report["mismatched_keys"])
    if mismatched:
        name, found, expected = mismatched[0]
        raise ModelError(
            f"the weights in {folder} do not fit its config.json: {name!r} has shape "
            f"{tuple(found)}, expected {tuple(expected)}; use the two files of one model"
        )
