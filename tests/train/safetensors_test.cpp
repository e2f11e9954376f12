// The safetensors format byte by byte, foreign checkpoints, and what is refused.
#include "train/safetensors.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "tests/train/train_support.h"

using namespace attnres;
using namespace attnres::test;
using nlohmann::json;

namespace {

// A file assembled by hand: header length, header, data.
void write_by_hand(const std::filesystem::path& path, const std::string& header,
                   const std::string& data) {
  const std::uint64_t size = header.size();
  std::string content(reinterpret_cast<const char*>(&size), sizeof size);
  write_text(path, content + header + data);
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

std::string refusal(const std::filesystem::path& path) {
  return error_of([&] { SafetensorsFile file(path); });
}

}  // namespace

TEST_CASE("half and bfloat16 convert exactly: ones, fractions, subnormals, infinities") {
  TemporaryFolder folder;
  write_by_hand(folder / "h.safetensors",
                R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},)"
                R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[12,18]}})",
                bytes_of<std::uint16_t>({0x3c00, 0xc100, 0x0001, 0x03ff, 0x7c00, 0x7bff}) +
                    bytes_of<std::uint16_t>({0x3f80, 0xc040, 0x0001}));
  const SafetensorsFile file(folder / "h.safetensors");
  std::vector<float> h(6), b(3);
  file.read<float>("h", h);
  file.read<float>("b", b);
  CHECK(h == std::vector<float>{1.0f, -2.5f, 0x1p-24f, 1023 * 0x1p-24f, INFINITY, 65504.0f});
  CHECK(b == std::vector<float>{1.0f, -3.0f, 0x1p-133f});
}

TEST_CASE("8-bit floats are what their fields say, all 256 of them") {
  TemporaryFolder folder;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(char(byte));
  write_by_hand(folder / "f.safetensors",
                R"({"a":{"dtype":"F8_E4M3","shape":[256],"data_offsets":[0,256]},)"
                R"("b":{"dtype":"F8_E5M2","shape":[256],"data_offsets":[256,512]}})",
                all + all);
  std::vector<float> a(256), b(256);
  const SafetensorsFile file(folder / "f.safetensors");
  file.read<float>("a", a);
  file.read<float>("b", b);
  const auto value = [](int fields, int mantissa_bits, int bias) {
    const int exponent = fields >> mantissa_bits, mantissa = fields & ((1 << mantissa_bits) - 1);
    const int whole = exponent == 0 ? 0 : 1 << mantissa_bits;
    return std::ldexp(float(whole + mantissa), std::max(exponent, 1) - bias - mantissa_bits);
  };
  for (int byte = 0; byte < 128; ++byte) {
    CAPTURE(byte);
    if (byte == 127) {
      CHECK(std::isnan(a[127]));
    } else {
      CHECK(a[std::size_t(byte)] == value(byte, 3, 7));
      CHECK(a[std::size_t(byte) + 128] == -value(byte, 3, 7));
    }
    if (byte > 124) {
      CHECK(std::isnan(b[std::size_t(byte)]));
    } else if (byte == 124) {
      CHECK(b[124] == INFINITY);
    } else {
      CHECK(b[std::size_t(byte)] == value(byte, 2, 15));
      CHECK(b[std::size_t(byte) + 128] == -value(byte, 2, 15));
    }
  }
}

TEST_CASE("what is written is read back, and the layout is the published one") {
  TemporaryFolder folder;
  const auto path = folder / "t.safetensors";
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<double> b = {0.1};
  const TensorToWrite tensors[] = {{"a", "F32", {2, 3}, std::as_bytes(std::span(a))},
                                   {"b", "F64", {1}, std::as_bytes(std::span(b))}};
  write_safetensors(path, tensors);
  const std::string content = read_file(path);
  std::uint64_t header_size;
  std::memcpy(&header_size, content.data(), 8);
  const json header = json::parse(content.substr(8, header_size));
  CHECK(header["a"]["shape"] == json({2, 3}));
  CHECK(header["b"]["data_offsets"] == json({24, 32}));
  CHECK(content.size() == 8 + header_size + 32);
  std::vector<double> read(6);
  SafetensorsFile(path).read<double>("a", read);
  CHECK(read == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a malformed file is refused: truncated, overlapping, with holes, with wrong sizes") {
  TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  write_text(path, "abc");
  CHECK(contains(refusal(path), "too short"));
  write_by_hand(path, "not json", "");
  CHECK(contains(refusal(path), "not a JSON object"));
  write_text(path, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  CHECK(contains(refusal(path), "truncated"));
  write_by_hand(path, R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234");
  CHECK(contains(refusal(path), "ends at data byte 8, the file has 4"));
  write_by_hand(path, R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678");
  CHECK(contains(refusal(path), "has 8 bytes, its shape needs 12"));
  write_by_hand(path, R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", "12345678");
  CHECK(contains(refusal(path), "unknown dtype Q4"));
  write_by_hand(path,
                R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                "1234567");
  CHECK(contains(refusal(path), "overlap or leave a hole"));
  write_by_hand(path, R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234567");
  CHECK(contains(refusal(path), "3 bytes after the last tensor"));
  write_by_hand(path, R"({"a":{"dtype":"U8"}})", "");
  CHECK(contains(refusal(path), "needs dtype, shape and two data_offsets"));
}

namespace {

// A Hugging Face Llama folder in the given dtype, sharded or not, with the weights of `from`.
void write_llama(const std::filesystem::path& folder, const Parameters<float>& from, bool bf16,
                 bool sharded) {
  std::filesystem::create_directories(folder);
  json config = config_to_json(from.config());
  config.erase("depth_mixing");
  config.erase("qk_norm");
  write_text(folder / "config.json", config.dump());
  std::vector<std::vector<std::uint16_t>> storage;
  std::vector<TensorToWrite> files[2];
  json map = json::object();
  storage.reserve(from.layout().specs.size());
  for (std::size_t i = 0; i < from.layout().specs.size(); ++i) {
    const auto& spec = from.layout().specs[i];
    const std::span<const float> values(from.values().data() + spec.offset,
                                        std::size_t(spec.size()));
    std::span<const std::byte> bytes = std::as_bytes(values);
    if (bf16) {
      auto& converted = storage.emplace_back();
      for (const float value : values)
        converted.push_back(std::uint16_t(std::bit_cast<std::uint32_t>(value) >> 16));
      bytes = std::as_bytes(std::span(converted));
    }
    const int shard = sharded ? int(i % 2) : 0;
    files[shard].push_back({spec.name, bf16 ? "BF16" : "F32", spec.shape, bytes});
    map[spec.name] = "model-0000" + std::to_string(shard + 1) + "-of-00002.safetensors";
  }
  if (!sharded) return write_safetensors(folder / "model.safetensors", files[0]);
  write_safetensors(folder / "model-00001-of-00002.safetensors", files[0]);
  write_safetensors(folder / "model-00002-of-00002.safetensors", files[1]);
  write_text(folder / "model.safetensors.index.json", json{{"weight_map", map}}.dump());
}

}  // namespace

TEST_CASE("a Hugging Face Llama folder loads as a residual model: any dtype, one file or shards") {
  Parameters<float> original(small_config());
  make_interesting(original);
  for (auto& value : original.values())  // values that bfloat16 holds exactly
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000u);
  for (const bool bf16 : {false, true})
    for (const bool sharded : {false, true}) {
      TemporaryFolder folder;
      write_llama(folder.path(), original, bf16, sharded);
      const ModelConfig config = load_config(resolve_model_folder(folder.path()));
      CHECK(config.depth_mixing.kind == DepthMixing::Kind::residual);
      Parameters<float> loaded(config);
      load_parameters(folder.path(), loaded);
      CHECK(same_bits(loaded.values(), original.values()));
    }
}

TEST_CASE("weights that do not fit their config are refused by tensor") {
  Parameters<float> original(small_config());
  TemporaryFolder folder;
  write_llama(folder.path(), original, false, false);
  const auto refusal_with = [&](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = small_config();
    change(config);
    Parameters<float> parameters(config);
    return error_of([&] { load_parameters(folder.path(), parameters); });
  };
  CHECK(contains(
      refusal_with([](auto& c) { c.intermediate_size = 28; }),
      "\"model.layers.0.mlp.down_proj.weight\" has shape [24, 20]; config.json asks for [24, 28]"));
  CHECK(contains(refusal_with([](auto& c) { c.num_hidden_layers = 4; }), "is missing, and 8 more"));
  CHECK(contains(refusal_with([](auto& c) { c.num_hidden_layers = 2; }),
                 "is no parameter of the model"));
  CHECK(contains(refusal_with([](auto& c) {
                   c.depth_mixing = {DepthMixing::Kind::attention, 2};
                 }),
                 "res_norm.weight\" is missing"));
  CHECK(contains(error_of([&] { resolve_model_folder(folder / "nowhere"); }), "no such folder"));
}
