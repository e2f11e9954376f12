// attnres dump: loss, logits, routing weights and every gradient of one batch, in a safetensors
// file, for checking any other implementation against this one.
#include <cstdio>

#include "reference/cross_entropy.h"
#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/safetensors.h"

namespace attnres {
namespace {

struct Batch {
  Index sequences, positions;
  std::vector<std::int32_t> tokens, targets;
};

Batch read_batch(const std::string& path, Index vocabulary) {
  const SafetensorsFile file(path);
  const TensorInfo& info = file.info("tokens");
  if (info.shape.size() != 2 || info.shape != file.info("targets").shape || info.size() == 0)
    throw std::runtime_error(path + ": tokens and targets must both be [B, T]");
  for (const char* name : {"tokens", "targets"})
    if (file.info(name).dtype != "I32" && file.info(name).dtype != "I64")
      throw std::runtime_error(path + ": " + name + " has dtype " + file.info(name).dtype +
                               "; it must be I32");
  Batch batch{info.shape[0], info.shape[1], {}, {}};
  batch.tokens.resize(std::size_t(info.size()));
  batch.targets.resize(batch.tokens.size());
  file.read<std::int32_t>("tokens", batch.tokens);
  file.read<std::int32_t>("targets", batch.targets);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i] < 0 || batch.tokens[i] >= vocabulary)
      throw std::runtime_error(path + ": tokens[" + std::to_string(i) + "] is " +
                               std::to_string(batch.tokens[i]) + "; the vocabulary ends at " +
                               std::to_string(vocabulary - 1));
    if (batch.targets[i] < kIgnoredTarget || batch.targets[i] >= vocabulary)
      throw std::runtime_error(path + ": targets[" + std::to_string(i) + "] is " +
                               std::to_string(batch.targets[i]) + "; it must be an id below " +
                               std::to_string(vocabulary) + ", or -1 for none");
  }
  return batch;
}

// Everything that goes into the file, as doubles that live until it is written.
class Dump {
 public:
  void add(const std::string& name, std::vector<Index> shape, const Matrix<double>& values) {
    values_.push_back(std::make_unique<Matrix<double>>(values));
    tensors_.push_back(
        {name, "F64", std::move(shape),
         std::as_bytes(std::span(values_.back()->data(), std::size_t(values.size())))});
  }
  void write(const std::string& path) const { write_safetensors(path, tensors_); }
  std::size_t size() const { return tensors_.size(); }

 private:
  std::vector<std::unique_ptr<Matrix<double>>> values_;
  std::vector<TensorToWrite> tensors_;
};

// [N, S*H] as [S, N, H]: sources first, in plan order.
template <class Scalar>
Matrix<double> sources_first(const Matrix<Scalar>& weights, Index heads) {
  const Index N = weights.rows(), S = weights.cols() / heads;
  Matrix<double> result(S * N, heads);
  for (Index k = 0; k < S; ++k)
    result.middleRows(k * N, N) = weights.middleCols(k * heads, heads).template cast<double>();
  return result;
}

template <class Scalar>
std::size_t dump(const std::string& folder, const std::string& tokens, const std::string& out) {
  const auto path = resolve_model_folder(folder);
  const ModelConfig config = load_config(path);
  const Batch batch = read_batch(tokens, config.vocab_size);
  Parameters<Scalar> parameters(config), gradients(config);
  load_parameters(path, parameters);
  const Index B = batch.sequences, T = batch.positions, N = B * T;
  TransformerState<Scalar> state(config, B, T);
  const TokenBatch view{B, T, batch.tokens, batch.targets};
  const Index counted = Index(std::count_if(batch.targets.begin(), batch.targets.end(),
                                            [](std::int32_t target) { return target >= 0; }));
  Matrix<Scalar> logits(N, config.vocab_size);
  transformer_logits<Scalar>(parameters, view, state, logits);
  const double loss = transformer_loss_and_gradients<Scalar>(
      parameters, view, Scalar(1) / Scalar(std::max<Index>(1, counted)), state, gradients);

  Dump file;
  file.add("loss", {1}, Matrix<double>::Constant(1, 1, loss));
  file.add("logits", {B, T, config.vocab_size}, logits.template cast<double>());
  if (const DepthPlan* plan = state.mixer->plan())
    for (Index l = 1; l <= plan->sites(); ++l) {
      const Index S = Index(plan->sources[l].size()), H = config.depth_mixing.heads;
      if (S > 0)
        file.add("weights." + site_name(*plan, l), {S, N, H},
                 sources_first(state.mixer->weights(l), H));
    }
  for (const auto& spec : gradients.layout().specs)
    file.add("grad." + spec.name, spec.shape, gradients.tensor(spec).template cast<double>());
  file.write(out);
  std::printf("loss %.10f\n%zu tensors written to %s\n", loss, file.size(), out.c_str());
  return file.size();
}

}  // namespace

int dump_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres dump",
      "Write loss [1], logits [B,T,V], weights.<site> [S,B*T,H] and grad.<parameter> of "
      "one batch,\nall F64, for checking another implementation.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::string>(options, "", "tokens", "FILE",
                      "safetensors with I32 tokens [B,T] and targets [B,T] (-1: no target)");
  option<std::string>(options, "", "out", "FILE", "safetensors to write");
  option<std::string>(options, "", "scalar", "NAME", "Arithmetic: double or float", "double");
  threads_option(options);
  const auto a =
      parse(options, argc, argv,
            "  attnres init --config model.json --out model --random-queries\n"
            "  attnres dump --checkpoint model --tokens batch.safetensors --out dump.safetensors");
  if (!a) return 0;
  const std::string checkpoint = required(*a, "checkpoint"), tokens = required(*a, "tokens"),
                    out = required(*a, "out");
  const std::string scalar = (*a)["scalar"].as<std::string>();
  if (scalar == "double")
    dump<double>(checkpoint, tokens, out);
  else if (scalar == "float")
    dump<float>(checkpoint, tokens, out);
  else
    throw UsageError("--scalar is double or float, not \"" + scalar + "\"");
  return 0;
}

}  // namespace attnres
