// Drives the kernels through one forward and backward pass, as a model would.
#include "cuda/depth/mixer.h"
#include "cuda/gradcheck/depth_case.h"

namespace attnres::ATTNRES_BACKEND {
namespace {

template <class T>
DeviceArray<T> upload(const auto& values) {
  std::vector<T> converted(std::size_t(values.size()));
  for (Index i = 0; i < values.size(); ++i) converted[std::size_t(i)] = T(float(values.data()[i]));
  return DeviceArray<T>(converted);
}

template <class T>
Matrix<double> download(const DeviceArray<T>& array, Index rows, Index columns) {
  const std::vector<T> values = array.download();
  return Matrix<double>::NullaryExpr(rows, columns, [&](Index r, Index c) {
    return double(float(values[std::size_t(r * columns + c)]));
  });
}

// [S, N, H] on the device to [N, S*H].
Matrix<double> download_weights(const float* weights, Index S, Index N, Index H) {
  std::vector<float> values(std::size_t(S * N * H));
  check_device(
      cudaMemcpy(values.data(), weights, values.size() * sizeof(float), cudaMemcpyDeviceToHost),
      "cudaMemcpy from the device");
  Matrix<double> a(N, S * H);
  for (Index k = 0; k < S; ++k)
    for (Index n = 0; n < N; ++n)
      for (Index h = 0; h < H; ++h)
        a(n, k * H + h) = double(values[std::size_t((k * N + n) * H + h)]);
  return a;
}

template <class T>
DepthResult run(const DepthCase& c, const DepthInputs& in) {
  const Index L = c.sublayers, N = c.tokens, D = c.channels, H = c.mixing.heads;
  const bool routes = c.mixing.kind != DepthMixing::Kind::residual;
  const bool gated = c.mixing.kind == DepthMixing::Kind::delta;
  const auto has_query = [&](Index l) { return routes && (!gated || l <= L); };
  DepthMixer<T> mixer(
      {c.mixing, c.sublayers, c.tokens, c.channels, float(c.eps), c.generation, c.group});
  DepthResult out(c);

  std::vector<DeviceArray<float>> arrays;  // parameters and their gradients
  const auto keep = [&](DeviceArray<float> array) {
    arrays.push_back(std::move(array));
    return arrays.back().data();
  };
  const auto zeros = [&](Index size) {
    return keep(upload<float>(Vector<double>(Vector<double>::Zero(size))));
  };
  std::vector<SiteParameters> parameters(L + 2), gradients(L + 2);
  std::vector<PreNorm<T>> norms(L + 2);
  std::vector<DeviceArray<T>> inputs(L + 2), normed(L + 2);
  std::vector<float*> dgains(L + 2, nullptr);
  for (Index l = 1; l <= L + 1; ++l) {
    inputs[l] = DeviceArray<T>(std::size_t(N * D));
    if (has_query(l)) {
      parameters[l] = {keep(upload<float>(in.queries[l])), keep(upload<float>(in.key_gains[l])),
                       nullptr};
      gradients[l] = {zeros(D), zeros(D), nullptr};
    }
    if (has_query(l) && gated) {
      parameters[l].gate = keep(upload<float>(in.gates.segment(l, 1)));
      gradients[l].gate = zeros(1);
    }
    if (c.pre_norm) {
      normed[l] = DeviceArray<T>(std::size_t(N * D));
      norms[l] = {keep(upload<float>(in.norm_gains[l])), normed[l].data(), zeros(N)};
      dgains[l] = zeros(D);
    }
  }
  const auto values_of = [&](const float* data, Index size) {
    for (const auto& array : arrays)
      if (array.data() == data) return download(array, 1, size);
    return Matrix<double>();
  };

  mixer.begin(parameters);
  mixer.write(0, upload<T>(in.outputs[0]).data());
  for (Index l = 1; l <= L + 1; ++l) {
    mixer.read(int(l), inputs[l].data(), norms[l]);
    out.inputs[l] = download(inputs[l], N, D);
    if (c.pre_norm) out.normed[l] = download(normed[l], N, D);
    if (has_query(l))
      out.weights[l] =
          download_weights(mixer.weights(int(l)), Index(mixer.plan().sources[l].size()), N, H);
    if (l <= L) mixer.write(int(l), upload<T>(in.outputs[l]).data());
  }
  mixer.begin_backward();
  DeviceArray<T> doutput(std::size_t(N * D));
  for (Index l = L + 1; l >= 0; --l) {
    if (l <= L) {
      mixer.write_backward(int(l), doutput.data());
      out.doutputs[l] = download(doutput, N, D);
    }
    if (l > 0)
      mixer.read_backward(int(l), inputs[l].data(), upload<T>(in.dinputs[l]).data(), norms[l],
                          dgains[l]);
  }
  mixer.end_backward(gradients);
  for (Index l = 1; l <= L + 1; ++l) {
    if (has_query(l)) {
      out.dqueries[l] = values_of(gradients[l].query, D);
      out.dkey_gains[l] = values_of(gradients[l].key_gain, D);
      if (gated) out.dgates[l] = values_of(gradients[l].gate, 1);
    }
    if (c.pre_norm) out.dnorm_gains[l] = values_of(dgains[l], D);
  }
  return out;
}

}  // namespace

DepthResult kernel_result(const DepthCase& c, const DepthInputs& inputs) {
  return c.type == RowType::bf16 ? run<__nv_bfloat16>(c, inputs) : run<float>(c, inputs);
}

void require_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0)
    throw DeviceError(std::string("no GPU that CUDA can use here (") + cudaGetErrorString(error) +
                      "); --device emulated runs the same kernels");
}

}  // namespace attnres::ATTNRES_BACKEND
