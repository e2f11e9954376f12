// Text files to token shards: the same bytes for any number of threads and interruptions.
#include "data/tokenize.h"

#include <nlohmann/json.hpp>

#include "data/documents.h"
#include "data/files.h"
#include "data/token_shard.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

namespace fs = std::filesystem;

const std::atomic<bool> kGoOn{false};

std::vector<std::int32_t> tokens_in(const fs::path& folder) {
  std::vector<std::int32_t> tokens;
  const auto manifest = nlohmann::json::parse(read_file(folder / "manifest.json"));
  for (const auto& shard : manifest["shards"]) {
    const fs::path path = folder / shard["file"].get<std::string>();
    const TokenShard file(path, 50257);
    const auto ids = std::get<std::span<const std::uint16_t>>(file.tokens());
    CHECK(ids.size() == shard["tokens"].get<std::size_t>());
    CHECK(to_hex(file_hash(path)) == shard["fnv1a"].get<std::string>());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  CHECK(manifest["tokens"].get<std::size_t>() == tokens.size());
  CHECK(manifest["complete"].get<bool>());
  return tokens;
}

TokenizeJob job_for(std::vector<fs::path> files, const fs::path& out) {
  TokenizeJob job;
  job.files = std::move(files);
  job.out = out;
  job.shard_tokens = 1000;
  return job;
}

bool finish(const TokenizeJob& job) {
  return tokenize(
      job, [](const auto&) {}, kGoOn);
}

void append(std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& more) {
  ids.push_back(50256);
  ids.insert(ids.end(), more.begin(), more.end());
}

// Three documents of text, two of jsonl, one of them long; and the ids that they must become.
struct Inputs {
  TemporaryFolder folder;
  std::vector<fs::path> files{folder / "a.txt", folder / "b.jsonl"};
  std::vector<std::int32_t> expected;
  Inputs() {
    const std::string book = read_file(ATTNRES_CORPUS).substr(0, 30000);
    write_text(files[0], "One.\n<|endoftext|>\n" + book + "<|endoftext|>\n<|endoftext|>\nThree");
    nlohmann::json line = {{"text", "four \"quoted\" \u4e16\u754c\n"}, {"id", 4}};
    write_text(files[1], line.dump() + "\n\n" + R"({"text": "five"})");
    const Tokenizer gpt2 = Tokenizer::gpt2();
    for (const std::string& document :
         {std::string("One.\n"), book, std::string("Three"),
          std::string("four \"quoted\" \u4e16\u754c\n"), std::string("five")})
      append(expected, gpt2.encode(document));
  }
};

}  // namespace

TEST_CASE("documents become shards, the separator before each") {
  Inputs inputs;
  TemporaryFolder out;
  TokenizeProgress last;
  CHECK(tokenize(
      job_for(inputs.files, out.path()), [&](const auto& p) { last = p; }, kGoOn));
  CHECK(tokens_in(out.path()) == inputs.expected);
  CHECK(last.documents == 5);
  CHECK(last.tokens == inputs.expected.size());
  CHECK(last.bytes == last.all_bytes);
  for (const auto& entry : fs::directory_iterator(out.path()))
    CHECK(entry.path().extension() != ".tmp");
}

TEST_CASE("a long document in parts has the ids of the whole") {
  TemporaryFolder out;
  TokenizeJob job = job_for({ATTNRES_CORPUS}, out.path());
  job.shard_tokens = 400000;
  const std::string text = read_file(ATTNRES_CORPUS);
  DocumentReader reader(ATTNRES_CORPUS, "text");
  DocumentPart part;
  std::string rebuilt;
  long parts = 0, documents = 0;
  while (reader.next(part)) {
    ++parts;
    documents += part.begins_document;
    if (part.begins_document && parts > 1) rebuilt += "<|endoftext|>\n";
    CHECK(part.text.size() < (1 << 20) + 4096);
    rebuilt += part.text;
  }
  if (!text.ends_with("<|endoftext|>\n")) CHECK(rebuilt == text);
  CHECK(parts >= 4);
  CHECK(finish(job));
  std::vector<std::int32_t> expected;
  const Tokenizer gpt2 = Tokenizer::gpt2();
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.size(), text.find("<|endoftext|>\n", begin));
    append(expected, gpt2.encode(std::string_view(text).substr(begin, end - begin)));
    begin = end + 14;
  }
  CHECK(tokens_in(out.path()) == expected);
}

TEST_CASE("a document is cut where no white space joins the line end to what is beside it") {
  TemporaryFolder folder;
  std::string text;
  for (int line = 0; text.size() < (3u << 20); ++line) {
    text += "and so the story went on and on, as stories do";
    const char* ends[] = {"\n\n",     " \n",      "\n  ", "\n\u3000",
                          "\u3000\n", "\u2028\n", "\n\t", "\r\n"};
    text += line % 1000 == 0 ? "\n" : ends[line % 8];
  }
  write_text(folder / "text.txt", text);
  DocumentReader reader(folder / "text.txt", "text");
  DocumentPart part;
  std::vector<std::int32_t> ids;
  int parts = 0;
  const Tokenizer gpt2 = Tokenizer::gpt2();
  while (reader.next(part)) {
    ++parts;
    const auto more = gpt2.encode(part.text);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  CHECK(parts == 3);
  CHECK(ids == gpt2.encode(text));
}

TEST_CASE("a document ends at its marker at the end of a line of either kind, or of the file") {
  TemporaryFolder folder;
  write_text(folder / "text.txt",
             "One.<|endoftext|>\r\nTwo <|endoftext|> goes on\n<|endoftext|>\n<|endoftext|>\n"
             "Three<|endoftext|>");
  DocumentReader reader(folder / "text.txt", "text");
  DocumentPart part;
  std::vector<std::string> documents;
  while (reader.next(part)) {
    CHECK(part.begins_document);
    documents.push_back(part.text);
  }
  CHECK(documents == std::vector<std::string>{"One.", "Two <|endoftext|> goes on\n", "Three"});
}

TEST_CASE("interrupted anywhere and run again, the shards have the same bytes") {
  Inputs inputs;
  TemporaryFolder whole;
  CHECK(finish(job_for(inputs.files, whole.path())));
  for (int interruptions = 1; interruptions < 4; ++interruptions) {
    TemporaryFolder out;
    TokenizeJob job = job_for(inputs.files, out.path());
    job.threads = interruptions;
    for (int calls = 0; calls < 10; ++calls) {
      // Stops at the first report, or is cut short by a full disk's exception in a later shard.
      std::atomic<bool> stop{false};
      long reports = 0;
      if (tokenize(
              job, [&](const auto&) { stop = ++reports >= 1 && calls < interruptions; }, stop))
        break;
    }
    CHECK(tokens_in(out.path()) == tokens_in(whole.path()));
    CHECK(read_file(out.path() / "manifest.json") == read_file(whole.path() / "manifest.json"));
  }
}

TEST_CASE("an exception between shards leaves what the next call goes on from") {
  Inputs inputs;
  TemporaryFolder out;
  const TokenizeJob job = job_for(inputs.files, out.path());
  struct Cut {};
  CHECK_THROWS_AS(tokenize(
                      job, [](const auto&) { throw Cut(); }, kGoOn),
                  Cut);
  const auto before = nlohmann::json::parse(read_file(out / "manifest.json"));
  CHECK(!before["complete"].get<bool>());
  CHECK(before["shards"].size() > 3);
  CHECK(before["position"]["skip"].get<long>() > 0);  // in the middle of a document
  CHECK(finish(job));
  CHECK(tokens_in(out.path()) == inputs.expected);
}

TEST_CASE("files are known by their content: moved, they are the same job") {
  TemporaryFolder folder, out;
  write_text(folder / "a.txt", "One.");
  TokenizeJob job = job_for({folder / "a.txt"}, out.path());
  CHECK(finish(job));
  fs::rename(folder / "a.txt", folder / "b.txt");
  job.files = {folder / "b.txt"};
  CHECK(finish(job));
  write_text(folder / "b.txt", "Two.");
  CHECK(contains(error_of([&] { finish(job); }), "belongs to another job"));
}

TEST_CASE("a finished job is not done twice, another job is refused") {
  Inputs inputs;
  TemporaryFolder out;
  TokenizeJob job = job_for(inputs.files, out.path());
  CHECK(finish(job));
  const auto written = fs::last_write_time(out / "shard_000000.bin");
  CHECK(finish(job));
  CHECK(fs::last_write_time(out / "shard_000000.bin") == written);
  fs::remove(out / "shard_000001.bin");
  CHECK(contains(error_of([&] { finish(job); }), "shard_000001.bin: is missing"));
  job.shard_tokens = 999;
  CHECK(contains(error_of([&] { finish(job); }), "belongs to another job"));
}

TEST_CASE("a vocabulary beyond 16 bits gets shards of 32-bit ids") {
  TemporaryFolder folder;
  nlohmann::json vocabulary = {{"ab", 69999}};
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[byte_symbol(static_cast<unsigned char>(byte))] = byte;
  const nlohmann::json tokenizer = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"added_tokens",
       {{{"id", 70000}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}}};
  write_text(folder / "tokenizer.json", tokenizer.dump());
  write_text(folder / "text.txt", "abba");
  TokenizeJob job = job_for({folder / "text.txt"}, folder / "out");
  job.tokenizer = (folder / "tokenizer.json").string();
  CHECK(finish(job));
  const TokenShard shard(folder / "out/shard_000000.bin", 70001);
  const auto ids = std::get<std::span<const std::uint32_t>>(shard.tokens());
  CHECK(std::vector<std::uint32_t>(ids.begin(), ids.end()) ==
        std::vector<std::uint32_t>{70000, 69999, 'b', 'a'});
}

TEST_CASE("what cannot be tokenized is said in one line") {
  TemporaryFolder folder;
  const auto failure = [&](TokenizeJob job) { return error_of([&] { finish(job); }); };
  const fs::path out = folder / "out";
  CHECK(contains(failure(job_for({folder / "none.txt"}, out)), "none.txt: no such file"));
  write_text(folder / "bad.jsonl", "{\"text\": \"fine\"}\n{\"txt\": 1}\n");
  CHECK(contains(failure(job_for({folder / "bad.jsonl"}, out)),
                 "bad.jsonl:2: is no JSON object with a string \"text\""));
  write_text(folder / "cut.jsonl", "{\"text\": \"fi");
  CHECK(contains(failure(job_for({folder / "cut.jsonl"}, folder / "out2")), "cut.jsonl:1"));
  write_token_shard(folder / "tokens.bin", std::vector<std::uint16_t>{1, 2, 3});
  CHECK(contains(failure(job_for({folder / "tokens.bin"}, out)), "is a token shard already"));
  write_text(folder / "a.txt", "a");
  TokenizeJob job = job_for({folder / "a.txt"}, folder / "out3");
  job.tokenizer = (folder / "no-such.json").string();
  CHECK(contains(failure(job), "no-such.json: no such file"));
  fs::create_directories(folder / "out4");
  write_text(folder / "out4/manifest.json", "{}");
  CHECK(contains(failure(job_for({folder / "a.txt"}, folder / "out4")), "is no manifest"));
}
