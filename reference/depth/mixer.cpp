#include "reference/depth/mixer.h"

#include "reference/depth/attention_mixer.h"
#include "reference/depth/delta_mixer.h"
#include "reference/depth/residual_mixer.h"
#include "reference/instantiate.h"

namespace attnres {

template <class Scalar>
std::unique_ptr<DepthMixer<Scalar>> make_depth_mixer(const ModelConfig& config, Index tokens) {
  switch (config.depth_mixing.kind) {
    case DepthMixing::Kind::residual:
      return std::make_unique<ResidualMixer<Scalar>>(tokens, config.hidden_size);
    case DepthMixing::Kind::attention:
      return std::make_unique<AttentionMixer<Scalar>>(config, tokens);
    case DepthMixing::Kind::delta:
      return std::make_unique<DeltaMixer<Scalar>>(config, tokens);
  }
  return nullptr;
}

#define INSTANTIATE(S) \
  template std::unique_ptr<DepthMixer<S>> make_depth_mixer<S>(const ModelConfig&, Index);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
