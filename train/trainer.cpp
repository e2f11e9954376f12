#include "train/trainer.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <numbers>
#include <stdexcept>

#include "data/byte_vocabulary.h"
#include "data/files.h"
#include "data/tokenizer/tokenizer.h"
#include "train/machine.h"
#include "train/sampler.h"
#include "train/text.h"

namespace attnres {
namespace {

std::atomic<bool> stop_requested = false;

// Finishes the step at hand and saves on the first SIGINT or SIGTERM; a second one kills.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_requested = false;
    for (const int signal : {SIGINT, SIGTERM})
      std::signal(signal, [](int number) {
        stop_requested = true;
        std::signal(number, SIG_DFL);
      });
  }
  ~StopOnSignal() {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  }
};

bool is_due(Index every, Index step, Index last) {
  return step == last || (every > 0 && step % every == 0);
}

}  // namespace

void rewind_log(const std::filesystem::path& log, Index step) {
  if (!std::filesystem::exists(log)) return;
  std::ifstream file(log);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_object() && entry.value("step", Index(0)) <= step) kept += line + "\n";
  }
  write_file_atomically(log, kept);
}

Trainer::Trainer(Model& model, DataSplit data, RunState state, std::filesystem::path run_folder,
                 Console& console)
    : model_(model),
      data_(std::move(data)),
      state_(std::move(state)),
      run_folder_(std::move(run_folder)),
      console_(console),
      loader_(Windows(data_.train, std::size_t(state_.config.positions)), state_.config.seed),
      validation_(data_.validation, std::size_t(state_.config.positions)),
      tokens_(std::size_t(state_.config.tokens_per_step)),
      targets_(tokens_.size()),
      peak_gflops_(measure_matmul_gflops()),
      flops_per_token_(training_flops_per_token(model.config(), state_.config.positions)) {
  const std::string train_hash = to_hex(data_.train.hash());
  const std::string validation_hash = to_hex(data_.validation.hash());
  if (!state_.train_hash.empty() &&
      (train_hash != state_.train_hash || validation_hash != state_.validation_hash))
    throw std::runtime_error("the data is not what this run began with: its token hashes are " +
                             train_hash + " and " + validation_hash + ", run.json has " +
                             state_.train_hash + " and " + state_.validation_hash);
  state_.train_hash = train_hash;
  state_.validation_hash = validation_hash;
  loader_.seek(state_.position);
  std::filesystem::create_directories(run_folder_ / "checkpoints");
  rewind_log(run_folder_ / "log.jsonl", state_.step);
}

bool Trainer::run() {
  const StopOnSignal guard;
  const RunConfig& c = state_.config;
  log({{"type", "run"},
       {"step", state_.step},
       {"parameters", model_.parameters().layout().size},
       {"flops_per_token", flops_per_token_},
       {"peak_gflops", peak_gflops_},
       {"train_tokens", data_.train.size()},
       {"train_hash", state_.train_hash},
       {"validation_tokens", data_.validation.size()},
       {"validation_hash", state_.validation_hash},
       {"config", to_json(c)}});
  while (state_.step < c.schedule.steps) {
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = step();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seconds_ += seconds;
    ++steps_timed_;
    tokens_per_second_ = double(c.tokens_per_step) / seconds;
    log({{"type", "step"},
         {"step", state_.step},
         {"loss", result.loss},
         {"learning_rate", result.rate},
         {"gradient_norm", result.norm},
         {"tokens_per_second", std::round(tokens_per_second_)}});
    console_.live(live_text(result));
    const Index last = c.schedule.steps;
    if (is_due(c.eval_every, state_.step, last)) evaluate_now();
    if (c.sample_every > 0 && state_.step % c.sample_every == 0 && state_.step < last) sample_now();
    if (is_due(c.save_every, state_.step, last) || stop_requested) save_now();
    if (stop_requested && state_.step < last) {
      console_.finish();
      return false;
    }
  }
  if (last_evaluation_.tokens == 0) evaluate_now();  // the run was complete before it was resumed
  console_.finish();
  return true;
}

// One optimizer step: the gradient of the mean loss over all its micro-batches, then AdamW.
Trainer::StepResult Trainer::step() {
  const RunConfig& c = state_.config;
  const std::size_t micro_tokens = std::size_t(c.micro_sequences * c.positions);
  const std::size_t counted = loader_.next(std::size_t(c.sequences_per_step()), tokens_, targets_);
  const float scale = 1.0f / float(counted);
  double loss_sum = 0;
  for (std::size_t first = 0; first < tokens_.size(); first += micro_tokens)
    loss_sum += model_.accumulate(
        {c.micro_sequences, c.positions, std::span(tokens_).subspan(first, micro_tokens),
         std::span(targets_).subspan(first, micro_tokens)},
        scale);
  const Index t = state_.step + 1;
  const StepResult result{loss_sum / double(counted), model_.gradient_norm(), c.schedule.rate(t)};
  stop_if_not_finite(result);
  model_.update(c.adamw, result.rate, t, result.norm);
  state_.step = t;
  state_.position = loader_.position();
  return result;
}

void Trainer::stop_if_not_finite(const StepResult& result) const {
  if (std::isfinite(result.loss) && std::isfinite(result.norm)) return;
  const std::string tensor = model_.non_finite_gradient();
  const auto good = newest_valid_checkpoint(run_folder_, [](const std::string&) {});
  throw std::runtime_error("step " + std::to_string(state_.step + 1) + ": the loss is " +
                           format("%g", result.loss) +
                           (tensor.empty() ? "; all gradients are finite"
                                           : "; the first non-finite gradient is " + tensor) +
                           "; the newest good checkpoint is " + (good ? good->string() : "none") +
                           "; a lower --lr or --clip may help");
}

void Trainer::evaluate_now() {
  const RunConfig& c = state_.config;
  last_evaluation_ = evaluate(model_, validation_, windows_for(validation_, c.eval_tokens),
                              c.micro_sequences, data_.bytes);
  const Evaluation& e = last_evaluation_;
  nlohmann::ordered_json entry = {{"type", "evaluation"}, {"step", state_.step},
                                  {"loss", e.loss()},     {"perplexity", e.perplexity()},
                                  {"tokens", e.tokens},   {"hash", to_hex(e.hash)}};
  if (e.bytes > 0) entry["bits_per_byte"] = e.bits_per_byte();
  log(entry);
  console_.line(format("step %5ld  validation loss %.4f", long(state_.step), e.loss()) +
                (e.bytes > 0 ? format("  bits per byte %.4f", e.bits_per_byte())
                             : format("  perplexity %.2f", e.perplexity())));
}

std::string Trainer::sample_text(std::uint64_t seed) {
  SamplingOptions options;
  options.tokens = state_.config.sample_tokens;
  options.seed = seed;
  options.vocabulary = data_.vocabulary;
  std::string text = state_.config.prompt;
  sample(model_, Tokenizer::bytes().encode(text), options, [&](std::int32_t token) {
    if (token < ByteVocabulary::kEndOfDocument) text.push_back(char(token));
    return true;
  });
  return text;
}

void Trainer::sample_now() {
  if (!data_.bytes) return;
  const std::string text = sample_text(state_.config.seed + std::uint64_t(state_.step));
  log({{"type", "sample"}, {"step", state_.step}, {"text", text}});
  console_.line("--- sample at step " + std::to_string(state_.step) + " ---\n" + text + "\n---");
}

void Trainer::save_now() { save_checkpoint(run_folder_, model_, state_); }

void Trainer::log(const nlohmann::ordered_json& entry) {
  std::ofstream file(run_folder_ / "log.jsonl", std::ios::app);
  // A sample may end inside a UTF-8 character: such bytes become U+FFFD in the log.
  file << entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  if (!file.flush())
    throw std::runtime_error((run_folder_ / "log.jsonl").string() + ": cannot be written");
}

std::string Trainer::live_text(const StepResult& result) const {
  const RunConfig& c = state_.config;
  const double mean = seconds_ / double(steps_timed_);
  const double utilisation = tokens_per_second_ * flops_per_token_ / (peak_gflops_ * 1e9);
  return format("step %ld/%ld  loss %.3f", long(state_.step), long(c.schedule.steps), result.loss) +
         (data_.bytes ? format("  bits/byte %.3f", result.loss / std::numbers::ln2)
                      : std::string()) +
         format("  %s tokens/s  MFU %.0f %%  left %s", with_prefix(tokens_per_second_).c_str(),
                100 * utilisation, duration(mean * double(c.schedule.steps - state_.step)).c_str());
}

}  // namespace attnres
