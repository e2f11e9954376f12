#include "train/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "data/files.h"

namespace attnres {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw std::runtime_error(path.string() + ": " + what);
}

std::size_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, std::size_t> sizes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4},     {"I32", 4},
      {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2},     {"U16", 2},
      {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

// IEEE 754 half precision, by exponent: zero and subnormal, normal, infinity and NaN.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t(half & 0x8000) << 16;
  const std::uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(mantissa) * 0x1p-24f));
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// 8 bits (Micikevicius et al. 2022, arXiv 2209.05433).  E5M2 is the upper byte of a half; E4M3 has
// no infinity and one NaN, and its largest exponent holds numbers like any other.
float e5m2_to_float(std::uint8_t value) { return half_to_float(std::uint16_t(value << 8)); }

float e4m3_to_float(std::uint8_t value) {
  const std::uint32_t sign = std::uint32_t(value & 0x80) << 24;
  const std::uint32_t exponent = (value >> 3) & 15, mantissa = value & 7;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(float(mantissa) * 0x1p-9f));
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

float bfloat_to_float(std::uint16_t value) {
  return std::bit_cast<float>(std::uint32_t(value) << 16);
}

template <class Stored, class Scalar, class Convert>
void convert_all(const std::byte* data, std::span<Scalar> out, const Convert& convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, data + i * sizeof(Stored), sizeof(Stored));
    const auto converted = convert(value);
    if constexpr (std::is_integral_v<Scalar>)
      if (double(converted) < -0x1p31 || double(converted) >= 0x1p31)
        throw std::range_error("holds " + std::to_string(converted) + ", beyond 32-bit integers");
    out[i] = Scalar(converted);
  }
}

TensorInfo tensor_info(const std::filesystem::path& path, const std::string& name,
                       const json& entry, std::size_t data_size) {
  TensorInfo info;
  try {
    info.dtype = entry.at("dtype").get<std::string>();
    info.shape = entry.at("shape").get<std::vector<Index>>();
    const auto offsets = entry.at("data_offsets").get<std::vector<std::size_t>>();
    if (offsets.size() != 2) throw std::out_of_range("offsets");
    info.begin = offsets[0];
    info.end = offsets[1];
  } catch (const std::exception&) {
    refuse(path, "tensor \"" + name + "\" needs dtype, shape and two data_offsets");
  }
  const std::size_t width = dtype_bytes(info.dtype);
  if (width == 0) refuse(path, "tensor \"" + name + "\" has the unknown dtype " + info.dtype);
  Index values = 1;
  for (const Index dimension : info.shape)
    if (dimension < 0 || __builtin_mul_overflow(values, dimension, &values))
      refuse(path, "tensor \"" + name + "\" has an impossible shape");
  if (Index bytes; __builtin_mul_overflow(values, Index(width), &bytes))
    refuse(path, "tensor \"" + name + "\" has an impossible shape");
  if (info.end < info.begin || info.end > data_size)
    refuse(path, "tensor \"" + name + "\" ends at data byte " + std::to_string(info.end) +
                     ", the file has " + std::to_string(data_size) + " (truncated?)");
  if (info.end - info.begin != std::size_t(info.size()) * width)
    refuse(path, "tensor \"" + name + "\" has " + std::to_string(info.end - info.begin) +
                     " bytes, its shape needs " + std::to_string(std::size_t(info.size()) * width));
  return info;
}

// Data must be covered exactly once: sorted by offset, each tensor begins where the last ended.
void check_coverage(const std::filesystem::path& path,
                    const std::map<std::string, TensorInfo>& tensors, std::size_t data_size) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& [name, info] : tensors) ranges.emplace_back(info.begin, info.end);
  std::sort(ranges.begin(), ranges.end());
  std::size_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered)
      refuse(path, "tensors overlap or leave a hole at data byte " + std::to_string(covered));
    covered = end;
  }
  if (covered != data_size)
    refuse(path, std::to_string(data_size - covered) + " bytes after the last tensor");
}

}  // namespace

Index TensorInfo::size() const {
  return std::accumulate(shape.begin(), shape.end(), Index(1), std::multiplies<>());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const auto bytes = file_.bytes();
  std::uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) refuse(path, "is too short to be a safetensors file");
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > bytes.size() - sizeof header_size)
    refuse(path, "promises a header of " + std::to_string(header_size) + " bytes but has " +
                     std::to_string(bytes.size()) + " (truncated, or not safetensors)");
  data_ = sizeof header_size + header_size;
  const char* begin = reinterpret_cast<const char*>(bytes.data()) + sizeof header_size;
  const json header = json::parse(begin, begin + header_size, nullptr, false);
  if (!header.is_object()) refuse(path, "has a header that is not a JSON object");
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__")
      tensors_[name] = tensor_info(path, name, entry, bytes.size() - data_);
  check_coverage(path, tensors_, bytes.size() - data_);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(path_, "has no tensor \"" + name + '"');
  return found->second;
}

template <class Scalar>
void SafetensorsFile::read(const std::string& name, std::span<Scalar> out) const {
  const TensorInfo& t = info(name);
  if (std::size_t(t.size()) != out.size())
    refuse(path_, "tensor \"" + name + "\" has " + std::to_string(t.size()) + " values, not " +
                      std::to_string(out.size()));
  const std::byte* data = file_.bytes().data() + data_ + t.begin;
  const auto same = [](auto value) { return value; };
  try {
    if (t.dtype == "F64") return convert_all<double>(data, out, same);
    if (t.dtype == "F32") return convert_all<float>(data, out, same);
    if (t.dtype == "F16") return convert_all<std::uint16_t>(data, out, half_to_float);
    if (t.dtype == "BF16") return convert_all<std::uint16_t>(data, out, bfloat_to_float);
    if (t.dtype == "F8_E4M3") return convert_all<std::uint8_t>(data, out, e4m3_to_float);
    if (t.dtype == "F8_E5M2") return convert_all<std::uint8_t>(data, out, e5m2_to_float);
    if (t.dtype == "I32") return convert_all<std::int32_t>(data, out, same);
    if (t.dtype == "I64") return convert_all<std::int64_t>(data, out, same);
  } catch (const std::range_error& error) {
    refuse(path_, "tensor \"" + name + "\" " + error.what());
  }
  refuse(path_, "tensor \"" + name + "\" has dtype " + t.dtype +
                    "; F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I32 and I64 can be read");
}

template void SafetensorsFile::read<float>(const std::string&, std::span<float>) const;
template void SafetensorsFile::read<double>(const std::string&, std::span<double>) const;
template void SafetensorsFile::read<std::int32_t>(const std::string&,
                                                  std::span<std::int32_t>) const;

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers asks
  std::size_t offset = 0;
  for (const auto& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  const std::uint64_t size = text.size();
  std::vector<std::string_view> pieces = {{reinterpret_cast<const char*>(&size), sizeof size},
                                          text};
  for (const auto& tensor : tensors)
    pieces.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  write_file_atomically(path, pieces);
}

}  // namespace attnres
