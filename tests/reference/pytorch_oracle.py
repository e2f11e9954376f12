#!/usr/bin/env python3
"""An independent implementation of every variant in PyTorch (float64, autograd), against `attnres dump`.

Written from the equations alone: the model below shares nothing with the C++ code but the parameter
names.  Compares loss, logits, routing weights and the gradient of every parameter.  If transformers
is installed, the residual model is also compared with its LlamaForCausalLM.

  python3 tests/reference/pytorch_oracle.py --program build/attnres

Exit status 77 if PyTorch or safetensors is not installed (ctest shows the test as skipped).
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; by hand: pip install torch safetensors transformers")
    sys.exit(77)

TOLERANCE = 1e-9  # of the largest magnitude in the tensor, float64 on both sides

BASE = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=6, vocab_size=50, rms_norm_eps=1e-6, rope_theta=10000.0,
            tie_word_embeddings=True, max_position_embeddings=64)


def variant(kind, heads=1, block=1, window=0, **more):
    mixing = dict(kind=kind, heads=heads, block_sublayers=block, window=window)
    return {**BASE, **more, "depth_mixing": mixing}


VARIANTS = {
    "residual": variant("residual"),
    "residual, untied, QK norm": variant("residual", tie_word_embeddings=False, qk_norm=True),
    "AttnRes": variant("attention"),
    "MHAR, 4 heads": variant("attention", heads=4),
    "MHAR, 3 heads": variant("attention", heads=3),
    "block AttnRes, blocks of 3": variant("attention", block=3),
    "block MHAR, 2 heads, blocks of 2": variant("attention", heads=2, block=2),
    "window AttnRes, 3 sources": variant("attention", window=3),
    "delta MHAR, 2 heads": variant("delta", heads=2),
    "delta block MHAR, 2 heads, blocks of 3": variant("delta", heads=2, block=3),
}


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


def forward(p, c, tokens, targets):
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
    logits = x @ p.get("lm_head.weight", p["model.embed_tokens.weight"]).T
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)
    return loss, logits, weights


def make_checkpoint(program, folder, config):
    """A checkpoint with random queries, and gates and norms moved off their neutral values."""
    (folder / "model.json").write_text(json.dumps(config))
    subprocess.run([program, "init", "--config", folder / "model.json", "--out", folder / "model",
                    "--random-queries"], check=True, stdout=subprocess.DEVNULL)
    path = folder / "model" / "model.safetensors"
    tensors, generator = load_file(path), torch.Generator().manual_seed(1)
    for name, value in tensors.items():
        if name.endswith("layernorm.weight") or name.endswith("norm.weight") and "_res_" not in name:
            value.copy_(0.8 + 0.4 * torch.rand(value.shape, generator=generator))
        elif name.endswith("_gate"):
            value.copy_(torch.randn(value.shape, generator=generator))
        elif "_res_" not in name:
            value.mul_(8)
    save_file(tensors, path)
    return folder / "model"


def dump(program, model, tokens, targets, folder):
    save_file({"tokens": tokens, "targets": targets}, folder / "batch.safetensors")
    subprocess.run([program, "dump", "--checkpoint", model, "--tokens", folder / "batch.safetensors",
                    "--out", folder / "dump.safetensors"], check=True, stdout=subprocess.DEVNULL)
    return load_file(folder / "dump.safetensors")


def worst_difference(expected, actual):
    """The largest difference over all tensors, relative to each tensor's largest magnitude."""
    worst = (0.0, "")
    for name, value in expected.items():
        if actual[name].shape != value.shape:
            raise SystemExit(f"{name}: shape {tuple(actual[name].shape)}, expected {tuple(value.shape)}")
        if not actual[name].isfinite().all():
            raise SystemExit(f"{name}: is not finite")
        scale = max(value.abs().max().item(), 1e-6)
        worst = max(worst, ((actual[name] - value).abs().max().item() / scale, name))
    return worst


def check_variant(program, name, config, folder):
    model = make_checkpoint(program, folder, config)
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 50, (2, 11), generator=generator, dtype=torch.int32)
    targets = torch.randint(0, 50, (2, 11), generator=generator, dtype=torch.int32)
    targets[1, 4] = -1
    actual = dump(program, model, tokens, targets, folder)
    p = {k: v.double().requires_grad_() for k, v in load_file(model / "model.safetensors").items()}
    loss, logits, weights = forward(p, config, tokens, targets)
    loss.backward()
    expected = {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    expected |= {f"weights.{site}": w.detach() for site, w in weights.items()}
    expected |= {f"grad.{k}": v.grad if v.grad is not None else torch.zeros_like(v) for k, v in p.items()}
    if set(expected) != set(actual):
        raise SystemExit(f"{name}: tensors differ: {sorted(set(expected) ^ set(actual))}")
    difference, where = worst_difference(expected, actual)
    print(f"{name:42} {len(expected):3} tensors  worst {difference:.1e} ({where})")
    return difference <= TOLERANCE


def check_against_transformers(program, folder):
    try:
        from transformers import LlamaForCausalLM
    except ImportError:
        print("transformers is not installed: the residual model was not compared with LlamaForCausalLM")
        return True
    config = VARIANTS["residual"]
    model = make_checkpoint(program, folder, config)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 50, (2, 13), generator=generator, dtype=torch.int32)
    actual = dump(program, model, tokens, tokens.clone(), folder)
    llama = LlamaForCausalLM.from_pretrained(model, dtype=torch.float64, attn_implementation="eager")
    with torch.no_grad():
        expected = llama(tokens.long()).logits
    difference, _ = worst_difference({"logits": expected}, actual)
    print(f"{'residual, transformers LlamaForCausalLM':42}   1 tensor   worst {difference:.1e} (logits)")
    # transformers computes the rotation angles in float32 whatever the model's dtype.
    return difference <= 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/attnres", help="the attnres program")
    program = pathlib.Path(parser.parse_args().program).resolve()
    good = True
    for name, config in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            good &= check_variant(program, name, config, pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        good &= check_against_transformers(program, pathlib.Path(folder))
    print("all agree" if good else "FAILED: a difference is larger than its tolerance")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
