"""Finding and loading a model, and turning a problem's prompt into tokens."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
)
from transformers.utils import logging as transformers_logging

from verigrad.errors import ModelError
from verigrad.policies.models import (
    count_parameters,
    load_model,
    load_model_config,
    locate_model,
    render,
    stop_token_ids,
)

WORDS = ["<unk>", "</s>", "<turn>", "user", "assistant", "system", "What", "is", "1", "2", "+", "?"]
TEMPLATE = (
    "{% for turn in messages %}<turn> {{ turn['role'] }} {{ turn['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<turn> assistant{% endif %}"
)


def tiny_tokenizer(template: str | None = None) -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="</s>", chat_template=template
    )
    return tokenizer


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def refusal(name: str | Path) -> str:
    """The message that loading this model fails with, which is one line."""
    with pytest.raises(ModelError) as caught:
        load_model(str(name), device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    return message


# Where a model is


def test_a_folder_is_located_as_its_absolute_path(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    assert locate_model("tiny") == str(saved)


def test_a_hub_id_is_located_as_itself():
    assert locate_model("owner/some-model.v2") == "owner/some-model.v2"


@pytest.mark.parametrize("name", ["smollm2-135", "smolm2-135m", "SmolLM2-135M"])
def test_a_misspelt_alias_fails_with_the_nearest_one(name):
    with pytest.raises(ModelError, match="smollm2-135m"):
        locate_model(name)


@pytest.mark.parametrize("name", ["runs/addition-1/final", "/no/such/folder", "./final", "", "a/"])
def test_a_path_that_does_not_exist_is_not_taken_for_a_hub_id(name):
    with pytest.raises(ModelError, match="is neither an alias nor a folder that exists"):
        locate_model(name)


def test_a_file_is_not_a_model(saved):
    with pytest.raises(ModelError, match="is a file"):
        locate_model(str(saved / "model.safetensors"))


# Loading


def test_a_folder_loads_as_the_model_that_was_saved(saved):
    loaded = load_model(str(saved), device="cpu")
    assert loaded.source == str(saved)
    assert not loaded.model.training
    assert loaded.model.config._attn_implementation == "sdpa"
    for name, weight in tiny_model().state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight), name


def test_a_model_saved_in_half_precision_loads_in_float32(saved, tmp_path):
    tiny_model().bfloat16().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), device="cpu")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}


def test_loading_prints_nothing_and_leaves_the_librarys_own_settings(saved, capfd):
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    load_model(str(saved), device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.get_verbosity() == verbosity
    assert transformers_logging.is_progress_bar_enabled() == bars


def test_a_hub_model_in_the_hubs_cache_loads_without_a_network(saved, tmp_path, monkeypatch):
    cached = tmp_path / "models--owner--tiny"
    shutil.copytree(saved, cached / "snapshots" / "0123")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_model("owner/tiny", device="cpu").source == "owner/tiny"
    assert load_model_config("owner/tiny").vocab_size == len(WORDS)


def test_a_hub_model_that_cannot_be_reached_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "'owner/tiny' is no folder here, and the hub does not give it" in refusal("owner/tiny")


def test_a_folder_without_a_configuration_is_refused(folder):
    (folder / "config.json").unlink()
    assert f"{folder} has no config.json" in refusal(folder)
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model_config(str(folder))


def test_a_malformed_configuration_is_refused(folder):
    (folder / "config.json").write_text("{ nope")
    assert "not a valid JSON file" in refusal(folder)


def test_a_configuration_with_a_value_of_another_type_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": "wide"}))
    assert f"model {folder} cannot be loaded" in refusal(folder)


def test_a_configuration_that_cannot_be_computed_with_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 0}))
    assert f"model {folder} cannot be loaded: ZeroDivisionError" in refusal(folder)


def test_a_configuration_of_the_tokenizer_that_is_no_table_is_refused(folder):
    (folder / "tokenizer_config.json").write_text("[]")
    assert f"model {folder} cannot be loaded: AttributeError" in refusal(folder)


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{% for i in range(10**9) %}{% endfor %}", "OverflowError: Range too big"),
        ("{{ 1 // 0 }}", "ZeroDivisionError: "),
        ("{{ messages[0]['content'] + 1 }}", "TypeError: "),
    ],
)
def test_a_chat_template_that_fails_is_named_with_its_error(template, error, folder):
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = load_model(str(folder), device="cpu").tokenizer
    with pytest.raises(ModelError, match=f"refuses a prompt of roles user: {error}"):
        render(tokenizer, "Say 3.")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_folder_without_a_tokenizer_is_refused(folder, kind):
    (folder / "tokenizer.json").unlink()
    if kind == "gpt2":
        GPT2Config().save_pretrained(folder)
    assert f"{folder} has no tokenizer" in refusal(folder)


def test_a_corrupt_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").write_text("{")
    assert "JSONDecodeError" in refusal(folder)


def test_pickled_weights_are_refused_and_the_reason_given(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "reading a pickle can run any code" in refusal(folder)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "has no weights" in refusal(folder)


def test_weights_cut_short_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-300])
    assert "SafetensorError" in refusal(folder)


def test_weights_that_lack_a_tensor_are_refused_instead_of_made_up(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lack 1 of the model's tensors, first 'model.norm.weight'" in refusal(folder)


def test_weights_of_another_size_are_refused_with_both_shapes(folder):
    tensors = load_file(folder / "model.safetensors") | {"model.norm.weight": torch.ones(3)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "'model.norm.weight' has shape (3,), expected (32,)" in refusal(folder)


def test_a_model_that_is_no_causal_language_model_is_refused(folder):
    T5Config().save_pretrained(folder)
    assert f"model {folder} is of type 't5', which is no causal language model" in refusal(folder)
    with pytest.raises(ModelError, match="no causal language model"):
        count_parameters(load_model_config(str(folder)))


def test_code_that_a_folder_brings_along_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (folder / "config.json").write_text(json.dumps(config | own))
    (folder / "own.py").write_text("raise AssertionError('was run')")
    assert "custom code" in refusal(folder)


def test_parameters_are_counted_without_reading_weights(folder):
    (folder / "model.safetensors").unlink()
    expected = sum(p.numel() for p in tiny_model().parameters())
    assert count_parameters(load_model_config(str(folder))) == expected


# Stop tokens


def test_stop_tokens_are_those_of_the_model_the_generation_and_the_tokenizer():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.generation_config.eos_token_id = [11, 4]
    model.config.eos_token_id = 2
    assert stop_token_ids(model, tokenizer) == (1, 2, 4, 11)


def test_without_any_stop_token_there_is_none():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    tokenizer.eos_token = None
    assert stop_token_ids(model, tokenizer) == ()


def test_token_zero_is_a_stop_token_like_any_other():
    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.generation_config.eos_token_id = 0
    assert stop_token_ids(model, tokenizer) == (0, 1)


# Prompts


def words(ids: tuple[int, ...]) -> str:
    return " ".join(WORDS[i] for i in ids)


def test_text_becomes_one_user_turn_and_opens_the_assistants():
    ids = render(tiny_tokenizer(TEMPLATE), "What is 1 + 2 ?")
    assert words(ids) == "<turn> user What is 1 + 2 ? <turn> assistant"


def test_messages_keep_their_roles():
    turns = ({"role": "system", "content": "is"}, {"role": "user", "content": "1 + 2"})
    ids = render(tiny_tokenizer(TEMPLATE), turns)
    assert words(ids) == "<turn> system is <turn> user 1 + 2 <turn> assistant"


def test_without_a_template_text_is_encoded_as_it_is():
    assert words(render(tiny_tokenizer(), "What is 1 + 2 ?")) == "What is 1 + 2 ?"


def test_without_a_template_messages_are_joined():
    turns = ({"role": "system", "content": "is"}, {"role": "user", "content": "1 + 2"})
    assert words(render(tiny_tokenizer(), turns)) == "is 1 + 2"


def test_messages_that_the_template_refuses_name_their_roles():
    tokenizer = tiny_tokenizer("{{ raise_exception('no system turn') }}")
    turns = ({"role": "system", "content": "is"}, {"role": "user", "content": "1 + 2"})
    with pytest.raises(ModelError, match=r"roles system, user: .*no system turn"):
        render(tokenizer, turns)


def test_a_prompt_without_a_token_is_refused():
    with pytest.raises(ModelError, match="no token at all"):
        render(tiny_tokenizer(), "")
