// Tokenizer, shards, splits and windows: everything is read once, nothing twice, and what is
// malformed is named with its place.
#include <algorithm>
#include <cstring>
#include <set>

#include "data/byte_vocabulary.h"
#include "data/token_data.h"
#include "data/tokenizer/tokenizer.h"
#include "data/windows.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

std::vector<std::uint16_t> counting(std::size_t count) {
  std::vector<std::uint16_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = std::uint16_t(i % 50000);
  return tokens;
}

TokenData data_of(std::vector<std::uint16_t> tokens) {
  TokenData data;
  data.append(std::move(tokens));
  return data;
}

std::vector<std::int32_t> all_of(const TokenData& data) {
  std::vector<std::int32_t> tokens(data.size());
  data.copy(0, data.size(), tokens.data());
  return tokens;
}

// Overwrites `bytes` at an offset of a file.
void patch(const std::filesystem::path& path, std::size_t offset, const void* bytes,
           std::size_t size) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(std::streamoff(offset));
  file.write(static_cast<const char*>(bytes), std::streamsize(size));
}

}  // namespace

TEST_CASE("bytes survive the tokenizer, all 256 of them") {
  const Tokenizer bytes = Tokenizer::open("bytes");
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(char(b));
  const auto tokens = bytes.encode(all);
  CHECK(tokens.size() == 256);
  for (int b = 0; b < 256; ++b) CHECK(tokens[std::size_t(b)] == b);
  CHECK(bytes.decode(tokens) == all);
  CHECK(bytes.vocabulary() == ByteVocabulary::kSize);
  CHECK(bytes.encode("a<|endoftext|>b", SpecialTokens::as_tokens) ==
        std::vector<std::int32_t>{'a', ByteVocabulary::kEndOfDocument, 'b'});
}

TEST_CASE("a shard is the 256-word header of llm.c and then the ids") {
  TemporaryFolder folder;
  const auto path = folder / "tokens.bin";
  write_token_shard(path, counting(1000));
  std::ifstream file(path, std::ios::binary);
  std::int32_t header[256];
  file.read(reinterpret_cast<char*>(header), sizeof header);
  CHECK(header[0] == 20240520);
  CHECK(header[1] == 1);
  CHECK(header[2] == 1000);
  CHECK(std::filesystem::file_size(path) == 1024 + 2000);
  const TokenShard shard(path, 50257);
  const auto tokens = std::get<std::span<const std::uint16_t>>(shard.tokens());
  CHECK(std::equal(tokens.begin(), tokens.end(), counting(1000).begin()));
  CHECK(is_token_shard(path));
}

TEST_CASE("ids of more than 16 bits are read from llm.c's shards of Llama 3, and written so") {
  TemporaryFolder folder;
  const auto path = folder / "llama.bin";
  {
    std::ofstream file(path, std::ios::binary);
    std::int32_t header[256] = {20240801, 7, 3};
    const std::uint32_t ids[] = {128000, 5, 70000};
    file.write(reinterpret_cast<const char*>(header), sizeof header);
    file.write(reinterpret_cast<const char*>(ids), sizeof ids);
  }
  CHECK(is_token_shard(path));
  TokenData data;
  data.append(std::make_shared<TokenShard>(path, 128256));
  std::int32_t copied[3];
  data.copy(0, 3, copied);
  CHECK(copied[0] == 128000);
  CHECK(copied[2] == 70000);
  CHECK(data.part(1, 2)[1] == 70000);
  CHECK(data.part(0, 2).hash() != data.part(1, 2).hash());
  CHECK(contains(error_of([&] { TokenShard(path, 128000); }), "token id 128000 at offset 1024"));

  const auto copy = folder / "copy.bin";
  write_token_shard(copy, std::vector<std::uint32_t>{128000, 5, 70000});
  std::ifstream first(path, std::ios::binary), second(copy, std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  CHECK(std::string(Bytes(first), {}) == std::string(Bytes(second), {}));
  std::filesystem::resize_file(path, 1024 + 11);
  CHECK(contains(error_of([&] { TokenShard(path, 128256); }),
                 "1035 bytes; its header promises 3 tokens, which is 1036"));
}

TEST_CASE("a malformed shard is refused with file and offset") {
  TemporaryFolder folder;
  const auto path = folder / "tokens.bin";
  const auto refusal = [&] { return error_of([&] { TokenShard(path, 50257); }); };
  CHECK(contains(refusal(), "cannot be opened"));

  write_token_shard(path, counting(10));
  const std::int32_t wrong = 7;
  patch(path, 0, &wrong, 4);
  CHECK(contains(refusal(), "magic 7 at offset 0"));

  write_token_shard(path, counting(10));
  patch(path, 4, &wrong, 4);
  CHECK(contains(refusal(), "version 7 at offset 4"));

  write_token_shard(path, counting(10));
  std::filesystem::resize_file(path, 1024 + 13);
  CHECK(contains(refusal(), "1037 bytes; its header promises 10 tokens, which is 1044"));
  std::filesystem::resize_file(path, 100);
  CHECK(contains(refusal(), "100 bytes"));

  write_token_shard(path, counting(10));
  const std::uint16_t beyond = 50257;
  patch(path, 1024 + 2 * 6, &beyond, 2);
  CHECK(contains(refusal(), path.string() + ": has token id 50257 at offset 1036"));
}

TEST_CASE("several pieces read as one sequence, in parts too") {
  TokenData data;
  data.append(std::vector<std::uint16_t>{0, 1, 2});
  data.append(std::vector<std::uint16_t>{});
  data.append(std::vector<std::uint16_t>{3, 4, 5, 6});
  CHECK(data.size() == 7);
  for (std::size_t i = 0; i < 7; ++i) CHECK(data[i] == std::int32_t(i));
  CHECK(all_of(data.part(2, 3)) == std::vector<std::int32_t>{2, 3, 4});
  CHECK(data.part(0, 7).hash() == data.hash());
  CHECK(data.part(0, 6).hash() != data.hash());
}

TEST_CASE("each document of a text opens with the end-of-document token") {
  TemporaryFolder folder;
  write_text(folder / "a.txt", "one<|endoftext|>\ntwo");
  write_text(folder / "b.txt", "three");
  const DataSplit split = load_data({folder / "a.txt"}, {folder / "b.txt"}, 0);
  CHECK(split.bytes);
  CHECK(all_of(split.train) == std::vector<std::int32_t>{256, 'o', 'n', 'e', 256, 't', 'w', 'o'});
  CHECK(all_of(split.validation) == std::vector<std::int32_t>{256, 't', 'h', 'r', 'e', 'e'});
}

TEST_CASE("the held-out tenth is contiguous, shares no token, and keeps documents whole") {
  TemporaryFolder folder;
  std::string text;
  for (int document = 0; document < 100; ++document)
    text += std::string(995, char('a' + document % 26)) + "<|endoftext|>\n";
  write_text(folder / "a.txt", text);
  const DataSplit split = load_data({folder / "a.txt"}, {}, 0);
  CHECK(split.train.size() + split.validation.size() == 100 * 996);
  CHECK(split.train.size() == 90 * 996);
  CHECK(split.validation[0] == ByteVocabulary::kEndOfDocument);
}

TEST_CASE("one long document is cut between paragraphs") {
  TemporaryFolder folder;
  std::string text;
  for (int paragraph = 0; paragraph < 300; ++paragraph) text += std::string(70, 'x') + ".\n\n";
  write_text(folder / "a.txt", text);
  const DataSplit split = load_data({folder / "a.txt"}, {}, 0);
  const auto train = all_of(split.train);
  CHECK(train.back() == '\n');
  CHECK(train[train.size() - 2] == '\n');
  CHECK(split.validation[0] == 'x');
  CHECK(std::abs(double(split.train.size()) / double(text.size()) - 0.9) < 0.01);
}

TEST_CASE("missing, empty and mixed data files are refused by name") {
  TemporaryFolder folder;
  write_text(folder / "empty.txt", "");
  write_text(folder / "text.txt", "words");
  write_token_shard(folder / "a.bin", counting(5));
  const auto refusal = [&](std::vector<std::filesystem::path> files) {
    return error_of([&] { load_data(files, {}, 50257); });
  };
  CHECK(contains(refusal({folder / "no.txt"}), "no.txt: no such"));
  CHECK(contains(refusal({folder / "empty.txt"}), "empty.txt: is empty"));
  CHECK(contains(refusal({folder.path()}), "is a folder"));
  CHECK(contains(refusal({folder / "text.txt", folder / "a.bin"}), "cannot be mixed"));
}

TEST_CASE("the windows of an epoch are the data set, once") {
  for (const std::size_t size : {2, 9, 10, 100, 101}) {
    const std::size_t T = 8;
    WindowLoader loader(Windows(data_of(counting(size)), T), 5);
    std::vector<std::int32_t> tokens(T), targets(T);
    std::multiset<std::int32_t> inputs, outputs;
    for (std::size_t w = 0; w < loader.windows().count(); ++w) {
      const std::size_t counted = loader.next(1, tokens, targets);
      for (std::size_t i = 0; i < counted; ++i) {
        CHECK(targets[i] == tokens[i] + 1);
        inputs.insert(tokens[i]);
        outputs.insert(targets[i]);
      }
      for (std::size_t i = counted; i < T; ++i) CHECK(targets[i] == -1);
    }
    CHECK(loader.position().epoch == 0);
    CHECK(inputs.size() == size - 1);  // every token but the last is an input once,
    CHECK(std::set(inputs.begin(), inputs.end()).size() == size - 1);
    CHECK(*outputs.begin() == 1);  // and every token but the first a target once
    CHECK(std::set(outputs.begin(), outputs.end()).size() == size - 1);
  }
}

TEST_CASE("each epoch has an order of its own, given by the seed") {
  const auto order = [](std::uint64_t seed, int epochs) {
    WindowLoader loader(Windows(data_of(counting(1001)), 10), seed);
    std::vector<std::int32_t> tokens(10), targets(10), firsts;
    for (int i = 0; i < epochs * 100; ++i) {
      loader.next(1, tokens, targets);
      firsts.push_back(tokens[0]);
    }
    return firsts;
  };
  const auto two = order(1, 2);
  CHECK(two == order(1, 2));
  CHECK(order(1, 1) != order(2, 1));
  CHECK(!std::equal(two.begin(), two.begin() + 100, two.begin() + 100));
  CHECK(std::set(two.begin(), two.begin() + 100) == std::set(two.begin() + 100, two.end()));
  CHECK(!std::is_sorted(two.begin(), two.begin() + 100));
}

TEST_CASE("a loader continues exactly from any saved position, across epochs") {
  for (int taken = 0; taken < 25; ++taken) {
    WindowLoader original(Windows(data_of(counting(91)), 9), 3);
    std::vector<std::int32_t> tokens(18), targets(18), expected(18);
    for (int i = 0; i < taken; ++i) original.next(2, tokens, targets);
    WindowLoader restored(Windows(data_of(counting(91)), 9), 3);
    restored.seek(original.position());
    for (int i = 0; i < 12; ++i) {
      original.next(2, expected, targets);
      restored.next(2, tokens, targets);
      CHECK(tokens == expected);
    }
  }
}

TEST_CASE("a single token cannot be a data set") {
  CHECK(contains(error_of([] { Windows(data_of({1}), 4); }), "at least two"));
}

TEST_CASE("the bundled corpus is the published file") {
  const std::filesystem::path corpus = ATTNRES_CORPUS;
  CHECK(std::filesystem::file_size(corpus) == 4025029);
  const DataSplit split = load_data({corpus}, {}, 0);
  CHECK(split.train.size() + split.validation.size() == 4025029 + 1);
  CHECK(std::abs(double(split.validation.size()) / 4025030 - 0.1) < 0.01);
}
