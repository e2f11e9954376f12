#!/usr/bin/env python3
"""data/evaluation_sets.py and data/corpora.py, offline: a server on this machine that breaks off, and small
files of the formats that the real data sets have.  Parquet and compressed files need pyarrow, or are skipped.

  python3 tests/data/downloads_test.py --program build/attnres
"""
import argparse
import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "data"))
import corpora  # noqa: E402
import evaluation_sets  # noqa: E402

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

PROGRAM = None
STORIES = [f"Story {i}. One day, little Anna saw {i} birds.\nThey sang \u201cla la\u201d to her." for i in range(60)]


class BreakingServer(http.server.ThreadingHTTPServer):
    """Serves files by path; an answer ends after `patience` bytes, a promise of more notwithstanding."""

    def __init__(self, files, ranges=True):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.patience, self.asked = files, ranges, None, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        server, content = self.server, self.server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        server.asked.append(asked)
        begin = int(asked.split("=")[1].rstrip("-")) if asked and server.ranges else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][:server.patience])

    def log_message(self, *arguments):  # pylint: disable=arguments-differ
        pass


def zipped(member, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return buffer.getvalue()


class TemporaryFolder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class EvaluationSets(TemporaryFolder):
    def serve(self, content, ranges=True, **changes):
        """A server, and LAMBADA's entry with this content behind it."""
        server = BreakingServer({"set": content}, ranges)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        entry = dataclasses.replace(evaluation_sets.SETS["lambada"], url=server.url("set"), bytes=len(content),
                                    **{"sha256": hashlib.sha256(content).hexdigest(), **changes})
        return server, entry

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_an_interrupted_download_goes_on_where_it_stopped(self):
        content = json.dumps({"text": "word " * 5000}).encode()
        server, entry = self.serve(content)
        server.patience = 9000
        with self.assertRaisesRegex(evaluation_sets.DownloadError, "run it again"):
            evaluation_sets.fetch(entry, self.folder)
        self.assertFalse((self.folder / entry.file).exists())
        server.patience = None
        self.assertTrue(evaluation_sets.fetch(entry, self.folder))
        self.assertEqual(server.asked, [None, "bytes=9000-"])
        self.assertEqual((self.folder / entry.file).read_bytes(), content)
        self.assertEqual(self.names(), [entry.file])

    def test_a_server_without_ranges_starts_again(self):
        content = bytes(range(256)) * 100
        server, entry = self.serve(content, ranges=False)
        server.patience = 1000
        with self.assertRaises(evaluation_sets.DownloadError):
            evaluation_sets.fetch(entry, self.folder)
        server.patience = None
        evaluation_sets.fetch(entry, self.folder)
        self.assertEqual((self.folder / entry.file).read_bytes(), content)

    def test_what_is_already_right_is_not_fetched_again(self):
        server, entry = self.serve(b"content")
        evaluation_sets.fetch(entry, self.folder)
        self.assertFalse(evaluation_sets.fetch(entry, self.folder))
        self.assertEqual(len(server.asked), 1)

    def test_a_wrong_checksum_leaves_nothing(self):
        _, entry = self.serve(b"other content", sha256="0" * 64)
        with self.assertRaisesRegex(evaluation_sets.DownloadError, "nothing was kept"):
            evaluation_sets.fetch(entry, self.folder)
        self.assertEqual(self.names(), [])

    def test_a_missing_page_is_one_line_with_its_address(self):
        server, entry = self.serve(b"content")
        with self.assertRaisesRegex(evaluation_sets.DownloadError, "nothing: HTTP Error 404"):
            evaluation_sets.fetch(dataclasses.replace(entry, url=server.url("nothing")), self.folder)

    def test_an_archive_gives_its_member(self):
        text = " = Robert Boulter = \n".encode() * 50
        entry = evaluation_sets.SETS["wikitext2"]
        _, entry = self.serve(zipped(entry.member, text), file=entry.file, member=entry.member,
                              sha256=hashlib.sha256(text).hexdigest())
        evaluation_sets.fetch(entry, self.folder)
        self.assertEqual((self.folder / "wiki.test.raw").read_bytes(), text)
        self.assertEqual(self.names(), ["wiki.test.raw"])

    def test_pinned_checksums_are_those_of_the_published_files(self):
        published = pathlib.Path(os.environ.get("ATTNRES_TEST_DATA", ROOT.parent / "shared/data")) / "eval"
        if not published.is_dir():
            self.skipTest(f"{published} is not here")
        for entry in (evaluation_sets.SETS["wikitext2"], evaluation_sets.SETS["lambada"]):
            self.assertEqual(evaluation_sets.sha256_of(published / entry.file), entry.sha256)


class Corpora(TemporaryFolder):
    def prepare(self, source, name="corpus", **changes):
        job = argparse.Namespace(**{"name": "folder", "out": self.folder / name, "files": 0, "tokenizer": "gpt2",
                                    "key": "text", "program": PROGRAM, **changes})
        corpora.prepare_all(source, job)
        return job.out

    def stories(self, name="stories.jsonl"):
        source = self.folder / "source"
        source.mkdir(exist_ok=True)
        (source / name).write_text("".join(json.dumps({"text": t, "url": "x"}) + "\n" for t in STORIES))
        return source

    def tokens(self, folder):
        """Shards' bytes by file, without the manifests, which name their inputs."""
        return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.bin"))}

    def expected(self):
        file = self.folder / "plain.jsonl"
        file.write_text("".join(json.dumps({"text": t}) + "\n" for t in STORIES))
        subprocess.run([PROGRAM, "tokenize", "--data", file, "--out", self.folder / "plain"], check=True,
                       stdout=subprocess.DEVNULL)
        return self.tokens(self.folder / "plain")

    def test_jsonl_gives_the_shards_that_tokenize_makes(self):
        out = self.prepare(corpora.Folder(self.stories(), self.folder / "corpus"))
        self.assertEqual(self.tokens(out / "train/stories"), self.expected())
        self.assertEqual(json.loads((out / "corpus.json").read_text())["files"][0]["path"], "stories.jsonl")

    def test_text_of_the_tinystories_form_gives_the_same_documents(self):
        source = self.folder / "source"
        source.mkdir()
        (source / "TinyStories-train.txt").write_text("\n<|endoftext|>\n".join(STORIES) + "\n<|endoftext|>\n")
        out = self.prepare(corpora.Folder(source, self.folder / "corpus"))
        manifest = json.loads((out / "train/TinyStories-train/manifest.json").read_text())
        self.assertEqual(manifest["documents"], len(STORIES))

    def test_validation_files_go_into_a_split_of_their_own(self):
        source = self.stories()
        self.stories("validation.jsonl")
        out = self.prepare(corpora.Folder(source, self.folder / "corpus"))
        self.assertEqual(sorted(str(p.relative_to(out)) for p in out.rglob("*.bin")),
                         ["train/stories/shard_000000.bin", "val/validation/shard_000000.bin"])

    def test_a_second_run_goes_on_with_what_is_missing(self):
        source = self.stories("a.jsonl")
        self.stories("b.jsonl")
        out = self.prepare(corpora.Folder(source, self.folder / "corpus"), files=1)
        first = (out / "train/a/shard_000000.bin").stat().st_mtime_ns
        self.assertFalse((out / "train/b").exists())
        self.prepare(corpora.Folder(source, self.folder / "corpus"))
        self.assertEqual((out / "train/a/shard_000000.bin").stat().st_mtime_ns, first)
        self.assertTrue((out / "train/b/shard_000000.bin").exists())

    def test_ready_made_shards_are_taken_as_they_are(self):
        self.expected()
        out = self.prepare(corpora.Folder(self.folder / "plain", self.folder / "corpus"))
        self.assertEqual(self.tokens(out), self.tokens(self.folder / "plain"))

    def test_names_keep_what_tells_files_apart(self):
        names = [corpora.SourceFile(path, "train", 1).name for path in
                 ("c4-train.00000-of-00512.jsonl.gz", "c4-train.00001-of-00512.jsonl.gz", "v1.0/shard_000000.bin")]
        self.assertEqual(names, ["c4-train.00000-of-00512", "c4-train.00001-of-00512", "v1.0-shard_000000"])
        source = self.stories("a.jsonl")
        self.stories("a.txt")
        with self.assertRaisesRegex(corpora.CorpusError, "a.txt and a.jsonl would share the folder train/a"):
            self.prepare(corpora.Folder(source, self.folder / "corpus"))

    def test_an_output_folder_inside_the_source_is_no_source(self):
        source = self.stories()
        out = self.prepare(corpora.Folder(source, source / "corpus"), "source/corpus")
        self.prepare(corpora.Folder(source, source / "corpus"), "source/corpus")
        self.assertEqual([str(p.relative_to(out)) for p in out.rglob("*.bin")], ["train/stories/shard_000000.bin"])
        self.assertTrue((source / "stories.jsonl").exists())

    def test_shards_of_another_tokenizer_are_not_taken_for_done(self):
        source = self.stories()
        self.prepare(corpora.Folder(source, self.folder / "corpus"))
        with self.assertRaisesRegex(corpora.CorpusError, "was made with .*gpt2"):
            self.prepare(corpora.Folder(source, self.folder / "corpus"), tokenizer="bytes")

    def test_a_file_unlike_its_checksum_is_refused(self):
        folder = corpora.Folder(self.stories(), self.folder / "corpus")
        folder.files = lambda: [corpora.SourceFile("stories.jsonl", "train", 1, "0" * 64)]
        with self.assertRaisesRegex(corpora.CorpusError, "stories.jsonl: has sha256"):
            self.prepare(folder)

    def test_a_document_without_text_is_refused_with_file_and_line(self):
        source = self.stories()
        with open(source / "stories.jsonl", "a", encoding="utf-8") as file:
            file.write('{"title": "no text"}\n')
        done = subprocess.run([sys.executable, ROOT / "data/corpora.py", "folder", "--source", source, "--out",
                               self.folder / "out", "--program", PROGRAM], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"stories.jsonl:{len(STORIES) + 1}", done.stderr)

    def test_the_hub_is_asked_for_the_pinned_revision_and_its_checksums(self):
        content, asked = self.stories().joinpath("stories.jsonl").read_bytes(), []

        def entry(path, lfs=None):
            return types.SimpleNamespace(path=path, size=len(content), lfs=lfs)

        def listing(**where):
            asked.append(where)
            checksum = types.SimpleNamespace(sha256=hashlib.sha256(content).hexdigest())
            return [entry("sample/10BT/000.jsonl", checksum), entry("sample/10BT/001.jsonl", checksum),
                    entry("sample/10BT/009.jsonl", checksum), entry("sample/10BT/README.md")]

        def download(filename, local_dir, **where):
            asked.append(where)
            path = local_dir / filename
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            return str(path)

        corpus = dataclasses.replace(corpora.CORPORA["fineweb-edu"], train="*.jsonl", validation="009.jsonl")
        hub = types.SimpleNamespace(HfApi=lambda: types.SimpleNamespace(list_repo_tree=listing),
                                    hf_hub_download=download)
        with unittest.mock.patch.dict(sys.modules, {"huggingface_hub": hub}):
            out = self.prepare(corpora.Hub(corpus, self.folder / "corpus/.unfinished/downloads"), files=1)
        self.assertEqual({where["revision"] for where in asked}, {corpus.revision})
        self.assertEqual(len(asked), 3)  # the list, one training file, the validation file
        self.assertEqual(sorted(str(p.relative_to(out)) for p in out.rglob("*.bin")),
                         ["train/sample-10BT-000/shard_000000.bin", "val/sample-10BT-009/shard_000000.bin"])
        self.assertEqual(self.tokens(out / "val"), self.expected())
        self.assertFalse((out / ".unfinished").exists())

    @unittest.skipUnless(pyarrow, "pip install pyarrow")
    def test_parquet_of_the_fineweb_form_gives_the_same_shards(self):
        source = self.folder / "source"
        source.mkdir()
        table = pyarrow.table({"text": STORIES, "id": [f"<urn:uuid:{i}>" for i in range(len(STORIES))],
                               "language_score": [0.98] * len(STORIES), "token_count": [31] * len(STORIES)})
        pyarrow.parquet.write_table(table, source / "000_00000.parquet", row_group_size=7)
        out = self.prepare(corpora.Folder(source, self.folder / "corpus"))
        self.assertEqual(self.tokens(out / "train/000_00000"), self.expected())
        self.assertFalse((out / ".unfinished").exists())
        with self.assertRaisesRegex(corpora.CorpusError, "has no column body; there are text, id"):
            self.prepare(corpora.Folder(source, self.folder / "corpus"), "other", key="body")

    @unittest.skipUnless(pyarrow, "pip install pyarrow")
    def test_a_truncated_parquet_file_is_one_line(self):
        source = self.folder / "source"
        source.mkdir()
        pyarrow.parquet.write_table(pyarrow.table({"text": STORIES}), source / "a.parquet")
        (source / "a.parquet").write_bytes((source / "a.parquet").read_bytes()[:-100])
        with self.assertRaisesRegex(corpora.CorpusError, "a.parquet: ") as caught:
            self.prepare(corpora.Folder(source, self.folder / "corpus"))
        self.assertNotIn("\n", str(caught.exception))

    @unittest.skipUnless(pyarrow, "pip install pyarrow")
    def test_compressed_jsonl_gives_the_same_shards(self):
        source = self.stories()
        plain = (source / "stories.jsonl").read_bytes()
        (source / "stories.jsonl").unlink()
        (source / "stories.jsonl.gz").write_bytes(gzip.compress(plain))
        with pyarrow.output_stream(str(source / "val.jsonl.zst"), compression="zstd") as file:
            file.write(plain)
        out = self.prepare(corpora.Folder(source, self.folder / "corpus"))
        self.assertEqual(self.tokens(out / "train/stories"), self.expected())
        self.assertEqual(self.tokens(out / "val/val"), self.expected())


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--program", required=True, type=pathlib.Path)
    known, rest = options.parse_known_args()
    PROGRAM = known.program.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
