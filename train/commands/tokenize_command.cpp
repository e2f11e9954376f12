// attnres tokenize: text and jsonl files to token shards.
#include <csignal>
#include <cstdio>

#include "data/token_shard.h"
#include "data/tokenize.h"
#include "reference/parallel.h"
#include "train/commands/command.h"
#include "train/console.h"
#include "train/text.h"

namespace attnres {
namespace {

std::atomic<bool> interrupted{false};

}  // namespace

int tokenize_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres tokenize",
      "Encode text or jsonl files into token shards of llm.c's format, and a manifest.\n"
      "Interrupted and run again, it goes on behind the last complete shard.\n");
  option<std::vector<std::string>>(
      options, "", "data", "FILES",
      "Comma-separated; .jsonl: one object per line, other files: text whose documents end at "
      "<|endoftext|> lines");
  option<std::string>(options, "", "out", "DIR", "Folder of the shards and manifest.json");
  option<std::string>(options, "", "tokenizer", "NAME",
                      "gpt2, bytes, a tokenizer.json, a folder that has one, or a merges file",
                      "gpt2");
  option<std::string>(options, "", "key", "NAME", "String of a jsonl object that is the document",
                      "text");
  option<std::string>(options, "", "prefix", "NAME", "Shards are NAME_000000.bin and so on",
                      "shard");
  option<std::int64_t>(options, "", "shard-tokens", "N", "Tokens per shard", "100000000");
  threads_option(options);
  const auto a = parse(options, argc, argv,
                       "  attnres tokenize --data \"fineweb/*.jsonl\" --out data/fineweb\n"
                       "  attnres tokenize --data book.txt --tokenizer SmolLM2-135M --out shards");
  if (!a) return 0;
  if (!a->count("data")) throw UsageError("--data is needed");
  TokenizeJob job;
  job.files = files_or_corpus(*a, "data");
  job.out = required(*a, "out");
  job.tokenizer = (*a)["tokenizer"].as<std::string>();
  job.key = (*a)["key"].as<std::string>();
  job.prefix = (*a)["prefix"].as<std::string>();
  const auto shard_tokens = (*a)["shard-tokens"].as<std::int64_t>();
  if (shard_tokens < 1 || std::size_t(shard_tokens) > kMostShardTokens)
    throw UsageError("--shard-tokens must lie between 1 and 2^31 - 1");
  job.shard_tokens = std::size_t(shard_tokens);
  job.threads = thread_count();

  std::signal(SIGINT, [](int) { interrupted = true; });
  std::signal(SIGTERM, [](int) { interrupted = true; });
  Console console;
  TokenizeProgress last;
  const bool finished = tokenize(
      job,
      [&](const TokenizeProgress& p) {
        last = p;
        console.live(std::to_string(p.bytes * 100 / std::max<std::uint64_t>(1, p.all_bytes)) +
                     " %  " + mebibytes(double(p.bytes)) + " of " + mebibytes(double(p.all_bytes)) +
                     ", " + with_prefix(double(p.tokens)) + "tokens, " +
                     std::to_string(p.documents) + " documents, " + std::to_string(p.shards) +
                     " shards");
      },
      interrupted);
  console.finish();
  if (!finished) {
    std::printf("interrupted; the same command goes on behind the last complete shard\n");
    return 130;
  }
  std::printf("%llu tokens of %llu documents in %zu shards: %s\n",
              static_cast<unsigned long long>(last.tokens),
              static_cast<unsigned long long>(last.documents), last.shards, job.out.c_str());
  return 0;
}

}  // namespace attnres
