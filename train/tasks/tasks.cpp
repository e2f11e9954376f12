#include "train/tasks/tasks.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>
#include <stdexcept>

#include "data/files.h"

namespace attnres {
namespace {

using nlohmann::json;
using Result = nlohmann::ordered_json;

// A line of a jsonl file.
struct Example {
  json object;
  std::string where;  // FILE:LINE

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(where + ": " + what);
  }
  std::string text(const char* key) const {
    if (!object.contains(key) || !object[key].is_string())
      refuse(std::string("has no string \"") + key + '"');
    return object[key].get<std::string>();
  }
};

// At most `limit` examples unless that is 0.
std::vector<Example> read_examples(const std::filesystem::path& path, std::size_t limit) {
  std::istringstream lines(read_file(path));
  std::vector<Example> examples;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line) && (limit == 0 || examples.size() < limit);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    examples.push_back(
        {json::parse(line, nullptr, false), path.string() + ":" + std::to_string(number)});
    if (!examples.back().object.is_object()) examples.back().refuse("is no JSON object");
  }
  if (examples.empty()) throw std::runtime_error(path.string() + ": holds no examples");
  return examples;
}

// Encodes context and continuation as one text, so that the cut lies where the tokenizer puts it.
ScoringRequest request_for(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& continuation) {
  ScoringRequest request;
  request.context = tokenizer.encode(context);
  const auto whole = tokenizer.encode(context + continuation);
  const auto cut = std::min(request.context.size(), whole.size() - 1);
  request.context.assign(whole.begin(), whole.begin() + std::ptrdiff_t(cut));
  request.continuation.assign(whole.begin() + std::ptrdiff_t(cut), whole.end());
  return request;
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

std::vector<std::int32_t> code_points(const std::string& text) {
  std::vector<std::int32_t> points;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t point;
    const auto length = utf8proc_iterate(bytes + i, utf8proc_ssize_t(text.size() - i), &point);
    points.push_back(length > 0 ? point : 0xfffd);
    i += std::size_t(std::max<utf8proc_ssize_t>(1, length));
  }
  return points;
}

// Python's str.capitalize: the first character in title case, the others in lower case.
std::string capitalized(const std::string& text) {
  std::string result;
  bool first = true;
  for (const std::int32_t point : code_points(text)) {
    utf8proc_uint8_t bytes[4];
    const auto length =
        utf8proc_encode_char(first ? utf8proc_totitle(point) : utf8proc_tolower(point), bytes);
    result.append(reinterpret_cast<const char*>(bytes), std::size_t(length));
    first = false;
  }
  return result;
}

// In windows that hold the longest request, in steps of 64 tokens.
std::vector<Score> score_all(const ModelForWindow& model,
                             const std::vector<ScoringRequest>& requests, const TaskOptions& o,
                             const ScoringProgress& report) {
  std::size_t longest = 1;
  for (const auto& request : requests)
    longest = std::max(longest, request.context.size() + request.continuation.size() - 1);
  const Index positions = std::min(o.positions, (Index(longest) + 63) / 64 * 64);
  return score(model(positions), requests, o.sequences, positions, report);
}

double standard_error(double share, std::size_t n) {
  return n < 2 ? 0 : std::sqrt(share * (1 - share) / double(n - 1));
}

}  // namespace

Result wikitext_task(const ModelForWindow& model, const Tokenizer& tokenizer, const TaskOptions& o,
                     const ScoringProgress& report) {
  const std::string text = read_file(o.data);
  const auto tokens = tokenizer.encode(text);
  if (tokens.size() < 2) throw std::runtime_error(o.data.string() + ": has fewer than two tokens");
  const RollingScore sum =
      score_rolling(model(o.positions), tokens, o.sequences, o.positions, o.stride, report);
  std::istringstream stream(text);
  std::size_t words = 0;
  for (std::string word; stream >> word;) ++words;
  const double loss = sum.loss_sum / double(sum.scored);
  return {{"task", "wikitext2"},
          {"loss", loss},
          {"perplexity", std::exp(loss)},
          {"word_perplexity", std::exp(sum.loss_sum / double(words))},
          {"bits_per_byte", sum.loss_sum / std::numbers::ln2 / double(text.size())},
          {"tokens", tokens.size()},
          {"scored", sum.scored},
          {"words", words},
          {"bytes", text.size()},
          {"window", o.positions},
          {"stride", o.stride}};
}

Result lambada_task(const ModelForWindow& model, const Tokenizer& tokenizer, const TaskOptions& o,
                    const ScoringProgress& report) {
  std::vector<ScoringRequest> requests;
  for (const Example& example : read_examples(o.data, o.limit)) {
    const std::string text = example.text("text");
    const std::size_t space = text.rfind(' ');
    if (space == std::string::npos || space == 0) example.refuse("has no last word after a space");
    requests.push_back(request_for(tokenizer, text.substr(0, space), text.substr(space)));
  }
  const auto scores = score_all(model, requests, o, report);
  double right = 0, log_likelihood = 0;
  for (const Score& s : scores) {
    right += s.greedy;
    log_likelihood += s.log_likelihood;
  }
  const double n = double(scores.size());
  return {{"task", "lambada"},
          {"accuracy", right / n},
          {"accuracy_stderr", standard_error(right / n, scores.size())},
          {"perplexity", std::exp(-log_likelihood / n)},
          {"examples", scores.size()}};
}

std::string clean_hellaswag(std::string text) {
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && space(text.back())) text.pop_back();
  text.erase(0, std::size_t(std::find_if_not(text.begin(), text.end(), space) - text.begin()));
  replace_all(text, " [title]", ". ");
  for (std::size_t open = 0; (open = text.find('[', open)) != std::string::npos;) {
    const std::size_t close = text.find(']', open);
    if (close == std::string::npos) break;
    text.erase(open, close - open + 1);
  }
  for (std::size_t at = 0; (at = text.find("  ", at)) != std::string::npos; ++at) text.erase(at, 1);
  return text;
}

namespace {

// The index of the right ending: a number, or a digit in quotes.
std::size_t label_of(const Example& example) {
  const json label = example.object.value("label", json());
  for (std::size_t i = 0; i < 4; ++i)
    if (label == i || label == std::to_string(i)) return i;
  example.refuse("has no \"label\" from 0 to 3");
}

std::vector<std::string> endings_of(const Example& example) {
  const json endings = example.object.value("endings", json());
  std::vector<std::string> cleaned;
  if (endings.is_array() && endings.size() == 4)
    for (const json& ending : endings)
      if (ending.is_string()) cleaned.push_back(clean_hellaswag(ending.get<std::string>()));
  if (cleaned.size() != 4) example.refuse("has no \"endings\", four strings");
  return cleaned;
}

}  // namespace

Result hellaswag_task(const ModelForWindow& model, const Tokenizer& tokenizer, const TaskOptions& o,
                      const ScoringProgress& report) {
  std::vector<ScoringRequest> requests;
  std::vector<std::size_t> labels;
  std::vector<double> lengths;  // of endings, in characters
  for (const Example& example : read_examples(o.data, o.limit)) {
    const std::string context =
        clean_hellaswag(example.text("activity_label") + ": " + example.text("ctx_a") + " " +
                        capitalized(example.text("ctx_b")));
    labels.push_back(label_of(example));
    for (const std::string& ending : endings_of(example)) {
      requests.push_back(request_for(tokenizer, context, " " + ending));
      lengths.push_back(double(code_points(ending).size()));
    }
  }
  const auto scores = score_all(model, requests, o, report);
  double acc = 0, acc_norm = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::size_t best = 0, best_norm = 0;
    for (std::size_t e = 1; e < 4; ++e) {
      const auto likelihood = [&](std::size_t k) { return scores[4 * i + k].log_likelihood; };
      const auto norm = [&](std::size_t k) { return likelihood(k) / lengths[4 * i + k]; };
      if (likelihood(e) > likelihood(best)) best = e;
      if (norm(e) > norm(best_norm)) best_norm = e;
    }
    acc += best == labels[i];
    acc_norm += best_norm == labels[i];
  }
  const double n = double(labels.size());
  return {{"task", "hellaswag"},
          {"acc", acc / n},
          {"acc_stderr", standard_error(acc / n, labels.size())},
          {"acc_norm", acc_norm / n},
          {"acc_norm_stderr", standard_error(acc_norm / n, labels.size())},
          {"examples", labels.size()}};
}

}  // namespace attnres
