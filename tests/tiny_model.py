"""A random Llama of six small layers with a byte tokenizer, as a local folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS = 6


def byte_tokenizer(extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *extra]
    tokenizer = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(symbols)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def config(layers: int = LAYERS, vocabulary: int = 256) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
    )


def write(folder: Path, vocabulary: int = 256, extra: tuple[str, ...] = ()) -> Path:
    torch.manual_seed(0)
    LlamaForCausalLM(config(vocabulary=vocabulary)).save_pretrained(folder)
    byte_tokenizer(extra).save_pretrained(folder)
    return folder


def gguf_twin() -> LlamaForCausalLM:
    """The model that `write_gguf` writes."""
    torch.manual_seed(1)
    shape = config(layers=2, vocabulary=257)
    shape.tie_word_embeddings = True
    return LlamaForCausalLM(shape).eval()


def write_gguf(path: Path) -> Path:
    """Write `gguf_twin` with the byte tokenizer as a GGUF file, as llama.cpp does."""
    import gguf

    twin = gguf_twin()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(twin.config.max_position_embeddings)
    writer.add_embedding_length(16)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(twin.config.rms_norm_eps)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(257)
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tokens, tokens[0] + tokens[1]])
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for key, tensor in twin.state_dict().items():
        if key != "lm_head.weight":  # it is the transposed embedding
            name = str(names.get_name(key, try_suffixes=(".weight",)))
            writer.add_tensor(name, _interleaved(key, tensor).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleaved(key: str, weight: torch.Tensor) -> torch.Tensor:
    # llama.cpp rotates neighbouring pairs, transformers the two halves of a head.
    heads = {"q_proj": 2, "k_proj": 1}.get(key.split(".")[-2], 0)
    if not heads:
        return weight
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns).contiguous()
