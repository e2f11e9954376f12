// The training loop: it learns, accumulates, resumes bit for bit, and stops when numbers go bad.
#include "train/trainer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/files.h"
#include "tests/train/train_support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

std::vector<double> losses_in(const std::filesystem::path& log) {
  std::vector<double> losses;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry["type"] == "step") losses.push_back(entry["loss"].get<double>());
  }
  return losses;
}

// Continues the run in `folder` from its newest valid checkpoint.
std::unique_ptr<TinyRun> resumed(const RunConfig& config, const std::filesystem::path& folder,
                                 std::vector<std::string>* reports = nullptr) {
  const auto checkpoint = newest_valid_checkpoint(folder, [&](const std::string& line) {
    if (reports) reports->push_back(line);
  });
  REQUIRE(checkpoint.has_value());
  auto run = std::make_unique<TinyRun>(config, folder);
  run->state = load_run_state(*checkpoint);
  load_parameters(*checkpoint, run->model.parameters());
  load_moments(*checkpoint, run->model);
  return run;
}

}  // namespace

TEST_CASE("one batch can be learned by heart, by every variant") {
  for (const DepthMixing& mixing : {DepthMixing{}, DepthMixing{DepthMixing::Kind::attention, 2},
                                    DepthMixing{DepthMixing::Kind::attention, 1, 2},
                                    DepthMixing{DepthMixing::Kind::delta, 2}}) {
    ReferenceModel model(tiny_model(mixing), 2, 16);
    initialise(model.parameters(), 1);
    Random random(2);
    const auto tokens = random.tokens(32, 300), targets = random.tokens(32, 300);
    double first = 0, last = 0;
    for (Index t = 1; t <= 250; ++t) {
      last = model.accumulate({2, 16, tokens, targets}, 1.0f / 32) / 32;
      if (t == 1) first = last;
      model.update({.weight_decay = 0}, 1e-2, t, model.gradient_norm());
    }
    CHECK(first == doctest::Approx(std::log(320)).epsilon(0.05));
    CHECK(last < 0.02);
  }
}

TEST_CASE("accumulated micro-batches give the gradient of the large batch to 1e-6") {
  ReferenceModel large(tiny_model(), 8, 16), small(tiny_model(), 2, 16);
  for (auto* model : {&large, &small}) {
    initialise(model->parameters(), 1);
    randomise_queries(model->parameters(), 2);
  }
  Random random(3);
  auto tokens = random.tokens(128, 300), targets = random.tokens(128, 300);
  targets[5] = -1;  // a missing target must not disturb the weighting
  large.accumulate({8, 16, tokens, targets}, 1.0f / 127);
  for (std::size_t first = 0; first < 128; first += 32)
    small.accumulate(
        {2, 16, std::span(tokens).subspan(first, 32), std::span(targets).subspan(first, 32)},
        1.0f / 127);
  const auto& g = large.gradients().values();
  CHECK((g - small.gradients().values()).norm() < 1e-6 * g.norm());
  CHECK(large.gradient_norm() == doctest::Approx(small.gradient_norm()).epsilon(1e-6));
}

TEST_CASE("training reduces the loss, and the same seed gives the same curve, bit for bit") {
  TemporaryFolder a, b, c;
  RunConfig config = tiny_run(40);
  TinyRun(config, a.path()).train();
  TinyRun(config, b.path()).train();
  const auto losses = losses_in(a / "log.jsonl");
  CHECK(losses.size() == 40);
  CHECK(losses == losses_in(b / "log.jsonl"));
  CHECK(losses.back() < 0.8 * losses.front());
  config.seed = 2;
  TinyRun(config, c.path()).train();
  CHECK(losses != losses_in(c / "log.jsonl"));
}

TEST_CASE(
    "the residual and the MHAR curve are reproducible bit for bit, for any number of threads") {
  for (const DepthMixing& mixing : {DepthMixing{}, DepthMixing{DepthMixing::Kind::attention, 2}}) {
    TemporaryFolder one, two;
    set_threads(1);
    TinyRun(tiny_run(12), one.path(), mixing).train();
    set_threads(2);
    TinyRun(tiny_run(12), two.path(), mixing).train();
    CHECK(losses_in(one / "log.jsonl") == losses_in(two / "log.jsonl"));
  }
  set_threads(0);
}

TEST_CASE("a run resumed at any step continues bit for bit") {
  RunConfig config = tiny_run(9);
  config.save_every = 1;
  config.keep = 100;
  TemporaryFolder whole;
  TinyRun straight(config, whole.path());
  straight.train();
  const auto expected = losses_in(whole / "log.jsonl");
  for (Index step = 1; step < 9; ++step) {
    TemporaryFolder part;
    std::filesystem::create_directories(part / "checkpoints");
    std::filesystem::copy(checkpoint_path(whole.path(), step), checkpoint_path(part.path(), step),
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(whole / "log.jsonl", part / "log.jsonl");
    auto run = resumed(config, part.path());
    CHECK(run->state.step == step);
    run->train();
    CHECK(losses_in(part / "log.jsonl") == expected);
    CHECK(same_bits(run->model.parameters().values(), straight.model.parameters().values()));
    CHECK(same_bits(run->model.moments().v, straight.model.moments().v));
  }
}

TEST_CASE("a run killed at random moments, also while saving, continues bit for bit") {
  RunConfig config = tiny_run(60);
  config.save_every = 1;
  TemporaryFolder whole, killed;
  TinyRun straight(config, whole.path());
  straight.train();
  int kills = 0;
  for (int attempt = 0; attempt < 30; ++attempt) {
    const pid_t child = ::fork();
    if (child == 0) {  // fork copies one thread: the child must not use OpenMP's
      set_threads(1);
      std::freopen("/dev/null", "w", stdout);
      auto run = newest_valid_checkpoint(killed.path(), [](const std::string&) {})
                     ? resumed(config, killed.path())
                     : std::make_unique<TinyRun>(config, killed.path());
      run->train();
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(120 + 23 * attempt));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) break;
    ++kills;
  }
  CHECK(kills > 0);
  auto run = resumed(config, killed.path());
  run->train();
  CHECK(run->train().step == 60);
  CHECK(losses_in(killed / "log.jsonl") == losses_in(whole / "log.jsonl"));
  CHECK(same_bits(run->model.parameters().values(), straight.model.parameters().values()));
}

TEST_CASE("a damaged checkpoint is skipped for the one before it, and said so") {
  RunConfig config = tiny_run(6);
  config.save_every = 2;
  TemporaryFolder folder;
  TinyRun(config, folder.path()).train();
  const auto newest = checkpoint_path(folder.path(), 6);
  std::filesystem::resize_file(newest / "optimizer.safetensors", 100);
  // One flipped byte in the middle of the weights of the next.
  std::fstream weights(checkpoint_path(folder.path(), 4) / "model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(5000);
  weights.put('\x55');
  weights.close();
  std::vector<std::string> reports;
  CHECK(resumed(config, folder.path(), &reports)->state.step == 2);
  REQUIRE(reports.size() == 2);
  CHECK(contains(reports[0], newest.string()));
  CHECK(contains(reports[0], "optimizer.safetensors has 100 bytes"));
  CHECK(contains(reports[1], "model.safetensors does not match its hash"));
}

TEST_CASE("a half-written checkpoint folder is not a checkpoint") {
  RunConfig config = tiny_run(3);
  TemporaryFolder folder;
  TinyRun(config, folder.path()).train();
  auto unfinished = checkpoint_path(folder.path(), 4);
  unfinished += ".tmp";
  std::filesystem::copy(checkpoint_path(folder.path(), 3), unfinished,
                        std::filesystem::copy_options::recursive);
  CHECK(resumed(config, folder.path())->state.step == 3);
}

TEST_CASE("only the newest checkpoints are kept") {
  RunConfig config = tiny_run(7);
  config.save_every = 1;
  config.keep = 2;
  TemporaryFolder folder;
  TinyRun(config, folder.path()).train();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step-00000006", "step-00000007"});
}

TEST_CASE("a non-finite loss stops the run and names step, tensor and last good checkpoint") {
  RunConfig config = tiny_run(5);
  config.save_every = 1;
  TemporaryFolder folder;
  TinyRun(config, folder.path()).train();
  config.schedule.steps = 8;
  auto run = resumed(config, folder.path());
  run->state.config = config;
  const auto& layout = run->model.parameters().layout();
  run->model.parameters().tensor (*layout.find("model.layers.1.mlp.up_proj.weight"))(3, 3) =
      std::nanf("");
  const std::string message = error_of([&] { run->train(); });
  CHECK(contains(message, "step 6"));
  CHECK(contains(message, "nan"));
  CHECK(contains(message, "model.embed_tokens.weight"));
  CHECK(contains(message, checkpoint_path(folder.path(), 5).string()));
  CHECK(!std::filesystem::exists(checkpoint_path(folder.path(), 6)));
}

TEST_CASE("a run refuses to continue on other data") {
  RunConfig config = tiny_run(4);
  TemporaryFolder folder;
  TinyRun(config, folder.path()).train();
  auto run = resumed(config, folder.path());
  CHECK(contains(error_of([&] {
                   Trainer trainer(run->model, small_data(3000), run->state, folder.path(),
                                   run->console);
                 }),
                 "not what this run began with"));
}

TEST_CASE("SIGTERM finishes the step, saves, and the run can go on") {
  RunConfig config = tiny_run(100000);
  TemporaryFolder folder;
  TinyRun run(config, folder.path());
  std::thread killer([&] {  // the log appears when the run listens to signals
    while (!std::filesystem::exists(folder / "log.jsonl"))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(::getpid(), SIGTERM);
  });
  Trainer trainer(run.model, small_data(), run.state, folder.path(), run.console);
  CHECK(!trainer.run());
  killer.join();
  CHECK(trainer.state().step > 0);
  CHECK(resumed(config, folder.path())->state.step == trainer.state().step);
}

TEST_CASE("the log of a resumed run holds every step once, and no line that a kill cut short") {
  TemporaryFolder folder;
  write_text(folder / "log.jsonl",
             "{\"type\":\"step\",\"step\":1}\n{\"type\":\"step\",\"step\":2}\n"
             "{\"type\":\"step\",\"step\":3}\n{\"type\":\"st");
  rewind_log(folder / "log.jsonl", 2);
  CHECK(read_file(folder / "log.jsonl") ==
        "{\"type\":\"step\",\"step\":1}\n{\"type\":\"step\",\"step\":2}\n");
}
