// The safetensors format: a little-endian u64 header length, a JSON header
// {name: {dtype, shape, data_offsets}}, raw row-major data without overlaps or holes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/token_shard.h"
#include "reference/tensor.h"

namespace attnres {

struct TensorInfo {
  std::string dtype;  ///< "F32", "F16", "BF16", "F64", "I32", "I64", ...
  std::vector<Index> shape;
  std::size_t begin = 0, end = 0;  ///< bytes within the data

  Index size() const;
};

/// One file, mapped.  The header is checked whole when it is opened: length, offsets, shapes
/// against sizes, no overlap and no hole.  Throws std::runtime_error "PATH: what, where, what would
/// be right".
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& info(const std::string& name) const;
  /// The tensor converted to float, double or int32 from any dtype that holds such numbers.
  template <class Scalar>
  void read(const std::string& name, std::span<Scalar> out) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, TensorInfo> tensors_;
  std::size_t data_ = 0;  // offset of the data in the file
};

/// A tensor to be written: its bytes stay the caller's.
struct TensorToWrite {
  std::string name, dtype;
  std::vector<Index> shape;
  std::span<const std::byte> bytes;
};

/// Writes the file and fsyncs it; names in the given order.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace attnres
