#!/usr/bin/env python3
"""Training corpora as token shards: downloaded, checked, tokenized.

  python3 data/corpora.py                              # what there is: sizes, licences
  python3 data/corpora.py tinystories --out corpora/tinystories
  python3 data/corpora.py fineweb-edu --out corpora/fineweb-edu --files 2
  python3 data/corpora.py folder --source webtext --out corpora/webtext
  attnres train --preset 100m --data "corpora/fineweb-edu/train/*/*.bin" \\
                --val-data "corpora/fineweb-edu/val/*/*.bin" --out runs/100m

Each source file (.parquet, .jsonl, .txt, the last two also compressed) goes the whole way by itself: fetched
from the Hugging Face hub at a pinned revision, compared with the hub's checksum, turned into jsonl, tokenized
by `attnres tokenize` into a folder of its own, and deleted.  So the disk holds one source file and the shards,
and the same command, run again after an interruption, goes on where it stopped.  `folder` takes files of your
own, and leaves them; its subfolders and files named val* are the validation split.

Needs:  pip install huggingface_hub pyarrow
"""
import argparse
import dataclasses
import fnmatch
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

from evaluation_sets import sha256_of


@dataclasses.dataclass(frozen=True)
class Corpus:
    repo: str
    revision: str  # a commit, so that the same command gives the same tokens; "" for what is newest
    folder: str  # of the repository
    train: str  # names of training files
    validation: str
    licence: str
    about: str


TEXT, COMPRESSED = (".jsonl", ".txt"), (".gz", ".bz2", ".zst", ".lz4")
UNFINISHED = ".unfinished"  # folder within --out: downloads, and text on its way

CORPORA = {
    "fineweb-edu": Corpus(
        "HuggingFaceFW/fineweb-edu", "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9", "sample/10BT",
        "*.parquet", "013_00000.parquet", "ODC-By 1.0",
        "FineWeb-Edu, sample of 10 G tokens: 14 files, 28.5 GB, 20 GB of shards (arXiv 2406.17557)"),
    "tinystories": Corpus(
        "roneneldan/TinyStories", "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64", "",
        "TinyStoriesV2-GPT4-train.txt", "TinyStoriesV2-GPT4-valid.txt", "CDLA-Sharing 1.0",
        "TinyStories, written by GPT-4: 2 files, 2.3 GB, 1.1 GB of shards (arXiv 2305.07759)"),
    "fineweb-edu-shards": Corpus(
        "kjj0/finewebedu10B-gpt2", "", "", "finewebedu_train_*.bin", "finewebedu_val_*.bin", "ODC-By 1.0",
        "FineWeb-Edu, ready-made shards of GPT-2 tokens: 100 files of 200 MB"),
}


class CorpusError(Exception):
    """One line: what is wrong, where, and what to do."""


def one_line(error):
    return (str(error) or type(error).__name__).splitlines()[0]


def is_compressed_text(path):
    return path.suffix in COMPRESSED and path.with_suffix("").suffix in TEXT


@dataclasses.dataclass(frozen=True)
class SourceFile:
    path: str  # within its repository or folder
    split: str  # train or val
    bytes: int
    sha256: str = ""  # "": nothing to compare with

    @property
    def name(self):
        """Of the folder that its shards get: the path without its suffixes, folders joined by "-"."""
        name = "-".join(pathlib.PurePath(self.path).parts)
        for suffixes in (COMPRESSED, (*TEXT, ".parquet", ".bin")):
            for suffix in suffixes:
                name = name.removesuffix(suffix)
        return name


class Hub:
    """Files of a data set on the Hugging Face hub."""

    def __init__(self, corpus, downloads):
        try:
            import huggingface_hub
        except ImportError as error:
            raise CorpusError(f"{error}; by hand: pip install huggingface_hub pyarrow") from error
        self.hub, self.corpus, self.downloads = huggingface_hub, corpus, downloads
        self.where = {"repo_id": corpus.repo, "revision": corpus.revision or None, "repo_type": "dataset"}

    def ask(self, function, **arguments):
        """The hub's library passes on the errors of several others: each is one line here."""
        try:
            return function(**self.where, **arguments)
        except Exception as error:  # pylint: disable=broad-exception-caught
            raise CorpusError(f"{self.corpus.repo}: {one_line(error)}; "
                              "the same command goes on from here") from error

    def files(self):
        corpus, found = self.corpus, []
        for entry in self.ask(lambda **where: list(self.hub.HfApi().list_repo_tree(**where)),
                              path_in_repo=corpus.folder or None):
            name = entry.path.rsplit("/", 1)[-1]
            validation = fnmatch.fnmatch(name, corpus.validation)
            if validation or fnmatch.fnmatch(name, corpus.train):
                found.append(SourceFile(entry.path, "val" if validation else "train", entry.size,
                                        entry.lfs.sha256 if entry.lfs else ""))
        return found

    def fetch(self, file):
        return pathlib.Path(self.ask(self.hub.hf_hub_download, filename=file.path, local_dir=self.downloads))

    def discard(self, path):
        path.unlink()


class Folder:
    """Files that are already here, which stay; `out` may lie among them."""

    def __init__(self, folder, out):
        if not folder.is_dir():
            raise CorpusError(f"{folder}: is no folder")
        self.folder, self.out = folder, out.resolve()

    def files(self):
        found = []
        for path in sorted(self.folder.rglob("*")):
            usable = path.suffix in (*TEXT, ".parquet", ".bin") or is_compressed_text(path)
            if usable and path.is_file() and self.out not in path.resolve().parents:
                inside = path.relative_to(self.folder)
                split = "val" if any(part.startswith("val") for part in inside.parts) else "train"
                found.append(SourceFile(str(inside), split, path.stat().st_size))
        return found

    def fetch(self, file):
        return self.folder / file.path

    def discard(self, path):
        pass


def check(path, file):
    if not file.sha256:
        return
    found = sha256_of(path)
    if found != file.sha256:
        raise CorpusError(f"{path}: has sha256 {found}, the hub says {file.sha256}; "
                          "delete it and run the command again")


def arrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(f"{error}; by hand: pip install pyarrow") from error
    return pyarrow


def write_jsonl(parquet, key, out):
    """The column `key` of a parquet file, an object per line."""
    opened = arrow().parquet.ParquetFile(parquet)
    if key not in opened.schema_arrow.names:
        raise CorpusError(f"{parquet}: has no column {key}; there are {', '.join(opened.schema_arrow.names)}")
    with open(out, "w", encoding="utf-8") as file:
        for batch in opened.iter_batches(batch_size=1000, columns=[key]):
            for text in batch.column(0).to_pylist():
                if text is not None:
                    file.write(json.dumps({key: text}, ensure_ascii=False) + "\n")


def decompress(path, out):
    with arrow().input_stream(str(path), compression="detect") as stream, open(out, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def readable(path, key, folder):
    """The file as `attnres tokenize` reads it: itself, or a copy in `folder`."""
    if path.suffix in TEXT:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / (path.stem + ".jsonl" if path.suffix == ".parquet" else path.stem)
    if not out.exists():  # what has its name is whole
        part = out.with_name(out.name + ".part")
        try:
            if path.suffix == ".parquet":
                write_jsonl(path, key, part)
            else:
                decompress(path, part)
        except ValueError as error:  # pyarrow's errors are of this kind
            raise CorpusError(f"{path}: {one_line(error)}") from error
        os.replace(part, out)
    return out


def is_complete(shards, job):
    """Whether the shards are there; a folder that another tokenizer or key made is refused."""
    path = shards / "manifest.json"
    if not path.exists():
        return False
    try:
        manifest = json.loads(path.read_text())
        made_with = {name: manifest["job"][name] for name in ("tokenizer", "key")}
        complete = manifest["complete"]
    except (ValueError, KeyError) as error:
        raise CorpusError(f"{path}: is no manifest of `attnres tokenize`; another --out keeps it") from error
    if made_with != {"tokenizer": job.tokenizer, "key": job.key}:
        raise CorpusError(f"{path}: was made with {made_with}; another --out keeps it")
    return complete


def take_shard(file, source, target):
    """A ready-made shard as it is."""
    if target.exists():
        return
    path = source.fetch(file)
    check(path, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    shutil.copy(path, part)
    os.replace(part, target)
    source.discard(path)


def prepare(file, source, job):
    """One source file into job.out/SPLIT/NAME/*.bin."""
    shards = job.out / file.split / file.name
    if file.path.endswith(".bin"):
        take_shard(file, source, shards.with_name(shards.name + ".bin"))
        return
    if is_complete(shards, job):
        return
    path = source.fetch(file)
    check(path, file)
    scratch = job.out / UNFINISHED / file.split / file.name
    text = readable(path, job.key, scratch)
    if "," in str(text):
        raise CorpusError(f"{text}: has a comma in its name, which separates files; rename it")
    done = subprocess.run([job.program, "tokenize", "--data", glob.escape(str(text)), "--key", job.key,
                           "--tokenizer", job.tokenizer, "--out", shards], check=False)
    if done.returncode != 0:
        raise CorpusError(f"{path}: not tokenized (see above); the same command goes on from here")
    shutil.rmtree(scratch, ignore_errors=True)
    source.discard(path)


def wanted(files, limit):
    """The first `limit` training files (0: all) and every validation file."""
    train = [file for file in files if file.split == "train"]
    return train[:limit or None] + [file for file in files if file.split == "val"]


def write_provenance(files, job):
    entry = {"corpus": job.name, "key": job.key, "tokenizer": job.tokenizer,
             "files": [dataclasses.asdict(file) for file in files]}
    if job.name in CORPORA:
        entry |= dataclasses.asdict(CORPORA[job.name])
    (job.out / "corpus.json").write_text(json.dumps(entry, indent=2) + "\n")


def prepare_all(source, job):
    files = source.files()
    if not files:
        raise CorpusError(f"{job.name}: no .parquet, .jsonl, .txt or .bin files found")
    files = wanted(files, job.files)
    targets = {}
    for file in files:
        other = targets.setdefault((file.split, file.name), file.path)
        if other != file.path:
            raise CorpusError(f"{file.path} and {other} would share the folder {file.split}/{file.name}; rename one")
    job.out.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files, 1):
        print(f"{number}/{len(files)}  {file.path}  {file.bytes / 1e6:.1f} MB  {file.split}", flush=True)
        prepare(file, source, job)
    shutil.rmtree(job.out / UNFINISHED, ignore_errors=True)
    write_provenance(files, job)
    print(f"complete: {job.out}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"{', '.join(CORPORA)} or folder")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the shards")
    parser.add_argument("--source", type=pathlib.Path, help="folder of source files, with the name folder")
    parser.add_argument("--files", type=int, default=0, help="only the first so many training files")
    parser.add_argument("--tokenizer", default="gpt2", help="as of `attnres tokenize` (gpt2)")
    parser.add_argument("--key", default="text", help="column or string that is the document (text)")
    parser.add_argument("--program", type=pathlib.Path, help="attnres (build/attnres)",
                        default=pathlib.Path(__file__).resolve().parents[1] / "build/attnres")
    job = parser.parse_args()
    if job.name is not None:
        if job.name not in CORPORA and job.name != "folder":
            parser.error(f"no corpus is called {job.name}; there are {', '.join(CORPORA)} and folder")
        if job.out is None:
            parser.error("--out is needed")
        if (job.name == "folder") != (job.source is not None):
            parser.error("--source goes with the name folder, and folder needs it")
        if not job.program.exists():
            parser.error(f"{job.program}: no such program; build it, or name it with --program")
    return job


def main():
    job = parse()
    if job.name is None:
        for name, corpus in CORPORA.items():
            print(f"{name:19} {corpus.licence:16} {corpus.about}")
        return
    if job.source:
        prepare_all(Folder(job.source, job.out), job)
    else:
        prepare_all(Hub(CORPORA[job.name], job.out / UNFINISHED / "downloads"), job)


if __name__ == "__main__":
    try:
        main()
    except (CorpusError, OSError) as error:
        sys.exit(f"corpora: {error}")
    except KeyboardInterrupt:
        sys.exit("corpora: interrupted; the same command goes on from here")
