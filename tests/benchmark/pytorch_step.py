#!/usr/bin/env python3
"""The quickstart training step in eager PyTorch beside the same step of this project, in one go.

Both take float32 steps of 4 x 256 tokens on the same cores: loss, gradients, clipping, AdamW.  The
two programs alternate, and the median over all rounds counts, because machines are noisy.

  python3 tests/benchmark/pytorch_step.py --benchmark build/benchmark_reference

Needs PyTorch:  pip install torch
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"{error}; by hand: pip install torch")

D, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCABULARY, T, SEQUENCES = 128, 6, 4, 2, 32, 384, 320, 256, 4
EPS = 1e-6


def rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        def linear(inputs, outputs):
            return torch.nn.Linear(inputs, outputs, bias=False)
        self.q, self.o = linear(D, HEADS * HEAD_DIM), linear(HEADS * HEAD_DIM, D)
        self.k, self.v = linear(D, KV_HEADS * HEAD_DIM), linear(D, KV_HEADS * HEAD_DIM)
        self.gate, self.up, self.down = linear(D, MLP), linear(D, MLP), linear(MLP, D)
        self.attention_norm, self.mlp_norm = torch.nn.RMSNorm(D, EPS), torch.nn.RMSNorm(D, EPS)

    def attention(self, x, cosine, sine):
        x = self.attention_norm(x)
        q = rotate(self.q(x).view(-1, T, HEADS, HEAD_DIM).transpose(1, 2), cosine, sine)
        k = rotate(self.k(x).view(-1, T, KV_HEADS, HEAD_DIM).transpose(1, 2), cosine, sine)
        v = self.v(x).view(-1, T, KV_HEADS, HEAD_DIM).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(mixed.transpose(1, 2).flatten(2))

    def mlp(self, x):
        x = self.mlp_norm(x)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Model(torch.nn.Module):
    """The residual model (depth_heads 0), or full depth attention with so many heads, stacked eagerly."""

    def __init__(self, depth_heads):
        super().__init__()
        self.heads = depth_heads
        self.embedding = torch.nn.Embedding(VOCABULARY, D)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(D, EPS)
        if depth_heads:
            sites = 2 * LAYERS + 1
            self.query = torch.nn.Parameter(torch.zeros(sites, depth_heads, D // depth_heads))
            self.gain = torch.nn.Parameter(torch.ones(sites, D))
        angle = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        angle = torch.cat([angle, angle], -1)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def read(self, site, outputs):
        stack = torch.stack(outputs)
        keys = F.rms_norm(stack, (D,), self.gain[site], EPS).unflatten(-1, (self.heads, -1))
        weights = (keys * self.query[site]).sum(-1).softmax(0)
        return (weights.unsqueeze(-1) * stack.unflatten(-1, (self.heads, -1))).sum(0).flatten(-2)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        outputs = [x]
        for b, layer in enumerate(self.layers):
            for half, sublayer in enumerate((lambda y: layer.attention(y, self.cosine, self.sine), layer.mlp)):
                if self.heads:
                    outputs.append(sublayer(self.read(2 * b + half, outputs)))
                else:
                    x = x + sublayer(x)
        x = self.norm(self.read(2 * LAYERS, outputs) if self.heads else x)
        return F.cross_entropy((x @ self.embedding.weight.T).flatten(0, 1), targets.flatten())


def pytorch_tokens_per_second(model, optimizer, seconds):
    tokens = torch.randint(0, 257, (SEQUENCES, T))
    targets = torch.randint(0, 257, (SEQUENCES, T))
    rates, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.append(SEQUENCES * T / (time.perf_counter() - start))
    return rates


def attnres_tokens_per_second(benchmark, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    output = subprocess.run(
        [benchmark, "--benchmark_filter=^step/(residual|mhar)/", "--benchmark_format=json",
         "--benchmark_repetitions=8", "--benchmark_min_time=0.3",
         "--benchmark_enable_random_interleaving=true"], check=True, capture_output=True, env=environment).stdout
    rates = {}
    for row in json.loads(output)["benchmarks"]:
        if row["run_type"] == "iteration":
            name = row["name"].split("/")[1]
            rates.setdefault(name, []).append(row["items_per_second"])
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", default="build/benchmark_reference", help="this project's benchmark program")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="CPU threads of both")
    parser.add_argument("--rounds", type=int, default=4, help="alternations of the two programs")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    models = {"residual": Model(0), "mhar": Model(2)}
    optimizers = {name: torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.1) for name, m in models.items()}
    ours, theirs = ({name: [] for name in models} for _ in range(2))
    for _ in range(arguments.rounds):
        for name, rates in attnres_tokens_per_second(arguments.benchmark, arguments.threads).items():
            ours[name] += rates
        for name, model in models.items():
            theirs[name] += pytorch_tokens_per_second(model, optimizers[name], 4)
    ours = {name: statistics.median(rates) for name, rates in ours.items()}
    theirs = {name: statistics.median(rates) for name, rates in theirs.items()}
    print(f"tokens/s, {arguments.threads} threads, PyTorch {torch.__version__}")
    print(f"{'model':10}{'attnres.cpp':>14}{'eager PyTorch':>16}{'ratio':>8}")
    for name in models:
        print(f"{name:10}{ours[name]:14.0f}{theirs[name]:16.0f}{ours[name] / theirs[name]:8.2f}")
    print(f"MHAR / residual: {ours['mhar'] / ours['residual']:.2f} here, {theirs['mhar'] / theirs['residual']:.2f} in PyTorch")


if __name__ == "__main__":
    main()
