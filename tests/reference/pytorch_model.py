#!/usr/bin/env python3
"""Every variant in PyTorch, written from the equations: loads what `attnres export` writes, and runs it.

It shares nothing with the C++ code but the names of the parameters, so that each can judge the other
(pytorch_oracle.py); autograd gives the gradients.

  python3 tests/reference/pytorch_model.py EXPORTED --prompt "It is a truth"

  model = DepthModel.load("EXPORTED")
  logits, weights = model(torch.tensor([[1, 2, 3]]))     # weights: routing by site, [sources, B*T, H]

Needs:  pip install torch safetensors, and tokenizers where the folder has a tokenizer.json.
"""
import argparse
import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}; by hand: pip install torch safetensors")
    sys.exit(77)


def rms_norm(x, gain, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def rotate(x, theta):  # [B, heads, T, d]
    d, positions = x.shape[-1], torch.arange(x.shape[-2], dtype=x.dtype)
    frequency = theta ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = torch.cat([torch.outer(positions, frequency)] * 2, -1)
    rotated = torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1)
    return x * angle.cos() + rotated * angle.sin()


def attention(x, p, layer, c):
    batch, length, _ = x.shape
    heads, kv_heads, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def project(name, count):
        return (x @ p[f"{layer}.self_attn.{name}_proj.weight"].T).view(batch, length, count, d).transpose(1, 2)

    q, k, v = project("q", heads), project("k", kv_heads), project("v", kv_heads)
    if c.get("qk_norm"):
        q = rms_norm(q, p[f"{layer}.self_attn.q_norm.weight"], c["rms_norm_eps"])
        k = rms_norm(k, p[f"{layer}.self_attn.k_norm.weight"], c["rms_norm_eps"])
    q, k = rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"])
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / d ** 0.5
    scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
    mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, heads * d)
    return mixed @ p[f"{layer}.self_attn.o_proj.weight"].T


def mlp(x, p, layer):
    gate, up, down = (p[f"{layer}.mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
    return (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T


def depth_attention(sources, query, gain, eps):
    """Sources [S][B,T,D], query [H, D/H], gain [D]: the mix, and the weights [S, B*T, H]."""
    stack = torch.stack(sources)
    heads = query.shape[0]
    keys = rms_norm(stack, gain, eps).unflatten(-1, (heads, -1))
    weights = (keys * query).sum(-1).softmax(0)
    mix = (weights.unsqueeze(-1) * stack.unflatten(-1, (heads, -1))).sum(0).flatten(-2)
    return mix, weights.flatten(1, 2)


def sources_of_site(outputs, block, window):
    """What site l = len(outputs) reads, from the raw outputs of the embedding and l - 1 sublayers."""
    if window:
        first = max(1, len(outputs) - window)
        return outputs[:1] + outputs[first:]
    done = outputs[1:]
    return outputs[:1] + [sum(done[i:i + block]) for i in range(0, len(done), block)]


def forward(p, c, tokens):
    """Logits [B, T, V] of tokens [B, T], and the routing weights [S, B*T, H] of every site by name."""
    mixing, eps, weights = c["depth_mixing"], c["rms_norm_eps"], {}
    outputs = [p["model.embed_tokens.weight"][tokens.long()]]

    def read(site, routed=True):
        stream = sum(outputs)
        if mixing["kind"] == "residual" or not routed:
            return stream
        sources = sources_of_site(outputs, mixing["block_sublayers"], mixing["window"])
        mix, weights[site] = depth_attention(sources, p[f"{site}_proj.weight"], p[f"{site}_norm.weight"], eps)
        return stream + p[f"{site}_gate"] * mix if mixing["kind"] == "delta" else mix

    for b in range(c["num_hidden_layers"]):
        layer = f"model.layers.{b}"
        x = rms_norm(read(f"{layer}.self_attention_res"), p[f"{layer}.input_layernorm.weight"], eps)
        outputs.append(attention(x, p, layer, c))
        x = rms_norm(read(f"{layer}.mlp_res"), p[f"{layer}.post_attention_layernorm.weight"], eps)
        outputs.append(mlp(x, p, layer))
    x = rms_norm(read("model.output_attn_res", mixing["kind"] == "attention"), p["model.norm.weight"], eps)
    return x @ p.get("lm_head.weight", p["model.embed_tokens.weight"]).T, weights


class DepthModel:
    """A model folder: config.json and the parameters by their names."""

    def __init__(self, config, parameters):
        self.config, self.parameters = config, parameters

    @classmethod
    def load(cls, folder, dtype=torch.float32):
        folder = pathlib.Path(folder)
        parameters = {}
        for path in sorted(folder.glob("model*.safetensors")):
            parameters |= {name: value.to(dtype) for name, value in load_file(path).items()}
        if not parameters:
            raise FileNotFoundError(f"{folder}: has no model.safetensors")
        return cls(json.loads((folder / "config.json").read_text()), parameters)

    def __call__(self, tokens):
        return forward(self.parameters, self.config, tokens)

    def continued(self, ids, count):
        """ids and the `count` tokens that follow, the most likely one each time."""
        for _ in range(count):
            logits, _ = self(torch.tensor([ids[-self.config["max_position_embeddings"]:]]))
            ids = [*ids, logits[0, -1].argmax().item()]
        return ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--prompt", default="It is a truth")
    parser.add_argument("--tokens", type=int, default=40)
    arguments = parser.parse_args()
    model = DepthModel.load(arguments.folder)
    if (arguments.folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(str(arguments.folder / "tokenizer.json"))
        encode, decode = lambda text: tokenizer.encode(text).ids, tokenizer.decode
    else:  # a byte model: ids 0-255, and 256 between documents
        encode = lambda text: list(text.encode())  # noqa: E731
        decode = lambda ids: bytes(i for i in ids if i < 256).decode(errors="replace")  # noqa: E731
    with torch.no_grad():
        print(decode(model.continued(encode(arguments.prompt), arguments.tokens)))


if __name__ == "__main__":
    main()
