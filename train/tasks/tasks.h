// Published evaluation sets: LAMBADA and HellaSwag as lm-evaluation-harness scores them (Gao et al.
// 2021), WikiText-2 in sliding windows over the raw text.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "train/tasks/scoring.h"

namespace attnres {

/// The model to score with, for windows of so many tokens: short examples need short ones.
using ModelForWindow = std::function<Model&(Index positions)>;

struct TaskOptions {
  std::filesystem::path data;
  Index sequences = 8;
  Index positions = 1024;  ///< longest window
  Index stride = 512;      ///< of wikitext2's windows
  std::size_t limit = 0;   ///< examples, 0: all (wikitext2 has one: the text)
};

/// WikiText-2 raw (or any text): {"loss", "perplexity", "word_perplexity", "bits_per_byte", ...}.
/// The text is one document; a word is what white space separates, in the text as it is read.
nlohmann::ordered_json wikitext_task(const ModelForWindow& model, const Tokenizer& tokenizer,
                                     const TaskOptions& options, const ScoringProgress& report);
/// LAMBADA, OpenAI's variant, jsonl {"text"}: the last word after a space is the continuation.
/// {"accuracy": share predicted greedily, "perplexity": exp of the mean negative log likelihood}.
nlohmann::ordered_json lambada_task(const ModelForWindow& model, const Tokenizer& tokenizer,
                                    const TaskOptions& options, const ScoringProgress& report);
/// HellaSwag, the published jsonl: {"acc": by log likelihood, "acc_norm": divided by the ending's
/// characters}.
nlohmann::ordered_json hellaswag_task(const ModelForWindow& model, const Tokenizer& tokenizer,
                                      const TaskOptions& options, const ScoringProgress& report);

/// lm-evaluation-harness's cleaning of a HellaSwag text: brackets out, " [title]" to ". ".
std::string clean_hellaswag(std::string text);

}  // namespace attnres
