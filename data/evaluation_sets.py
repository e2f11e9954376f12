#!/usr/bin/env python3
"""Fetches the evaluation sets that `attnres eval --task` reads, in their published formats.

  python3 data/evaluation_sets.py                      # what there is: sizes, licences
  python3 data/evaluation_sets.py all --out evaluation
  python3 data/evaluation_sets.py lambada hellaswag --out evaluation

A download that was cut short goes on where it stopped; what arrives is compared with a checksum before it
gets its name, and a file that is already right is not fetched again.  Needs nothing but Python.
"""
import argparse
import dataclasses
import hashlib
import http.client
import os
import pathlib
import sys
import urllib.error
import urllib.request
import zipfile
import zlib


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    file: str  # what `attnres eval` reads
    sha256: str  # of that file
    url: str
    bytes: int  # of the download
    licence: str
    about: str
    member: str = ""  # the file's name inside the download, if that is a zip archive


SETS = {
    "wikitext2": EvaluationSet(
        file="wiki.test.raw", sha256="173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
        url="https://huggingface.co/datasets/ggml-org/ci/resolve/"
            "927b3642933080f1b0e811e2f916e14c292992f9/wikitext-2-raw-v1.zip",
        bytes=4_721_645, member="wikitext-2-raw/wiki.test.raw", licence="CC BY-SA 3.0, GFDL",
        about="WikiText-2 raw, test split (Merity et al. 2016, arXiv 1609.07843)"),
    "lambada": EvaluationSet(
        file="lambada_test.jsonl", sha256="4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
        url="https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
        bytes=1_819_752, licence="MIT",
        about="LAMBADA, OpenAI's variant, 5,153 texts (Paperno et al. 2016, arXiv 1606.06031)"),
    "hellaswag": EvaluationSet(
        file="hellaswag_val.jsonl", sha256="0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588",
        url="https://raw.githubusercontent.com/rowanz/hellaswag/master/data/hellaswag_val.jsonl",
        bytes=12_246_618, licence="MIT",
        about="HellaSwag, validation split, 10,042 tasks (Zellers et al. 2019, arXiv 1905.07830)"),
}


class DownloadError(Exception):
    """One line: what is wrong, and what to do."""


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def copy(response, file, done, total):
    show = sys.stderr.isatty()
    while block := response.read(1 << 16):
        file.write(block)
        done += len(block)
        if show:
            print(f"\r{done * 100 // total:3} %  {done / 1e6:.1f} of {total / 1e6:.1f} MB", end="", file=sys.stderr)
    if show:
        print("\r\033[K", end="", file=sys.stderr)
    return done


def download(url, path, total):
    """url as `path`, `total` bytes long.  What has arrived of it lies beside it as *.part."""
    part = path.with_name(path.name + ".part")
    done = part.stat().st_size if part.exists() else 0
    if done > total:
        part.unlink()
        done = 0
    if done < total:
        request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                goes_on = response.status == http.HTTPStatus.PARTIAL_CONTENT
                with open(part, "ab" if goes_on else "wb") as file:
                    done = copy(response, file, done if goes_on else 0, total)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {error}; run it again, it goes on where it stopped") from error
    if done < total:
        raise DownloadError(f"{url}: ended after {done} of {total} bytes; run it again, it goes on where it stopped")
    os.replace(part, path)


def write_member(archive, member, path):
    try:
        with zipfile.ZipFile(archive) as opened:
            path.write_bytes(opened.read(member))
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        archive.unlink()
        raise DownloadError(f"{archive.name}: {error}; deleted, run it again") from error
    archive.unlink()


def fetch(entry, folder):
    """entry's file in `folder`; returns whether it had to be fetched."""
    path = folder / entry.file
    if path.exists() and sha256_of(path) == entry.sha256:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    arrived = path.with_name(path.name + ".unchecked")
    if entry.member:
        archive = path.with_name(path.name + ".zip")
        download(entry.url, archive, entry.bytes)
        write_member(archive, entry.member, arrived)
    else:
        download(entry.url, arrived, entry.bytes)
    found = sha256_of(arrived)
    if found != entry.sha256:
        arrived.unlink()
        raise DownloadError(f"{entry.url}: has sha256 {found}, not {entry.sha256}; nothing was kept")
    os.replace(arrived, path)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SETS)} or all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("evaluation"), help="folder (evaluation)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SETS and name != "all"]
    if unknown:
        parser.error(f"no set is called {unknown[0]}; there are {', '.join(SETS)}")
    if not arguments.names:
        for name, entry in SETS.items():
            print(f"{name:10} {entry.bytes / 1e6:6.1f} MB  {entry.licence:19} {entry.about}")
    names = SETS if "all" in arguments.names else arguments.names
    for name in names:
        fetched = fetch(SETS[name], arguments.out)
        print(f"{arguments.out / SETS[name].file}: {'fetched, checksum right' if fetched else 'already there'}")


if __name__ == "__main__":
    try:
        main()
    except (DownloadError, OSError) as error:
        sys.exit(f"evaluation_sets: {error}")
    except KeyboardInterrupt:
        sys.exit("evaluation_sets: interrupted; the same command goes on from here")
