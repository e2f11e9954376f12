#include "data/tokenize.h"

#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "data/documents.h"
#include "data/files.h"
#include "data/token_shard.h"

namespace attnres {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr std::size_t kBatchBytes = 1 << 20;  // of text per thread, encoded at a time

// Where tokenizing goes on: at a part of a document, of which some tokens are written already.
struct Position {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  bool begins_document = true;
  std::size_t skip = 0;
};

struct Manifest {
  std::string format;  // for a person
  json job;            // what must agree for a job to go on
  json shards = json::array();
  std::uint64_t tokens = 0, documents = 0;
  Position position;
  bool complete = false;
};

json describe(const TokenizeJob& job, const Tokenizer& tokenizer) {
  json files = json::array();
  for (const auto& path : job.files)
    files.push_back({{"path", path.string()},
                     {"bytes", fs::file_size(path)},
                     {"fnv1a", to_hex(file_hash(path))}});
  const auto file = Tokenizer::file_of(job.tokenizer);
  return {{"tokenizer", job.tokenizer},
          {"tokenizer_fnv1a", file ? to_hex(file_hash(*file)) : ""},
          {"vocabulary", tokenizer.vocabulary()},
          {"separator", tokenizer.end_of_text()},
          {"prefix", job.prefix},
          {"key", job.key},
          {"shard_tokens", job.shard_tokens},
          {"files", files}};
}

void save(const Manifest& m, const fs::path& path) {
  const json content = {{"format", m.format},
                        {"complete", m.complete},
                        {"tokens", m.tokens},
                        {"documents", m.documents},
                        {"job", m.job},
                        {"shards", m.shards},
                        {"position",
                         {{"file", m.position.file},
                          {"offset", m.position.offset},
                          {"begins_document", m.position.begins_document},
                          {"skip", m.position.skip}}}};
  write_file_atomically(path, content.dump(2) + "\n");
}

// A job is the same wherever its files lie and whatever they are called.
json without_names(json job) {
  job.erase("tokenizer");
  for (auto& file : job.at("files")) file.erase("path");
  return job;
}

void check_shards(const json& shards, const fs::path& folder) {
  for (const json& shard : shards) {
    const fs::path path = folder / shard.at("file").get<std::string>();
    const auto bytes = shard.at("bytes").get<std::uintmax_t>();
    if (!fs::exists(path) || fs::file_size(path) != bytes)
      throw std::runtime_error(path.string() + ": is missing or has not the " +
                               std::to_string(bytes) +
                               " bytes of manifest.json; delete the folder to start again");
  }
}

// What an earlier call of the same job has left; a fresh manifest where there is none.
Manifest resume(const json& job, const fs::path& path) {
  Manifest m;
  m.job = job;
  if (!fs::exists(path)) return m;
  try {
    const json content = json::parse(read_file(path));
    if (without_names(content.at("job")) != without_names(job))
      throw std::runtime_error(path.string() +
                               ": belongs to another job (other files, tokenizer or options); "
                               "another --out keeps it");
    m.shards = content.at("shards");
    check_shards(m.shards, path.parent_path());
    m.tokens = content.at("tokens").get<std::uint64_t>();
    m.documents = content.at("documents").get<std::uint64_t>();
    m.complete = content.at("complete").get<bool>();
    const json& p = content.at("position");
    m.position = {p.at("file").get<std::size_t>(), p.at("offset").get<std::uint64_t>(),
                  p.at("begins_document").get<bool>(), p.at("skip").get<std::size_t>()};
  } catch (const json::exception&) {
    throw std::runtime_error(path.string() +
                             ": is no manifest of tokenize; another --out keeps it");
  }
  return m;
}

// Encodes parts on several threads; each keeps its encoder, which remembers words.
class Workers {
 public:
  Workers(const Tokenizer& tokenizer, int threads)
      : separator_(tokenizer.end_of_text()),
        encoders_(std::size_t(std::max(1, threads)), Encoder(tokenizer)) {}

  std::vector<std::vector<std::int32_t>> encode(const std::vector<DocumentPart>& parts) {
    std::vector<std::vector<std::int32_t>> ids(parts.size());
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const auto work = [&](Encoder& encoder) {
      try {
        for (std::size_t i; (i = next++) < parts.size();) {
          if (parts[i].begins_document) ids[i].push_back(separator_);
          encoder.encode(parts[i].text, SpecialTokens::as_text, ids[i]);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 1; t < encoders_.size(); ++t)
      threads.emplace_back([&, t] { work(encoders_[t]); });
    work(encoders_[0]);
    for (auto& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    return ids;
  }
  std::size_t batch_bytes() const { return kBatchBytes * encoders_.size(); }

 private:
  std::int32_t separator_;
  std::vector<Encoder> encoders_;
};

// Collects tokens, and writes a shard and the manifest whenever there are enough.
template <class Id>
class ShardWriter {
 public:
  ShardWriter(const TokenizeJob& job, Manifest& manifest, std::int32_t separator)
      : job_(job), manifest_(manifest), separator_(separator) {
    manifest_.format = "llm.c token shards, version " + std::to_string(ShardFormat<Id>::kVersion) +
                       ", " + std::to_string(8 * sizeof(Id)) + "-bit ids";
  }

  /// The tokens of a part that begins at `at`, of which the first at.skip are written already.
  void add(const std::vector<std::int32_t>& ids, Position at) {
    for (std::size_t i = at.skip; i < ids.size(); ++i) {
      tokens_.push_back(Id(ids[i]));
      documents_ += i == 0 && at.begins_document && ids[i] == separator_;
      if (tokens_.size() < job_.shard_tokens) continue;
      manifest_.position = at;
      manifest_.position.skip = i + 1;
      write();
    }
  }
  void finish() {
    manifest_.complete = true;
    if (!tokens_.empty()) return write();
    save(manifest_, job_.out / "manifest.json");
  }
  std::uint64_t tokens() const { return manifest_.tokens + tokens_.size(); }
  std::uint64_t documents() const { return manifest_.documents + documents_; }

 private:
  void write() {
    char number[16];
    std::snprintf(number, sizeof number, "_%06zu", manifest_.shards.size());
    const std::string name = job_.prefix + number + ".bin";
    write_token_shard(job_.out / name, tokens_);
    manifest_.tokens += tokens_.size();
    manifest_.documents += documents_;
    manifest_.shards.push_back({{"file", name},
                                {"tokens", tokens_.size()},
                                {"bytes", fs::file_size(job_.out / name)},
                                {"fnv1a", to_hex(file_hash(job_.out / name))}});
    tokens_.clear();
    documents_ = 0;
    save(manifest_, job_.out / "manifest.json");
  }

  const TokenizeJob& job_;
  Manifest& manifest_;
  std::int32_t separator_;
  std::vector<Id> tokens_;
  std::uint64_t documents_ = 0;
};

void check(const TokenizeJob& job, const Tokenizer& tokenizer) {
  if (job.files.empty()) throw std::invalid_argument("no files to tokenize");
  if (job.shard_tokens < 1 || job.shard_tokens > kMostShardTokens)
    throw std::invalid_argument("a shard holds from 1 to 2^31 - 1 tokens");
  if (tokenizer.end_of_text() < 0)
    throw std::runtime_error("tokenizer " + job.tokenizer +
                             " has no <|endoftext|> or <|end_of_text|> to separate documents");
  for (const auto& path : job.files) {
    if (!fs::is_regular_file(path)) throw std::runtime_error(path.string() + ": no such file");
    if (is_token_shard(path))
      throw std::runtime_error(path.string() + ": is a token shard already, not text");
  }
}

// Parts of documents with at least so many bytes together; none at the end of the file.
std::vector<DocumentPart> next_parts(DocumentReader& reader, std::size_t bytes) {
  std::vector<DocumentPart> parts;
  DocumentPart part;
  for (std::size_t read = 0; read < bytes && reader.next(part);) {
    read += part.text.size();
    parts.push_back(std::move(part));
  }
  return parts;
}

template <class Id>
bool tokenize_into(const TokenizeJob& job, const Tokenizer& tokenizer,
                   const std::function<void(const TokenizeProgress&)>& report,
                   const std::atomic<bool>& stop) {
  fs::create_directories(job.out);
  Manifest manifest = resume(describe(job, tokenizer), job.out / "manifest.json");
  TokenizeProgress progress;
  for (const auto& path : job.files) progress.all_bytes += fs::file_size(path);
  ShardWriter<Id> writer(job, manifest, tokenizer.end_of_text());
  Workers workers(tokenizer, job.threads);

  std::uint64_t before = 0;  // bytes of the files that are done
  Position at = manifest.position;
  const std::size_t first = manifest.complete ? job.files.size() : at.file;
  for (std::size_t file = 0; file < job.files.size(); ++file) {
    const std::uint64_t size = fs::file_size(job.files[file]);
    before += size;
    if (file < first) continue;
    if (file > at.file) at = {file, 0, true, 0};
    DocumentReader reader(job.files[file], job.key, at.offset, at.begins_document);
    for (;;) {
      if (stop) return false;
      const auto parts = next_parts(reader, workers.batch_bytes());
      if (parts.empty()) break;
      const auto ids = workers.encode(parts);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        writer.add(ids[i], {file, parts[i].offset, parts[i].begins_document, at.skip});
        at.skip = 0;
      }
      progress.bytes = before - size + reader.position();
      progress.tokens = writer.tokens();
      progress.documents = writer.documents();
      progress.shards = manifest.shards.size();
      report(progress);
    }
  }
  if (!manifest.complete) writer.finish();
  progress = {progress.all_bytes, progress.all_bytes, manifest.tokens, manifest.documents,
              manifest.shards.size()};
  report(progress);
  return true;
}

}  // namespace

bool tokenize(const TokenizeJob& job, const std::function<void(const TokenizeProgress&)>& report,
              const std::atomic<bool>& stop) {
  const Tokenizer tokenizer = Tokenizer::open(job.tokenizer);
  check(job, tokenizer);
  return tokenizer.vocabulary() <= 65536
             ? tokenize_into<std::uint16_t>(job, tokenizer, report, stop)
             : tokenize_into<std::uint32_t>(job, tokenizer, report, stop);
}

}  // namespace attnres
