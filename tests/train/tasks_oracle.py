#!/usr/bin/env python3
"""attnres eval --task against a plain scoring loop over transformers' LlamaForCausalLM.

Makes a small random Llama model with a tokenizer of its own and examples in the three published formats,
scores them both ways, and compares counts, losses (1e-5) and accuracies.  A folder of a real model and one of
the published files (data/evaluation_sets.py fetches them) may be given instead.  Exit status 77 (skipped)
where torch, transformers or tokenizers are missing.

  python3 tests/train/tasks_oracle.py --program build/attnres
  python3 tests/train/tasks_oracle.py --program build/attnres --model SmolLM2-135M --data evaluation --window 1024
"""
import argparse
import json
import lzma
import math
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as error:
    print(f"skipped: {error}; by hand: pip install torch transformers tokenizers")
    sys.exit(77)

CORPUS = (pathlib.Path(__file__).resolve().parents[2] / "data/corpus/austen.txt").read_text()


def make_model(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([CORPUS[:300_000]], trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=640, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, rms_norm_eps=1e-5,
        bos_token_id=None, eos_token_id=None))
    model.save_pretrained(folder)


def log_probabilities(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def score(model, context, continuation, window):
    """Sum of log probabilities of the continuation, and whether each of its tokens is the likeliest."""
    ids = (context + continuation)[-(window + 1):]
    table = log_probabilities(model, ids[:-1])[-len(continuation):]
    total = sum(table[i, token].item() for i, token in enumerate(continuation))
    return total, table.argmax(-1).tolist() == continuation


def pair(tokenizer, context, continuation):
    whole = tokenizer.encode(context + continuation).ids
    cut = min(len(tokenizer.encode(context).ids), len(whole) - 1)
    return whole[:cut], whole[cut:]


def lambada(model, tokenizer, examples, window):
    results = [score(model, *pair(tokenizer, text[:text.rindex(" ")], text[text.rindex(" "):]), window)
               for text in examples]
    return {"accuracy": sum(greedy for _, greedy in results) / len(results),
            "perplexity": math.exp(-sum(total for total, _ in results) / len(results))}


def clean(text):
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def hellaswag(model, tokenizer, examples, window):
    right = right_norm = 0
    for e in examples:
        query = clean(e["activity_label"] + ": " + e["ctx_a"] + " " + e["ctx_b"].capitalize())
        endings = [clean(ending) for ending in e["endings"]]
        totals = [score(model, *pair(tokenizer, query, " " + ending), window)[0] for ending in endings]
        norms = [total / len(ending) for total, ending in zip(totals, endings)]
        right += totals.index(max(totals)) == e["label"]
        right_norm += norms.index(max(norms)) == e["label"]
    return {"acc": right / len(examples), "acc_norm": right_norm / len(examples)}


def wikitext(model, tokenizer, text, window, stride):
    ids = tokenizer.encode(text).ids
    loss, scored, done, begin = 0.0, 0, 1, 0
    while done < len(ids):
        piece = ids[begin:begin + window + 1]
        table = log_probabilities(model, piece[:-1])
        for position in range(done, begin + len(piece)):
            loss -= table[position - begin - 1, ids[position]].item()
            scored += 1
        done = begin + len(piece)
        begin += stride
    return {"loss": loss / scored, "tokens": len(ids), "scored": scored,
            "word_perplexity": math.exp(loss / len(text.split())),
            "bits_per_byte": loss / math.log(2) / len(text.encode())}


def make_examples(model, tokenizer):
    """LAMBADA: every other last word is the model's own guess, so that some are right."""
    sentences = [s.replace("\n", " ").strip() for s in re.split(r"(?<=[.!?])\s", CORPUS[400_000:460_000])]
    sentences = [s for s in sentences if 40 < len(s) < 300 and "[" not in s]
    texts = []
    for i, sentence in enumerate(sentences[:60]):
        context = sentence[:sentence.rindex(" ")]
        guess = tokenizer.decode([log_probabilities(model, tokenizer.encode(context).ids)[-1].argmax().item()])
        texts.append(context + guess if i % 2 and re.fullmatch(r" \S+", guess) else sentence)
    swag = [{"ind": i, "activity_label": "Reading", "ctx_a": a, "ctx_b": "the élan [step] of it", "ctx": "",
             "endings": [b, c + " [title] x", d, "short."], "label": i % 4, "split": "val"}
            for i, (a, b, c, d) in enumerate(zip(sentences[0::4], sentences[1::4], sentences[2::4], sentences[3::4]))]
    return texts, swag[:12]


def hellaswag_of_lines(lines):
    """From six cleaned lines a task, "activity: context", label, endings, to what the published file has."""
    for i in range(0, len(lines) - 5, 6):
        activity, context = lines[i].split(": ", 1)
        yield {"activity_label": activity, "ctx_a": context, "ctx_b": "", "label": int(lines[i + 1]),
               "endings": lines[i + 2:i + 6]}


def published_examples(folder, count):
    """The first examples of each of the published files."""
    texts = [json.loads(line)["text"] for line in (folder / "lambada_test.jsonl").open()]
    if (folder / "hellaswag_val.jsonl").exists():
        swag = [json.loads(line) for line in (folder / "hellaswag_val.jsonl").open()]
    else:
        swag = list(hellaswag_of_lines(lzma.open(folder / "hellaswag_val_full.txt.xz", "rt",
                                                 encoding="utf-8").read().splitlines()))
    return texts[:count], swag[:count], (folder / "wiki.test.raw").read_text()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", type=pathlib.Path, help="Llama folder, instead of a random one")
    parser.add_argument("--data", type=pathlib.Path, help="folder of the published files, instead of made ones")
    parser.add_argument("--examples", type=int, default=40, help="of the published files (40)")
    parser.add_argument("--bytes", type=int, default=6000, help="of text for wikitext2 (6000)")
    parser.add_argument("--window", type=int, default=128, help="tokens (128)")
    parser.add_argument("--stride", type=int, default=48, help="of wikitext2's windows (48)")
    parser.add_argument("--batches", default="1,5", help="batch sizes to try (1,5)")
    arguments = parser.parse_args()
    window = arguments.window
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        source = arguments.model or folder / "model"
        if arguments.model is None:
            source.mkdir()
            make_model(source)
        model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
        tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
        if arguments.data:
            texts, swag, text = published_examples(arguments.data, arguments.examples)
            text = text[:arguments.bytes]
        else:
            texts, swag = make_examples(model, tokenizer)
            text = CORPUS[500_000:500_000 + arguments.bytes]
        (folder / "lambada.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
        (folder / "hellaswag.jsonl").write_text("".join(json.dumps(e) + "\n" for e in swag))
        (folder / "wikitext2.txt").write_text(text)
        expected = {"lambada.jsonl": lambada(model, tokenizer, texts, window),
                    "hellaswag.jsonl": hellaswag(model, tokenizer, swag, window),
                    "wikitext2.txt": wikitext(model, tokenizer, text, window, arguments.stride)}
        good = True
        for file, values in expected.items():
            for batch in arguments.batches.split(","):
                subprocess.run([arguments.program, "eval", "--checkpoint", source, "--task", file.split(".")[0],
                                "--data", folder / file, "--seq", str(window), "--stride", str(arguments.stride),
                                "--batch", batch, "--json", folder / "result.json"], check=True,
                               stdout=subprocess.DEVNULL)
                found = json.loads((folder / "result.json").read_text())
                for name, value in values.items():
                    exact = name in ("accuracy", "acc", "acc_norm", "tokens", "scored")
                    # A perplexity is e to a loss: it is the loss that agrees to 1e-5.
                    measure = math.log if "perplexity" in name else float
                    same = found[name] == value if exact else math.isclose(
                        measure(found[name]), measure(value), rel_tol=1e-5)
                    good &= same
                    print(f"{file:16} batch {batch}  {name:16} {found[name]:<20.10g} {value:<20.10g} "
                          f"{'ok' if same else 'DIFFERENT'}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
