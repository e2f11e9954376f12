#!/usr/bin/env python3
"""Routing alone in PyTorch, eager and compiled, at the shapes of benchmark_depth: bfloat16, on a GPU.

Each site stacks its sources and applies  a = softmax(<w, v / RMS(v)>), o = sum a v  per head, forward
and backward, as a straightforward module would.  Prints medians of CUDA event times.

  python3 tests/benchmark/pytorch_depth.py [--repetitions 10]

Needs PyTorch with CUDA:  pip install torch
"""
import argparse
import statistics
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"{error}; by hand: pip install torch")

# name, sublayers, channels, heads, tokens
MODELS = [("100M", 24, 512, 4, 16384), ("350M", 48, 1024, 8, 8192), ("1B", 72, 1280, 8, 4096),
          ("attnres", 8, 7168, 1, 8192)]


def read_site(sources, w, heads):
    v = torch.stack(sources)  # [S, N, D]
    split = (*v.shape[:2], heads, -1)
    keys = v.float() * torch.rsqrt(v.float().square().mean(-1, keepdim=True) + 1e-6)
    logits = (keys * w).view(split).sum(-1)
    a = logits.softmax(0).unsqueeze(-1)
    return (a * v.float().view(split)).sum(0).flatten(1).to(v.dtype)


def chain(read, sources, queries, gradients, heads):
    """All sites forward, then backward from a given gradient per site."""
    outputs = [read(sources[: site + 1], w, heads) for site, w in enumerate(queries)]
    torch.autograd.backward(outputs, gradients)
    for tensor in (*sources, *queries):
        tensor.grad = None


def median_ms(run, repetitions):
    for _ in range(3):
        run()
    times = []
    for _ in range(repetitions):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(read, model, repetitions):
    _, sublayers, channels, heads, tokens = model
    def rows():
        return torch.randn(tokens, channels, device="cuda", dtype=torch.bfloat16)
    sources = [rows().requires_grad_() for _ in range(sublayers + 1)]
    queries = [(torch.randn(channels, device="cuda") / channels**0.5).requires_grad_()
               for _ in range(sublayers + 1)]
    gradients = [rows() for _ in range(sublayers + 1)]
    return median_ms(lambda: chain(read, sources, queries, gradients, heads), repetitions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--compile", nargs="*", default=["100M", "attnres"],
                        help="models to compile as well (default: 100M attnres)")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here")
    # Every number of sources is a shape of its own, compiled once: that takes minutes for deep models.
    torch._dynamo.config.cache_size_limit = 256
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print(f"{'model':10} {'eager ms':>10} {'compiled ms':>12}   forward + backward of all sites")
    for model in MODELS:
        row = []
        for compiled in (False, True):
            if compiled and model[0] not in arguments.compile:
                row.append("-")
                continue
            torch._dynamo.reset()
            read = torch.compile(read_site, dynamic=False) if compiled else read_site
            try:
                row.append(f"{measure(read, model, arguments.repetitions):.2f}")
            except Exception as error:  # a row that fails stays in the table
                row.append(type(error).__name__)
            torch.cuda.empty_cache()
        print(f"{model[0]:10} {row[0]:>10} {row[1]:>12}", flush=True)


if __name__ == "__main__":
    main()
