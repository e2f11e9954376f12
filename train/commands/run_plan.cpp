#include "train/commands/run_plan.h"

#include <cstdio>
#include <map>

#include "reference/parallel.h"
#include "train/presets.h"
#include "train/text.h"

namespace attnres {

std::string mixing_text(const ModelConfig& config) {
  const DepthMixing& m = config.depth_mixing;
  if (m.kind == DepthMixing::Kind::residual) return "residual";
  std::string text =
      m.kind == DepthMixing::Kind::delta ? "gated delta of depth attention" : "depth attention";
  text += ", " + std::to_string(m.heads) + (m.heads == 1 ? " head" : " heads");
  if (m.block_sublayers > 1)
    text += ", blocks of " + std::to_string(m.block_sublayers) + " sublayers";
  if (m.window > 0) text += ", window of " + std::to_string(m.window);
  return text;
}

void print_plan(ReferenceModel& model, const RunConfig& run, const DataSplit& data) {
  const ModelConfig& c = model.config();
  const ParameterLayout& layout = model.parameters().layout();
  std::map<ParameterKind, Index> by_kind;
  for (const auto& spec : layout.specs) by_kind[spec.kind] += spec.size();
  std::printf(
      "model       %ld layers, hidden %ld, %ld heads, %ld KV heads, MLP %ld, vocabulary %ld\n",
      long(c.num_hidden_layers), long(c.hidden_size), long(c.num_attention_heads),
      long(c.num_key_value_heads), long(c.intermediate_size), long(c.vocab_size));
  std::printf("mixing      %s\n", mixing_text(c).c_str());
  std::printf("parameters  %s:", with_prefix(double(layout.size)).c_str());
  for (const auto& [kind, count] : by_kind)
    std::printf("  %s %ld", to_string(kind).c_str(), long(count));
  std::printf("\ncompute     %sFLOP per token (6 x parameters of products + causal attention)\n",
              with_prefix(training_flops_per_token(c, run.positions)).c_str());
  const double weights = 4.0 * double(layout.size);
  std::printf(
      "memory      weights %s, gradients %s, moments %s, saved activations %s, depth history %s, "
      "scratch %s\n",
      mebibytes(weights).c_str(), mebibytes(weights).c_str(), mebibytes(2 * weights).c_str(),
      mebibytes(double(model.state().saved_bytes())).c_str(),
      mebibytes(double(model.state().mixer_bytes())).c_str(),
      mebibytes(double(model.state().scratch_bytes())).c_str());
  std::printf("data        %zu training tokens, %zu validation tokens, %s\n", data.train.size(),
              data.validation.size(), data.bytes ? "bytes" : "token shards");
  const double tokens = double(run.schedule.steps) * double(run.tokens_per_step);
  std::printf(
      "run         %ld steps x %ld tokens (%ld micro-batches of %ld x %ld) = %s tokens, %.2f "
      "epochs\n",
      long(run.schedule.steps), long(run.tokens_per_step), long(run.accumulation()),
      long(run.micro_sequences), long(run.positions), with_prefix(tokens).c_str(),
      tokens / double(data.train.size()));
  std::printf(
      "optimizer   AdamW (%g, %g, %g), weight decay %g, clip %g; %s to %g, %ld warm-up steps\n",
      run.adamw.beta1, run.adamw.beta2, run.adamw.eps, run.adamw.weight_decay, run.adamw.clip,
      run.schedule.shape.c_str(), run.schedule.peak, long(run.schedule.warmup));
  std::printf("machine     %d threads, products through %s\n\n", thread_count(),
              matrix_product_library());
  std::fflush(stdout);
}

}  // namespace attnres
