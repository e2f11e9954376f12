// Routing alone, as a training step would drive it: every sublayer's output and every gradient is
// already where the banks keep it, so that only what routing itself moves is moved.
#pragma once

#include <random>

#include "cuda/depth/mixer.h"

namespace attnres::ATTNRES_BACKEND {

template <class T>
class RoutingStep {
 public:
  explicit RoutingStep(const DepthShape& shape)
      : mixer_(shape),
        sublayers_(shape.sublayers),
        rows_(std::size_t(shape.tokens) * std::size_t(shape.channels)),
        parameters_(std::size_t(shape.sublayers) + 2),
        gradients_(parameters_.size()) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    const std::size_t D = std::size_t(shape.channels);
    std::vector<T> row_values(rows_);
    for (T& x : row_values) x = T(normal(engine));
    for (int i = 0; i <= sublayers_; ++i) copy(row_values, mixer_.source(i));
    for (int l = 1; l <= sublayers_ + 1; ++l) {
      std::vector<float> query(D), ones(D, 1.0f), zeros(D, 0.0f);
      for (float& q : query) q = normal(engine) / std::sqrt(float(D));
      parameters_[l] = {keep(query), keep(ones), nullptr};
      gradients_[l] = {keep(zeros), keep(zeros), nullptr};
      outputs_.emplace_back(rows_);
      copy(row_values, mixer_.gradient(l));
    }
    doutput_ = DeviceArray<T>(rows_);
  }

  void forward() {
    mixer_.begin(parameters_);
    for (int l = 1; l <= sublayers_ + 1; ++l) {
      mixer_.write(l - 1, mixer_.source(l - 1));
      mixer_.read(l, output(l));
    }
  }
  void backward() {
    mixer_.begin_backward();
    for (int l = sublayers_ + 1; l >= 1; --l) {
      if (l <= sublayers_) mixer_.write_backward(l, doutput_.data());
      mixer_.read_backward(l, output(l), mixer_.gradient(l));
    }
    mixer_.write_backward(0, doutput_.data());
    mixer_.end_backward(gradients_);
  }
  DepthMixer<T>& mixer() { return mixer_; }
  T* output(int site) { return outputs_[std::size_t(site) - 1].data(); }

 private:
  float* keep(const std::vector<float>& values) {
    kept_.emplace_back(values);
    return kept_.back().data();
  }
  void copy(const std::vector<T>& values, T* to) {
    check_device(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
                 "cudaMemcpy to the device");
  }

  DepthMixer<T> mixer_;
  int sublayers_;
  std::size_t rows_;
  std::vector<SiteParameters> parameters_, gradients_;
  std::vector<DeviceArray<float>> kept_;
  std::vector<DeviceArray<T>> outputs_;
  DeviceArray<T> doutput_;
};

}  // namespace attnres::ATTNRES_BACKEND
