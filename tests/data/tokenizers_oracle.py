#!/usr/bin/env python3
"""attnres tokenize against Hugging Face's own tokenizers library, id by id.

Trains small byte-level BPE tokenizers with the pre-tokenizers of GPT-2, SmolLM, Llama 3 and Qwen on the
bundled corpus, saves each as tokenizer.json, and encodes texts full of Unicode with both.  Exit status 77
(skipped) where the library is missing.

  python3 tests/data/tokenizers_oracle.py --program build/attnres
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
except ImportError as error:
    print(f"skipped: {error}; by hand: pip install tokenizers")
    sys.exit(77)

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "data/corpus/austen.txt"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
END = "<|endoftext|>"


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {
    "GPT-2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "SmolLM": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)]), None),
    "Llama 3": (split_then_bytes(LLAMA3), None),
    "Qwen": (split_then_bytes(QWEN), normalizers.NFC()),
}


def train(pre_tokenizer, normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([CORPUS.read_text()[:1_000_000], "你好 世界 été Ünï 123 4567 \n\n"], trainer)
    return tokenizer


def texts():
    """Real text, and what is likely to be cut wrongly: cases, white space of every kind, marks, digits."""
    yield CORPUS.read_text()[1_000_000:1_200_000]
    yield "I'VE we'Ll it'S don't  l'été\u2019s 'tis ''s"
    yield "a\u00a0b\u2003c\u3000d\u180ee\u200bf\x85g\u2028h \t\r\n \r\n\n  i\n  "
    yield "1 22 333 4444 55555 \u0661\u0662\u0663 \u2167 \u00bd x2y3"
    yield "e\u0301 n\u0303 \u1e9b\u0323 \ufb01 \uac00 \u1100\u1161 \u212b"
    yield "\U0001f600\U0001f469\u200d\U0001f4bb \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947"
    generator = random.Random(1)
    alphabet = "aB1 \n\t'.,\u00e9\u0301\u4e16\u0663\u00bd\u3000\u200d\U0001f600-sSd\r"
    for _ in range(400):
        yield "".join(generator.choice(alphabet) for _ in range(generator.randrange(1, 60)))


def ids_of_program(program, folder, documents):
    with open(folder / "texts.jsonl", "w", encoding="utf-8") as file:
        for text in documents:
            file.write(json.dumps({"text": text}) + "\n")
    subprocess.run([program, "tokenize", "--data", folder / "texts.jsonl", "--tokenizer",
                    folder / "tokenizer.json", "--out", folder / "shards"], check=True,
                   stdout=subprocess.DEVNULL)
    data = (folder / "shards/shard_000000.bin").read_bytes()
    return list(struct.unpack(f"<{(len(data) - 1024) // 2}H", data[1024:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    documents = list(texts())
    good = True
    for name, (pre_tokenizer, normalizer) in KINDS.items():
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            tokenizer = train(pre_tokenizer, normalizer)
            tokenizer.save(str(folder / "tokenizer.json"))
            separator = tokenizer.token_to_id(END)
            expected = []
            for text in documents:
                expected += [separator] + tokenizer.encode(text).ids
            found = ids_of_program(program, folder, documents)
            same = found == expected
            good &= same
            print(f"{name:10} {len(expected):7} ids {'identical' if same else 'DIFFERENT'}")
            if not same:
                first = next(i for i, (a, b) in enumerate(zip(found + [-1], expected + [-1])) if a != b)
                print(f"  first at {first}: {found[first:first + 8]} instead of {expected[first:first + 8]}, "
                      f"which is {tokenizer.decode(expected[first:first + 8])!r}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
