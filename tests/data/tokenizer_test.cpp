// Tokenizers, exact to the id: published vectors, counts of whole files, an independent merge loop.
#include "data/tokenizer/tokenizer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

const Tokenizer& gpt2() {
  static const Tokenizer tokenizer = Tokenizer::gpt2();
  return tokenizer;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A real file for tests, or nothing and a message where the folder is absent.
std::string test_data(const char* name) {
  const char* variable = std::getenv("ATTNRES_TEST_DATA");
  const auto path = std::filesystem::path(variable ? variable : ATTNRES_TEST_DATA) / name;
  if (!std::filesystem::exists(path)) MESSAGE("skipped: " << path.string() << " is not there");
  return read(path);
}

// The definition, one merge at a time over the whole piece: quadratic, and shares no code.
std::vector<std::string> merge_by_definition(
    const std::string& piece, const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> tokens;
  for (const char c : piece) tokens.emplace_back(1, c);
  for (const auto& [left, right] : merges)
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      if (tokens[i] == left && tokens[i + 1] == right) {
        tokens[i] += right;
        tokens.erase(tokens.begin() + std::ptrdiff_t(i) + 1);
      }
  return tokens;
}

std::vector<std::pair<std::string, std::string>> gpt2_merges() {
  std::vector<std::pair<std::string, std::string>> merges;
  std::istringstream lines(read(ATTNRES_GPT2_MERGES));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const auto space = line.find(' ');
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

// GPT-2 written as a tokenizer.json.
nlohmann::json gpt2_json() {
  nlohmann::json vocabulary, merges = nlohmann::json::array();
  std::int32_t id = 0;
  for (const unsigned char byte : bytes_in_gpt2_order()) vocabulary[byte_symbol(byte)] = id++;
  for (const auto& [left, right] : gpt2_merges()) {
    vocabulary[left + right] = id++;
    merges.push_back(left + " " + right);
  }
  return {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"added_tokens", {{{"id", id}, {"content", "<|endoftext|>"}, {"special", true}}}}};
}

std::vector<std::string> pieces(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> result;
  pattern.split(text, [&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("GPT-2 encodes what everybody knows") {
  CHECK(gpt2().encode("Hello, world!") == Ids{15496, 11, 995, 0});
  CHECK(gpt2().encode("").empty());
  CHECK(gpt2().vocabulary() == 50257);
  CHECK(gpt2().end_of_text() == 50256);
  CHECK(gpt2().decode(Ids{15496, 11, 995, 0, 50256}) == "Hello, world!<|endoftext|>");
}

TEST_CASE("published vectors of GPT-2's vocabulary are met to the id") {
  const std::string text = test_data("tokenizer/golden_vectors.txt");
  std::istringstream lines(text);
  std::string line, encoding, sample;
  long checked = 0;
  while (std::getline(lines, line)) {
    if (line.starts_with("EncodingName: ")) encoding = line.substr(14);
    if (line.starts_with("Sample: ")) sample = line.substr(8);
    if (!line.starts_with("Encoded: ") || encoding != "r50k_base") continue;
    const Ids expected = nlohmann::json::parse(line.substr(9)).get<Ids>();
    CAPTURE(sample);
    CHECK(gpt2().encode(sample) == expected);
    CHECK(gpt2().decode(expected) == sample);
    ++checked;
  }
  if (!text.empty()) CHECK(checked > 10);
}

TEST_CASE("whole books have the number of tokens that others count, and decode to themselves") {
  struct Book {
    std::string text;
    std::size_t tokens;
  };
  for (const auto& [text, tokens] :
       {Book{read(ATTNRES_CORPUS), 993328}, Book{test_data("eval/wiki.test.raw"), 286221},
        Book{test_data("corpus/tinyshakespeare.txt"), 338025}}) {
    if (text.empty()) continue;
    const Ids ids = gpt2().encode(text);
    CHECK(ids.size() == tokens);
    CHECK(gpt2().decode(ids) == text);
  }
}

TEST_CASE("any bytes survive the round trip, UTF-8 or not") {
  std::mt19937 engine(1);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::string bytes(std::size_t(engine() % 300), '\0');
    for (char& byte : bytes) byte = char(engine() % 256);
    CHECK(gpt2().decode(gpt2().encode(bytes)) == bytes);
    CHECK(gpt2().decode(gpt2().encode(bytes, SpecialTokens::as_tokens)) == bytes);
  }
  const std::string nul("a\0b", 3);
  CHECK(gpt2().decode(gpt2().encode(nul)) == nul);
}

TEST_CASE("merging with a heap is merging by definition") {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "a"}, {"b", "a"}, {"aa", "a"}, {"aa", "aa"}, {"ba", "b"}, {"aa", "ba"}, {"b", "b"}};
  Strings tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, char(byte));
  for (const auto& [left, right] : merges) tokens.push_back(left + right);
  const BytePairEncoding bpe(tokens, merges);
  std::mt19937 engine(2);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::string piece(std::size_t(engine() % 40), 'a');
    for (char& c : piece) c = "aab"[engine() % 3];
    Ids ids;
    bpe.encode(piece, ids);
    Strings found;
    for (const std::int32_t id : ids) found.emplace_back(bpe.bytes(id));
    CHECK(found == merge_by_definition(piece, merges));
  }
}

TEST_CASE("a megabyte of one letter, of spaces, of digits takes no more than its length") {
  for (const char c : {'a', ' ', '1', '.', '\n'}) {
    const std::string text(1 << 20, c);
    const Ids ids = gpt2().encode(text);
    CHECK(ids.size() <= text.size());  // GPT-2 has no token of two spaces
    CHECK(gpt2().decode(ids) == text);
  }
}

TEST_CASE("special tokens are text in a corpus and tokens in a prompt") {
  const std::string text = "one<|endoftext|>two";
  CHECK(gpt2().encode(text, SpecialTokens::as_tokens) == Ids{505, 50256, 11545});
  const Ids ordinary = gpt2().encode(text);
  CHECK(ordinary.size() > 3);
  CHECK(std::find(ordinary.begin(), ordinary.end(), 50256) == ordinary.end());
  CHECK(gpt2().decode(ordinary) == text);
}

TEST_CASE("GPT-2 as a tokenizer.json gives the same ids") {
  TemporaryFolder folder;
  write_text(folder / "tokenizer.json", gpt2_json().dump());
  const Tokenizer tokenizer = Tokenizer::open(folder.path().string());
  CHECK(tokenizer.vocabulary() == 50257);
  CHECK(tokenizer.end_of_text() == 50256);
  const std::string text = read(ATTNRES_CORPUS).substr(0, 200000);
  CHECK(tokenizer.encode(text) == gpt2().encode(text));
}

TEST_CASE("merges as pairs, digits apart, composition, whole pieces: what other models ask for") {
  TemporaryFolder folder;
  const auto with = [&](const auto& change) {
    nlohmann::json json = gpt2_json();
    change(json);
    write_text(folder / "tokenizer.json", json.dump());
    return Tokenizer::from_huggingface(folder / "tokenizer.json");
  };
  const Tokenizer pairs = with([](nlohmann::json& json) {
    for (auto& merge : json["model"]["merges"]) {
      const auto text = merge.get<std::string>();
      const auto space = text.find(' ');
      merge = {text.substr(0, space), text.substr(space + 1)};
    }
  });
  CHECK(pairs.encode("Hello, world!") == Ids{15496, 11, 995, 0});

  const Tokenizer digits = with([](nlohmann::json& json) {
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Digits"}, {"individual_digits", true}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  });
  CHECK(gpt2().encode("2024").size() == 2);
  CHECK(digits.encode("2024") == Ids{17, 15, 17, 19});

  const Tokenizer composed = with([](nlohmann::json& json) {
    json["normalizer"] = {{"type", "NFC"}};
  });
  CHECK(composed.encode("e\u0301") == gpt2().encode("\u00e9"));
  CHECK(gpt2().encode("e\u0301") != gpt2().encode("\u00e9"));

  // " world" is a token: taken whole, though no merge makes it any more.
  const Tokenizer whole = with([](nlohmann::json& json) {
    json["model"]["merges"] = nlohmann::json::array();
    json["model"]["ignore_merges"] = true;
  });
  CHECK(whole.encode("Hello world") == Ids{15496, 995});
}

TEST_CASE("a control character without a token is left out") {
  TemporaryFolder folder;
  nlohmann::json json = gpt2_json();
  json["model"]["vocab"].erase(byte_symbol(4));
  write_text(folder / "tokenizer.json", json.dump());
  const Tokenizer tokenizer = Tokenizer::from_huggingface(folder.path());
  CHECK(tokenizer.encode("\x04").empty());
  CHECK(tokenizer.decode(tokenizer.encode("one\x04two")) == "onetwo");
  CHECK(gpt2().decode(gpt2().encode("one\x04two")) == "one\x04two");
}

TEST_CASE("the expressions of GPT-2 and Llama 3 cut as their models' do") {
  const Pattern gpt2_pattern(kGpt2Pattern);
  CHECK(pieces(gpt2_pattern, "I've 12 dogs,  ok\n") ==
        Strings{"I", "'ve", " 12", " dogs", ",", " ", " ok", "\n"});
  CHECK(pieces(gpt2_pattern, "a   b") == Strings{"a", "  ", " b"});
  CHECK(pieces(gpt2_pattern, "\u00e9t\u00e9 \u4e16\u754c") ==
        Strings{"\u00e9t\u00e9", " \u4e16\u754c"});
  const Pattern llama3(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                       R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  CHECK(pieces(llama3, "I'VE 12345!\n\n x") ==
        Strings{"I", "'VE", " ", "123", "45", "!\n\n", " x"});
  // U+180E is no white space since Unicode 6.3, U+3000 is.
  CHECK(pieces(Pattern(R"(\s+)"), "a\u180eb\u3000c") == Strings{"a\u180eb", "\u3000", "c"});
}

TEST_CASE("what a tokenizer.json asks for and this cannot do is refused by name") {
  TemporaryFolder folder;
  const auto refusal = [&](const auto& change) {
    nlohmann::json json = gpt2_json();
    change(json);
    write_text(folder / "tokenizer.json", json.dump());
    return error_of([&] { Tokenizer::from_huggingface(folder.path()); });
  };
  using Json = nlohmann::json;
  CHECK(refusal([](Json&) {}) == "");
  CHECK(contains(refusal([](Json& j) { j["model"]["type"] = "Unigram"; }), "Unigram"));
  CHECK(contains(refusal([](Json& j) { j["model"]["byte_fallback"] = true; }), "byte_fallback"));
  CHECK(contains(refusal([](Json& j) { j["normalizer"] = {{"type", "Lowercase"}}; }), "Lowercase"));
  CHECK(contains(refusal([](Json& j) {
                   j["pre_tokenizer"] = {{"type", "Metaspace"}};
                 }),
                 "Metaspace"));
  CHECK(contains(refusal([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }),
                 "add_prefix_space"));
  CHECK(contains(refusal([](Json& j) {
                   j["pre_tokenizer"] = {{"type", "Split"},
                                         {"behavior", "Isolated"},
                                         {"pattern", {{"Regex", "(unclosed"}}}};
                 }),
                 "does not compile"));
  CHECK(contains(refusal([](Json& j) { j["model"].erase("vocab"); }), "vocab"));
  CHECK(contains(refusal([](Json& j) { j["model"]["vocab"].erase("a"); }), "no token for byte 97"));
  CHECK(contains(refusal([](Json& j) { j["model"]["merges"][0] = "zzz qqq"; }), "merge 0"));
  CHECK(contains(refusal([](Json& j) { j["added_tokens"][0]["content"] = ""; }),
                 "must not be empty"));
  for (const std::int64_t id : {std::int64_t(-5), std::int64_t(3000000000)})
    CHECK(contains(refusal([&](Json& j) { j["added_tokens"][0]["id"] = id; }), "ids lie between"));
  write_text(folder / "tokenizer.json", "{\"model\": ");
  CHECK(contains(error_of([&] { Tokenizer::from_huggingface(folder.path()); }),
                 "is not valid JSON at byte"));
  CHECK(contains(error_of([&] { Tokenizer::open((folder / "none.json").string()); }),
                 "no such file"));
  write_text(folder / "merges.txt", "#version: 0.2\na b\nabc\n");
  CHECK(contains(error_of([&] { Tokenizer::open((folder / "merges.txt").string()); }),
                 "merges.txt:3: is no merge"));
  CHECK(contains(error_of([&] { gpt2().decode(Ids{50257}); }), "the vocabulary ends at 50256"));
}
