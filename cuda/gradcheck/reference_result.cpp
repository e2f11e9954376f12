// The oracle: the reference's mixer in float64.  It shares nothing with the kernels but the plan.
#include "cuda/gradcheck/depth_case.h"
#include "reference/depth/mixer.h"
#include "reference/rms_norm.h"

namespace attnres {

DepthResult reference_result(const DepthCase& c, const DepthInputs& in) {
  const Index L = c.sublayers, N = c.tokens, D = c.channels;
  const bool routes = c.mixing.kind != DepthMixing::Kind::residual;
  const bool gated = c.mixing.kind == DepthMixing::Kind::delta;
  const auto has_query = [&](Index l) { return routes && (!gated || l <= L); };
  const auto mixer = make_depth_mixer<double>(model_of(c), N);
  DepthResult out(c);

  auto queries = in.queries, key_gains = in.key_gains;
  auto gates = in.gates;
  std::vector<Vector<double>> dqueries(L + 2, Vector<double>::Zero(D)), dkey_gains = dqueries;
  Vector<double> dgates = Vector<double>::Zero(L + 2);
  std::vector<SiteParameters<double>> parameters(L + 2), gradients(L + 2);
  const auto set = [](VectorView<double>& view, Vector<double>& values) {
    new (&view) VectorView<double>(values.data(), values.size());
  };
  for (Index l = 1; l <= L + 1; ++l) {
    if (!has_query(l)) continue;
    set(parameters[l].query, queries[l]);
    set(parameters[l].key_gain, key_gains[l]);
    set(gradients[l].query, dqueries[l]);
    set(gradients[l].key_gain, dkey_gains[l]);
    if (!gated) continue;
    parameters[l].gate = &gates[l];
    gradients[l].gate = &dgates[l];
  }

  std::vector<Vector<double>> norm_rstd(L + 2, Vector<double>(N));
  mixer->begin(parameters);
  mixer->write(0, in.outputs[0]);
  for (Index l = 1; l <= L + 1; ++l) {
    out.inputs[l].resize(N, D);
    mixer->read(l, out.inputs[l]);
    if (has_query(l)) out.weights[l] = mixer->weights(l);
    if (c.pre_norm) {
      out.normed[l].resize(N, D);
      rms_norm_forward<double>(out.inputs[l], in.norm_gains[l], c.eps, out.normed[l], norm_rstd[l]);
    }
    if (l <= L) mixer->write(l, in.outputs[l]);
  }

  mixer->begin_backward();
  for (Index l = L + 1; l >= 0; --l) {
    if (l <= L) {
      out.doutputs[l].resize(N, D);
      mixer->write_backward(l, out.doutputs[l]);
    }
    if (l == 0) break;
    Matrix<double> dinput = in.dinputs[l];
    if (c.pre_norm) {
      Vector<double> dgain = Vector<double>::Zero(D);
      rms_norm_backward<double>(in.dinputs[l], out.inputs[l], in.norm_gains[l], norm_rstd[l],
                                dinput, dgain);
      out.dnorm_gains[l] = dgain.transpose();
    }
    mixer->read_backward(l, out.inputs[l], dinput);
  }
  mixer->end_backward(parameters, gradients);
  for (Index l = 1; l <= L + 1; ++l) {
    if (!has_query(l)) continue;
    out.dqueries[l] = dqueries[l].transpose();
    out.dkey_gains[l] = dkey_gains[l].transpose();
    if (gated) out.dgates[l] = Matrix<double>::Constant(1, 1, dgates[l]);
  }
  return out;
}

}  // namespace attnres
