// The program as a person meets it: help, output, errors of one line, exit statuses, nothing
// half-written.
#include <sys/wait.h>

#include <array>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "data/token_shard.h"
#include "data/tokenizer/byte_pair_encoding.h"
#include "tests/train/train_support.h"
#include "train/safetensors.h"

using namespace attnres;
using namespace attnres::test;

namespace {

struct Result {
  int status;
  std::string output;  // standard output and error together
};

Result attnres_program(const std::string& arguments) {
  FILE* pipe = ::popen((ATTNRES_PROGRAM " " + arguments + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

// A failure is one line that says what, and a status: 2 for usage, 1 for the rest.
void check_failure(const std::string& arguments, int status, const std::string& part) {
  const Result r = attnres_program(arguments);
  INFO(arguments, " -> ", r.output);
  CHECK(r.status == status);
  CHECK(contains(r.output, part));
  CHECK(r.output.starts_with("attnres: "));
  CHECK(std::count(r.output.begin(), r.output.end(), '\n') == 1);
}

std::string small_model_json(const std::filesystem::path& path,
                             const DepthMixing& mixing = {DepthMixing::Kind::attention, 2}) {
  write_text(path, config_to_json(tiny_model(mixing)).dump());
  return path.string();
}

// Trains the tiny model for a few steps in `folder`/run and returns that path.
std::string tiny_run_folder(const TemporaryFolder& folder, const std::string& more = "") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "It is a truth universally acknowledged. ";
  write_text(folder / "text.txt", text);
  const std::string out = (folder / "run").string();
  const Result r = attnres_program("train --config " + small_model_json(folder / "model.json") +
                                   " --data " + (folder / "text.txt").string() +
                                   " --seq 16 --tokens-per-step 64 --steps 6 --out " + out +
                                   " --save-every 2 --eval-every 3 --eval-tokens 100 " + more);
  INFO(r.output);
  REQUIRE(r.status == 0);
  return out;
}

}  // namespace

TEST_CASE("every command explains itself with examples, defaults and units") {
  const Result all = attnres_program("--help");
  CHECK(all.status == 0);
  for (const std::string command : {"train", "sample", "eval", "inspect", "gradcheck", "dump",
                                    "init", "tokenize", "convert", "export"}) {
    CHECK(contains(all.output, command));
    const Result help = attnres_program(command + " --help");
    CHECK(help.status == 0);
    CHECK(contains(help.output, "Examples:"));
    CHECK(contains(help.output, "attnres " + command));
  }
  CHECK(attnres_program("").status == 2);
}

TEST_CASE("usage mistakes: one line, status 2") {
  check_failure("frobnicate", 2, "no command \"frobnicate\"");
  check_failure("train --no-such-option", 2, "no-such-option");
  check_failure("train --steps many --out x", 2, "many");
  check_failure("train stray --out x", 2, "stray");
  check_failure("sample", 2, "--checkpoint is needed");
  check_failure("gradcheck --only nothing-like-this", 2, "nothing-like-this");
  check_failure("gradcheck --device abacus", 2, "it can be reference, emulated or cuda");
  check_failure("gradcheck --device emulated --dtype fp8", 2, "it can be fp32 or bf16");
  check_failure("gradcheck --device emulated --heads 7", 2, "no case has this plan");
  check_failure("train --out x --resume --lr 3", 2, "--lr cannot change");
}

TEST_CASE("what does not fit together is said before anything is written") {
  TemporaryFolder folder;
  const std::string out = " --out " + (folder / "run").string();
  check_failure("train --preset 3t" + out, 2, "unknown preset \"3t\"");
  check_failure("train --mixing highway" + out, 2, "unknown mixing \"highway\"");
  check_failure("train --depth-heads 5" + out, 2,
                "hidden_size 128 is not divisible by depth_mixing.heads 5");
  check_failure("train --mixing residual --depth-heads 4" + out, 2, "no depth heads");
  check_failure("train --tokens-per-step 1000" + out, 2, "multiple of the sequence length 256");
  check_failure("train --schedule zigzag" + out, 2, "zigzag");
  check_failure("train --mixing mhar --depth-blocks 4" + out, 2, "mhar has no depth blocks");
  check_failure("train --seq 0" + out, 2, "sequence length must be positive");
  check_failure("train --eps 0" + out, 2, "--eps must be positive");
  check_failure("train --prompt ''" + out, 2, "prompt must not be empty");
  check_failure("train --threads -1" + out, 2, "--threads must lie");
  check_failure("train --vocab 99999999999" + out, 2, "--vocab must lie");
  check_failure("train --data nothing.txt" + out, 1, "nothing.txt: no such text or token file");
  check_failure("train --config nothing.json" + out, 1, "nothing.json: no such file");
  write_text(folder / "broken.json", "{\"hidden_size\": }");
  check_failure("train --config " + (folder / "broken.json").string() + out, 1,
                "not valid JSON at byte 17");
  check_failure("train --resume" + out, 1, "holds no complete checkpoint");
  CHECK(!std::filesystem::exists(folder / "run"));
}

TEST_CASE("bad token files are refused with file and offset") {
  TemporaryFolder folder;
  const std::string path = (folder / "tokens.bin").string();
  std::vector<std::uint16_t> tokens(2000, 5);
  tokens[1500] = 60000;
  write_token_shard(path, tokens);
  check_failure("train --data " + path + " --dry-run", 1,
                path + ": has token id 60000 at offset 4024");
  std::filesystem::resize_file(path, 3000);
  check_failure("train --data " + path + " --dry-run", 1, "its header promises 2000 tokens");
}

TEST_CASE("a model with a tokenizer of its own is trained on its tokens, and keeps the tokenizer") {
  TemporaryFolder folder;
  const std::string model = (folder / "model").string(), run = (folder / "run").string();
  ModelConfig config = tiny_model({});
  config.vocab_size = 300;
  write_text(folder / "model.json", config_to_json(config).dump());
  REQUIRE(attnres_program("init --config " + (folder / "model.json").string() + " --out " + model)
              .status == 0);
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[byte_symbol(static_cast<unsigned char>(byte))] = byte;
  const nlohmann::json tokenizer = {
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"added_tokens", {{{"id", 299}, {"content", "<|endoftext|>"}, {"special", true}}}}};
  write_text(folder / "model/tokenizer.json", tokenizer.dump());
  const std::string text = (folder / "text.txt").string();
  std::string words;
  for (int i = 0; i < 300; ++i) words += "all the words there are ";
  write_text(text, words);
  const std::string train = "train --init " + model +
                            " --seq 16 --tokens-per-step 64 --steps 2 "
                            "--eval-tokens 64 --out " +
                            run + " --data ";
  check_failure(train + text, 1, "text.txt: is text, but the model was trained on token shards");
  REQUIRE(attnres_program("tokenize --data " + text + " --tokenizer " + model + " --out " +
                          (folder / "shards").string())
              .status == 0);
  // The model's 300 ids bound the shards, without --vocab.
  const Result trained = attnres_program(train + (folder / "shards/*.bin").string());
  INFO(trained.output);
  REQUIRE(trained.status == 0);
  CHECK(std::filesystem::exists(folder / "run/tokenizer.json"));
  const Result sampled = attnres_program("sample --checkpoint " + run + " --tokens 3 --prompt all");
  INFO(sampled.output);
  CHECK(sampled.status == 0);
  REQUIRE(attnres_program("export --checkpoint " + run + " --out " + (folder / "out").string())
              .status == 0);
  CHECK(std::filesystem::exists(folder / "out/tokenizer.json"));
}

TEST_CASE("a dry run prints the plan and writes nothing") {
  const Result r = attnres_program("train --preset quickstart --mixing mhar --dry-run");
  CHECK(r.status == 0);
  for (const char* part : {"parameters", "depth query 1664", "FLOP per token", "moments",
                           "depth history", "steps x", "epochs"})
    CHECK(contains(r.output, part));
  const Result paper = attnres_program("train --preset 100m --micro-batch 1 --dry-run");
  CHECK(paper.status == 0);
  CHECK(contains(paper.output, "131072 tokens (64 micro-batches of 1 x 2048)"));
}

TEST_CASE("train, eval, sample and inspect work on one run; resume continues it") {
  TemporaryFolder folder;
  const std::string run = tiny_run_folder(folder);
  for (const char* name : {"config.json", "log.jsonl", "loss.svg", "routing.svg",
                           "checkpoints/step-00000006/complete.json"})
    CHECK(std::filesystem::exists(std::filesystem::path(run) / name));
  check_failure("train --out " + run, 1, "already holds a run");

  const std::string text = (folder / "text.txt").string(), json = (folder / "eval.json").string();
  const Result eval =
      attnres_program("eval --checkpoint " + run + " --data " + text + " --json " + json);
  CHECK(eval.status == 0);
  CHECK(contains(eval.output, "bits per byte"));
  CHECK(read_json(json)["tokens"] == 8000);

  const Result sample =
      attnres_program("sample --checkpoint " + run + " --tokens 20 --seed 3 --prompt Truth");
  CHECK(sample.status == 0);
  CHECK(sample.output.starts_with("Truth"));
  CHECK(sample.output ==
        attnres_program("sample --checkpoint " + run + " --tokens 20 --seed 3 --prompt Truth")
            .output);

  const std::string svg = (folder / "map.svg").string();
  const Result inspect = attnres_program("inspect --checkpoint " + run + " --data " + text +
                                         " --seq 16 --svg " + svg + " --json " + json);
  CHECK(inspect.status == 0);
  CHECK(contains(inspect.output, "gradient norm"));
  CHECK(read_json(json)["sites"].size() == 7);
  CHECK(std::filesystem::exists(svg));

  const std::string log = read_file(std::filesystem::path(run) / "log.jsonl");
  std::filesystem::remove_all(std::filesystem::path(run) / "checkpoints/step-00000006");
  CHECK(attnres_program("train --resume --out " + run).status == 0);
  const auto losses = [](const std::string& lines) {
    std::vector<double> result;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);)
      if (const auto entry = nlohmann::json::parse(line); entry["type"] == "step")
        result.push_back(entry["loss"]);
    return result;
  };
  CHECK(losses(read_file(std::filesystem::path(run) / "log.jsonl")) == losses(log));
}

namespace {

std::vector<double> losses_of(const std::filesystem::path& run) {
  std::vector<double> losses;
  std::istringstream stream(read_file(run / "log.jsonl"));
  for (std::string line; std::getline(stream, line);)
    if (const auto entry = nlohmann::json::parse(line); entry["type"] == "step")
      losses.push_back(entry["loss"]);
  return losses;
}

}  // namespace

TEST_CASE("the default number of threads gives the bits of one thread") {
  TemporaryFolder a, b;
  CHECK(losses_of(tiny_run_folder(a)) == losses_of(tiny_run_folder(b, "--threads 1")));
}

TEST_CASE("a finished run resumes to its results") {
  TemporaryFolder folder;
  const Result r = attnres_program("train --resume --out " + tiny_run_folder(folder));
  CHECK(r.status == 0);
  CHECK(contains(r.output, "bits per byte"));
  CHECK(!contains(r.output, "nan"));
}

TEST_CASE("a residual model starts another variant; its delta form computes the same") {
  TemporaryFolder folder;
  tiny_run_folder(folder);  // writes text.txt
  const std::string model = (folder / "model").string(),
                    json = small_model_json(folder / "r.json", {});
  REQUIRE(attnres_program("init --config " + json + " --out " + model).status == 0);
  const std::string start = "train --init " + model + " --data " + (folder / "text.txt").string() +
                            " --seq 16 --tokens-per-step 64 --steps 1 --out ";
  REQUIRE(attnres_program(start + (folder / "a").string()).status == 0);
  REQUIRE(attnres_program(start + (folder / "b").string() + " --mixing delta-mhar").status == 0);
  CHECK(losses_of(folder / "a").size() == 1);
  CHECK(losses_of(folder / "a") == losses_of(folder / "b"));
}

TEST_CASE("convert keeps every logit, bit for bit, and export every weight") {
  TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder / name).string(); };
  REQUIRE(attnres_program("init --config " + small_model_json(folder / "r.json", {}) + " --out " +
                          path("residual"))
              .status == 0);
  write_text(folder / "residual/tokenizer.json", "{}");
  const Result converted =
      attnres_program("convert --checkpoint " + path("residual") +
                      " --depth-heads 4 --depth-blocks 2" + " --out " + path("delta"));
  INFO(converted.output);
  REQUIRE(converted.status == 0);
  CHECK(contains(converted.output, "delta-mhar with 4 depth heads"));
  CHECK(read_file(folder / "delta/tokenizer.json") == "{}");
  const auto mixing =
      nlohmann::json::parse(read_file(folder / "delta/config.json"))["depth_mixing"];
  CHECK(mixing["kind"] == "delta");
  CHECK(mixing["block_sublayers"].get<int>() > 1);

  const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6}, targets = {2, 3, 4, 5, 6, 7};
  const TensorToWrite batch[] = {{"tokens", "I32", {2, 3}, std::as_bytes(std::span(ids))},
                                 {"targets", "I32", {2, 3}, std::as_bytes(std::span(targets))}};
  write_safetensors(folder / "batch", batch);
  const auto logits = [&](const char* model) {
    REQUIRE(attnres_program("dump --scalar float --checkpoint " + path(model) + " --tokens " +
                            path("batch") + " --out " + path("dump"))
                .status == 0);
    std::vector<double> values(2 * 3 * 320);
    SafetensorsFile(folder / "dump").read<double>("logits", values);
    return values;
  };
  CHECK(logits("residual") == logits("delta"));

  REQUIRE(attnres_program("export --checkpoint " + path("delta") + " --out " + path("exported"))
              .status == 0);
  CHECK(read_file(folder / "exported/model.safetensors") ==
        read_file(folder / "delta/model.safetensors"));
  CHECK(read_file(folder / "exported/config.json") == read_file(folder / "delta/config.json"));
  check_failure("export --checkpoint " + path("delta") + " --out " + path("exported"), 1,
                "already holds a model");
  check_failure("convert --checkpoint " + path("delta") + " --out " + path("again"), 1,
                "is no residual model");
  check_failure("convert --checkpoint " + path("residual") + " --to mhar --out " + path("again"), 2,
                "only delta-mhar keeps the output");
  check_failure(
      "convert --checkpoint " + path("residual") + " --depth-heads 5 --out " + path("again"), 2,
      "not divisible");
  CHECK(!std::filesystem::exists(folder / "again"));
}

TEST_CASE("bad numbers in a config, and bad options of the other commands: one line each") {
  TemporaryFolder folder;
  const auto config_failure = [&](const char* key, const nlohmann::json& value,
                                  const std::string& part) {
    auto object = config_to_json(tiny_model());
    object[key] = value;
    write_text(folder / "c.json", object.dump());
    check_failure(
        "init --config " + (folder / "c.json").string() + " --out " + (folder / "m").string(), 1,
        part);
  };
  config_failure("hidden_size", 16.9, "must be a whole number, not 16.9");
  config_failure("hidden_size", 1e30, "must be a whole number");
  config_failure("hidden_size", std::int64_t(1) << 62, "is larger than");
  config_failure("num_hidden_layers", 100000, "larger than 4096");
  config_failure("model_type", "x\ny", "is not supported");
  CHECK(!std::filesystem::exists(folder / "m"));
  const std::string run = tiny_run_folder(folder), text = (folder / "text.txt").string();
  check_failure("sample --checkpoint " + run + " --top-p 0", 2, "--top-p positive");
  check_failure("sample --checkpoint " + run + " --tokens -5", 2, "must not be negative");
  check_failure("eval --checkpoint " + run + " --data x --seq -5", 2, "--seq");
  const std::string eval = "eval --checkpoint " + run + " --data " + text;
  check_failure(eval + " --stride 5", 2, "--stride goes with --task");
  check_failure(eval + " --task wikitext2 --tokens 5", 2, "--tokens does not go with --task");
  check_failure(eval + " --task wikitext2 --stride 0", 2, "--stride must lie between 1 and");
  check_failure(eval + " --task chess", 2, "it can be wikitext2, lambada or hellaswag");
  check_failure(eval + " --task lambada", 1, "text.txt:1: is no JSON object");
  const Result bytes = attnres_program(eval + " --task wikitext2");  // a byte model has a tokenizer
  CHECK(bytes.status == 0);
  CHECK(contains(bytes.output, "bits_per_byte"));
  const Result folder_as_file = attnres_program("eval --checkpoint " + run + " --data " + text +
                                                " --json " + folder.path().string());
  CHECK(folder_as_file.status == 1);
  CHECK(contains(folder_as_file.output, "is a folder; name a file"));
}

TEST_CASE("a checkpoint of another shape is refused by tensor and shape") {
  TemporaryFolder folder;
  const std::string run = tiny_run_folder(folder);
  const auto checkpoint = std::filesystem::path(run) / "checkpoints/step-00000006";
  std::filesystem::create_directories(folder / "model");
  std::filesystem::copy(checkpoint / "model.safetensors", folder / "model");
  ModelConfig other = tiny_model();
  other.intermediate_size = 32;
  write_text(folder / "model/config.json", config_to_json(other).dump());
  check_failure("sample --checkpoint " + (folder / "model").string(), 1,
                "has shape [24, 20]; config.json asks for [24, 32]");
}

TEST_CASE("init and dump: a fresh model's loss, logits, routing and gradients as F64") {
  TemporaryFolder folder;
  const std::string model = (folder / "model").string(),
                    tokens = (folder / "tokens.safetensors").string();
  const std::string out = (folder / "dump.safetensors").string();
  CHECK(attnres_program("init --config " + small_model_json(folder / "model.json") + " --out " +
                        model + " --random-queries")
            .status == 0);
  check_failure("init --config " + (folder / "model.json").string() + " --out " + model, 1,
                "already holds a model");

  std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6}, targets = {2, 3, -1, 5, 6, 7};
  const auto write_batch = [&] {
    const TensorToWrite batch[] = {{"tokens", "I32", {2, 3}, std::as_bytes(std::span(ids))},
                                   {"targets", "I32", {2, 3}, std::as_bytes(std::span(targets))}};
    write_safetensors(tokens, batch);
  };
  write_batch();
  const std::string call = "dump --checkpoint " + model + " --tokens " + tokens + " --out " + out;
  REQUIRE(attnres_program(call).status == 0);
  const SafetensorsFile dump(out);
  CHECK(dump.info("loss").dtype == "F64");
  CHECK(dump.info("logits").shape == std::vector<Index>{2, 3, 320});
  CHECK(dump.info("weights.model.layers.1.mlp_res").shape == std::vector<Index>{4, 6, 2});
  CHECK(dump.info("weights.model.output_attn_res").shape == std::vector<Index>{7, 6, 2});
  for (const auto& spec : ParameterLayout(tiny_model()).specs)
    CHECK(dump.info("grad." + spec.name).shape == spec.shape);
  double loss[1], loss_in_float[1];
  dump.read<double>("loss", loss);
  REQUIRE(attnres_program(call + " --scalar float").status == 0);
  SafetensorsFile(out).read<double>("loss", loss_in_float);
  CHECK(loss[0] == doctest::Approx(loss_in_float[0]).epsilon(1e-5));
  CHECK(loss[0] != loss_in_float[0]);

  std::filesystem::remove(out);
  ids[4] = 320;
  write_batch();
  check_failure(call, 1, "tokens[4] is 320; the vocabulary ends at 319");
  check_failure(call + " --scalar half", 2, "--scalar is double or float");
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("gradcheck prints a table and passes") {
  const Result r = attnres_program("gradcheck --only depth_attention");
  CHECK(r.status == 0);
  CHECK(contains(r.output, "depth_attention, gather, H 3"));
  CHECK(contains(r.output, " 0 failed"));
}

TEST_CASE("gradcheck runs the kernels that its options select") {
  const Result r =
      attnres_program("gradcheck --device emulated --plan block --dtype bf16 --heads 3");
  CHECK(r.status == 0);
  CHECK(contains(r.output, "block H 3, L 8, N 11, D 192, pre-norm, grouped by 3, bf16"));
  CHECK(contains(r.output, "norm gain gradient"));
  CHECK(!contains(r.output, "fp32"));
  CHECK(contains(r.output, " 0 failed"));
}
