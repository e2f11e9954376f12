// From text to token shards: streaming, on all cores, and able to go on after an interruption.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace attnres {

struct TokenizeJob {
  std::vector<std::filesystem::path> files;  ///< text or jsonl, see DocumentReader
  std::string tokenizer = "gpt2";            ///< see Tokenizer::open
  std::filesystem::path out;                 ///< folder of shards and manifest.json
  std::string prefix = "shard";              ///< PREFIX_000000.bin, PREFIX_000001.bin, ...
  std::string key = "text";                  ///< of jsonl files
  std::size_t shard_tokens = 100'000'000;    ///< tokens per shard; the last has what is left
  int threads = 1;
};

struct TokenizeProgress {
  std::uint64_t bytes = 0, all_bytes = 0;  ///< of the input
  std::uint64_t tokens = 0, documents = 0;
  std::size_t shards = 0;  ///< complete ones
};

/// Writes shards in llm.c's format, the separator token before every document, and manifest.json:
/// tokenizer, input files, shards with sizes and hashes, totals.  The manifest is replaced after
/// every shard, so a job that is run again goes on behind the last complete one; the result has the
/// same bytes for any number of threads and interruptions.  Files and tokenizer are known by their
/// content, wherever they lie.  Returns false if `stop` became true.
/// Ids have 16 bits where the vocabulary fits, else 32.  Throws std::runtime_error naming a file
/// that cannot be read, or a manifest of another job.
bool tokenize(const TokenizeJob& job, const std::function<void(const TokenizeProgress&)>& report,
              const std::atomic<bool>& stop);

}  // namespace attnres
