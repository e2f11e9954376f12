#!/usr/bin/env python3
"""A Llama-type GGUF file as a Hugging Face folder: config.json, model.safetensors (F32), tokenizer.json.

Quantized tensors are dequantized, and the row order of the query and key projections, which llama.cpp
changes for its rotary embedding, is put back.

  python3 data/gguf_to_huggingface.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2

Needs:  pip install gguf safetensors
"""
import argparse
import json
import pathlib
import sys

try:
    import numpy
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file
except ImportError as error:
    sys.exit(f"{error}; by hand: pip install gguf safetensors")

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {**GPT2, "use_regex": False}]}


# The file's name of a pre-tokenizer, and what it is.
PRE_TOKENIZERS = {
    "gpt-2": GPT2,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]},
    "llama-bpe": split(LLAMA3),
    "qwen2": split(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")),
}
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def huggingface_name(name):
    fixed = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    if name in fixed:
        return fixed[name]
    block, _, rest = name.partition(".")
    layer, _, kind = rest.partition(".")
    if block != "blk" or not kind.endswith(".weight") or kind.removesuffix(".weight") not in NAMES:
        return None
    return f"model.layers.{layer}.{NAMES[kind.removesuffix('.weight')]}.weight"


def unpermuted(rows, heads):
    """llama.cpp keeps the two halves of a head's rotary pairs interleaved; Hugging Face, one after the other."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def tokenizer_json(value):
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    pre = value("tokenizer.ggml.pre", "gpt-2")
    if value("tokenizer.ggml.model") != "gpt2" or pre not in PRE_TOKENIZERS:
        sys.exit(f"the tokenizer is {value('tokenizer.ggml.model')}, {pre}; known are {', '.join(PRE_TOKENIZERS)}")
    special = [i for i, kind in enumerate(types) if kind in (3, 4)]  # control, user-defined
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i in special],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": pre == "llama-bpe",
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": value("tokenizer.ggml.merges")}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    if not arguments.gguf.exists():
        sys.exit(f"{arguments.gguf}: no such file")
    try:
        reader = GGUFReader(arguments.gguf)
    except ValueError as error:
        sys.exit(f"{arguments.gguf}: {error}")

    def value(name, default=None):
        field = reader.get_field(name)
        if field is None and default is None:
            sys.exit(f"{arguments.gguf}: has no {name}")
        return default if field is None else field.contents()

    kind = value("general.architecture")
    if kind not in ("llama", "qwen3"):
        sys.exit(f"{arguments.gguf}: is a {kind} model; llama and qwen3 are supported")
    if value(f"{kind}.rope.scaling.type", "none") != "none":
        sys.exit(f"{arguments.gguf}: has rope scaling ({value(f'{kind}.rope.scaling.type')}), which is not supported")
    tokenizer = tokenizer_json(value)
    heads = value(f"{kind}.attention.head_count")
    kv_heads = value(f"{kind}.attention.head_count_kv", heads)
    hidden = value(f"{kind}.embedding_length")
    tensors = {}
    for tensor in reader.tensors:
        if tensor.name.startswith("rope_freqs"):
            sys.exit(f"{arguments.gguf}: has rope scaling ({tensor.name}), which is not supported")
        if huggingface_name(tensor.name) is None:
            sys.exit(f"{arguments.gguf}: has a tensor {tensor.name}, which no supported model has")
        rows = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if kind == "llama" and tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            rows = unpermuted(rows, heads if "attn_q" in tensor.name else kv_heads)
        tensors[huggingface_name(tensor.name)] = numpy.ascontiguousarray(rows)
    config = {
        "architectures": ["Qwen3ForCausalLM" if kind == "qwen3" else "LlamaForCausalLM"], "model_type": kind,
        "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": value(f"{kind}.feed_forward_length"),
        "num_hidden_layers": value(f"{kind}.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": value(f"{kind}.attention.key_length", hidden // heads),
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "max_position_embeddings": value(f"{kind}.context_length"),
        "rms_norm_eps": float(value(f"{kind}.attention.layer_norm_rms_epsilon")),
        "rope_theta": float(value(f"{kind}.rope.freq_base", 10000.0)),
        "tie_word_embeddings": "lm_head.weight" not in tensors}
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, arguments.out / "model.safetensors", metadata={"format": "pt"})
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (arguments.out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    print(f"{sum(t.size for t in tensors.values())} parameters written to {arguments.out}")


if __name__ == "__main__":
    main()
