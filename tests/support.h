// What several suites need: random arrays, small models, comparisons, temporary folders.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "reference/parameters.h"
#include "reference/transformer.h"

namespace attnres::test {

using M = Matrix<double>;
using V = Vector<double>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  double uniform(double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(engine_);
  }
  M matrix(Index rows, Index columns, double deviation = 1) {
    return M::NullaryExpr(rows, columns, [&] { return deviation * normal(); });
  }
  V vector(Index size, double deviation = 1) {
    return V::NullaryExpr(size, [&] { return deviation * normal(); });
  }
  std::vector<std::int32_t> tokens(Index count, Index vocabulary) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    for (auto& id : ids) id = std::int32_t(engine_() % std::uint64_t(vocabulary));
    return ids;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

inline double max_difference(const auto& a, const auto& b) {
  return a.size() == 0 ? 0.0 : double((a - b).cwiseAbs().maxCoeff());
}

inline bool same_bits(const auto& a, const auto& b) {
  return a.size() == b.size() && (a.array() == b.array()).all();
}

/// A model that is small and has no round numbers: D 24, 3 layers, 4 heads on 2 KV heads of 6.
inline ModelConfig small_config(DepthMixing mixing = {}) {
  ModelConfig c;
  c.hidden_size = 24;
  c.intermediate_size = 20;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 6;
  c.vocab_size = 17;
  c.max_position_embeddings = 64;
  c.depth_mixing = mixing;
  c.validate();
  return c;
}

/// Initialised as for training but louder, with random queries and gains.
template <class Scalar>
void make_interesting(Parameters<Scalar>& parameters) {
  initialise(parameters, 3);
  randomise_queries(parameters, 4);
  for (const auto& spec : parameters.layout().specs)
    if (spec.decays()) parameters.values().segment(spec.offset, spec.size()) *= Scalar(10);
}

/// A folder that disappears with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "attnres-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// The message of the exception that `body` throws, or "" if it throws none.
template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace attnres::test
