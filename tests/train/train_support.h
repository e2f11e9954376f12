// A tiny model and corpus that train in milliseconds.
#pragma once

#include "data/token_data.h"
#include "reference/parallel.h"
#include "tests/support.h"
#include "train/trainer.h"

namespace attnres::test {

/// Bytes of a small, predictable text.
inline DataSplit small_data(std::size_t tokens = 4000) {
  const std::string phrase = "it is a truth universally acknowledged; ";
  std::vector<std::uint16_t> ids;
  for (std::size_t i = 0; i < tokens; ++i)
    ids.push_back(std::uint16_t(phrase[i * i % phrase.size()] & 127));
  TokenData all;
  all.append(std::move(ids));
  DataSplit split;
  split.train = all.part(0, tokens / 10 * 9);
  split.validation = all.part(tokens / 10 * 9, tokens - tokens / 10 * 9);
  split.bytes = true;
  split.vocabulary = 257;
  return split;
}

inline ModelConfig tiny_model(DepthMixing mixing = {DepthMixing::Kind::attention, 2}) {
  ModelConfig c = small_config(mixing);
  c.vocab_size = 320;
  return c;
}

inline RunConfig tiny_run(Index steps) {
  RunConfig run;
  run.positions = 16;
  run.tokens_per_step = 64;
  run.schedule = {.peak = 3e-3, .warmup = 2, .steps = steps};
  run.eval_every = 0;
  run.save_every = 0;
  run.eval_tokens = 64;
  run.sample_tokens = 4;
  run.resolve();
  return run;
}

/// A run that has not begun, and its model.
struct TinyRun {
  TinyRun(const RunConfig& config, std::filesystem::path out,
          DepthMixing mixing = {DepthMixing::Kind::attention, 2})
      : model(tiny_model(mixing), config.micro_sequences, config.positions),
        folder(std::move(out)) {
    state.config = config;
    initialise(model.parameters(), config.seed);
  }
  RunState train() {
    Trainer trainer(model, small_data(), state, folder, console);
    trainer.run();
    return trainer.state();
  }

  ReferenceModel model;
  std::filesystem::path folder;
  RunState state;
  Console console;
};

}  // namespace attnres::test
