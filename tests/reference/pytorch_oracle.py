#!/usr/bin/env python3
"""pytorch_model.py (float64, autograd) against `attnres dump`, every variant: loss, logits, routing weights and
the gradient of every parameter; and what `attnres export` writes, loaded there in float32.  If transformers is
installed, exported residual models are also loaded as its LlamaForCausalLM and Qwen3ForCausalLM.

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
    from pytorch_model import DepthModel, forward
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
    logits, weights = forward(p, config, tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-1)
    loss.backward()
    expected = {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    expected |= {f"weights.{site}": w.detach() for site, w in weights.items()}
    expected |= {f"grad.{k}": v.grad if v.grad is not None else torch.zeros_like(v) for k, v in p.items()}
    if set(expected) != set(actual):
        raise SystemExit(f"{name}: tensors differ: {sorted(set(expected) ^ set(actual))}")
    difference, where = worst_difference(expected, actual)
    print(f"{name:42} {len(expected):3} tensors  worst {difference:.1e} ({where})")
    return difference <= TOLERANCE


def logits_of_transformers(config, folder, tokens):
    """Logits [B, T, V] in float32, or None where transformers is missing or has no such model."""
    try:
        from transformers import LlamaForCausalLM, Qwen3ForCausalLM
    except ImportError:
        return None
    if config["depth_mixing"]["kind"] != "residual":
        return None
    kind = Qwen3ForCausalLM if config.get("qk_norm") else LlamaForCausalLM
    with torch.no_grad():
        return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")(tokens.long()).logits


def check_export(program, name, config, folder):
    """An exported folder, loaded elsewhere in float32, has the logits of the original in float64 to 1e-4."""
    model = make_checkpoint(program, folder, config)
    tokens = torch.randint(0, 50, (2, 13), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    actual = dump(program, model, tokens, tokens.clone(), folder)
    exported = folder / "exported"
    subprocess.run([program, "export", "--checkpoint", model, "--out", exported], check=True,
                   stdout=subprocess.DEVNULL)
    loaded = {"pytorch_model.py": DepthModel.load(exported)(tokens)[0],
              "transformers": logits_of_transformers(config, exported, tokens)}
    good = True
    for where, logits in loaded.items():
        if logits is not None:
            difference, _ = worst_difference({"logits": logits}, actual)
            good &= difference <= 1e-4
            print(f"{'exported: ' + name:52} worst {difference:.1e} in {where}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/attnres", help="the attnres program")
    program = pathlib.Path(parser.parse_args().program).resolve()
    good = True
    for name, config in VARIANTS.items():
        for check in (check_variant, check_export):
            with tempfile.TemporaryDirectory() as folder:
                good &= check(program, name, config, pathlib.Path(folder))
    print("all agree" if good else "FAILED: a difference is larger than its tolerance")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
