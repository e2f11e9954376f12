// Hugging Face's tokenizer.json: what of it byte-level BPE needs, everything else refused by name.
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/tokenizer/tokenizer.h"

namespace attnres {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

std::string type_of(const json& node, const char* where) {
  if (!node.is_object() || !node.contains("type") || !node["type"].is_string())
    refuse(std::string(where) + " has no type");
  return node["type"].get<std::string>();
}

// Absent, or NFC alone.
bool asks_for_composition(const json& node) {
  if (node.is_null()) return false;
  const std::string type = type_of(node, "normalizer");
  if (type == "NFC") return true;
  if (type == "Sequence") {
    bool composes = false;
    for (const json& step : node.value("normalizers", json::array()))
      composes |= asks_for_composition(step);
    return composes;
  }
  refuse("normalizer " + type + " is not supported; NFC is");
}

void add_patterns(const json& node, std::vector<Pattern>& patterns) {
  const std::string type = type_of(node, "pre_tokenizer");
  if (type == "Sequence") {
    for (const json& step : node.value("pretokenizers", json::array()))
      add_patterns(step, patterns);
  } else if (type == "ByteLevel") {
    if (node.value("add_prefix_space", false))
      refuse("pre_tokenizer ByteLevel with add_prefix_space is not supported");
    if (node.value("use_regex", true)) patterns.emplace_back(kGpt2Pattern);
  } else if (type == "Digits") {
    patterns.emplace_back(node.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split") {
    const std::string behavior = node.value("behavior", "");
    if (behavior != "Isolated" || node.value("invert", false))
      refuse("pre_tokenizer Split with behavior " + behavior + " is not supported; Isolated is");
    const json& pattern = node.value("pattern", json::object());
    if (!pattern.contains("Regex")) refuse("pre_tokenizer Split without a Regex is not supported");
    patterns.emplace_back(pattern["Regex"].get<std::string>());
  } else {
    refuse("pre_tokenizer " + type + " is not supported; ByteLevel, Digits and Split are");
  }
}

constexpr std::int64_t kMostTokens = 1 << 24;

std::vector<std::string> read_vocabulary(const json& vocabulary) {
  std::vector<std::string> tokens;
  for (const auto& [symbols, id] : vocabulary.items()) {
    const auto index = id.get<std::int64_t>();
    if (index < 0 || index >= kMostTokens) refuse("token id " + std::to_string(index));
    if (std::size_t(index) >= tokens.size()) tokens.resize(std::size_t(index) + 1);
    tokens[std::size_t(index)] = symbols;
  }
  return tokens;
}

// Merges are "left right", or since 2024 ["left", "right"].
std::vector<std::pair<std::string, std::string>> read_merges(const json& list) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const json& merge : list) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) refuse("merge \"" + text + "\" has no space");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    merges.emplace_back(bytes_of_symbols(left), bytes_of_symbols(right));
  }
  return merges;
}

}  // namespace

Tokenizer Tokenizer::from_huggingface(const std::filesystem::path& path) {
  const auto file_path = std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  std::ifstream file(file_path);
  if (!file) throw std::runtime_error(file_path.string() + ": no such file");
  try {
    const json root = json::parse(file);
    const json& model = root.at("model");
    if (model.value("type", "BPE") != "BPE")
      refuse("model " + type_of(model, "model") + " is not BPE");
    if (model.value("byte_fallback", false)) refuse("byte_fallback is not supported");
    std::vector<std::string> tokens = read_vocabulary(model.at("vocab"));
    std::vector<Special> specials;
    for (const json& added : root.value("added_tokens", json::array())) {
      const auto number = added.at("id").get<std::int64_t>();
      const auto content = added.at("content").get<std::string>();
      if (content.empty() || number < 0 || number >= kMostTokens)
        refuse("added token \"" + content + "\" with id " + std::to_string(number) +
               ": content must not be empty, and ids lie between 0 and 2^24");
      const auto id = std::int32_t(number);
      specials.push_back({content, id});
      if (std::size_t(id) < tokens.size()) tokens[std::size_t(id)].clear();
    }
    for (std::string& token : tokens) token = bytes_of_symbols(token);
    std::vector<Pattern> patterns;
    add_patterns(root.at("pre_tokenizer"), patterns);
    Tokenizer tokenizer(BytePairEncoding(std::move(tokens), read_merges(model.at("merges"))),
                        Pretokenizer(std::move(patterns)), std::move(specials));
    tokenizer.compose_ = root.contains("normalizer") && asks_for_composition(root["normalizer"]);
    tokenizer.whole_pieces_ = model.value("ignore_merges", false);
    return tokenizer;
  } catch (const json::parse_error& error) {
    throw std::runtime_error(file_path.string() + ": is not valid JSON at byte " +
                             std::to_string(error.byte));
  } catch (const json::exception& error) {
    throw std::runtime_error(file_path.string() +
                             ": a key is missing or malformed: " + error.what());
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(file_path.string() + ": " + error.what());
  }
}

}  // namespace attnres
