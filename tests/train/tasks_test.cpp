// Scoring continuations and long texts, against the logits written out.
#include "train/tasks/tasks.h"

#include <nlohmann/json.hpp>

#include "tests/train/train_support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

const auto kSilent = [](std::size_t, std::size_t) {};

ModelConfig scoring_config() {
  return small_config({DepthMixing::Kind::attention, 2});  // V 17
}

// log softmax of every position's logits [T, V], one sequence, in double.
M log_probabilities(const Parameters<float>& parameters, const std::vector<std::int32_t>& tokens) {
  const Index T = Index(tokens.size()), V = parameters.config().vocab_size;
  TransformerState<float> state(parameters.config(), 1, T);
  Matrix<float> logits(T, V);
  transformer_logits<float>(parameters, {1, T, tokens, {}}, state, logits);
  M z = logits.cast<double>();
  for (Index t = 0; t < T; ++t) {
    const double largest = z.row(t).maxCoeff();
    z.row(t).array() -= largest + std::log((z.row(t).array() - largest).exp().sum());
  }
  return z;
}

}  // namespace

TEST_CASE("a request's score is the sum of its continuation's log probabilities") {
  ReferenceModel model(scoring_config(), 3, 12);
  make_interesting(model.parameters());
  Random random(1);
  std::vector<ScoringRequest> requests;
  for (Index i = 0; i < 7; ++i)
    requests.push_back({random.tokens(1 + i % 5, 17), random.tokens(1 + i % 3, 17)});
  // One whose continuation is what the model would say.
  const M guess = log_probabilities(model.parameters(), requests[3].context);
  Index likeliest;
  guess.row(guess.rows() - 1).maxCoeff(&likeliest);
  requests[3].continuation = {std::int32_t(likeliest)};
  const auto scores = score(model, requests, 3, 12, kSilent);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    auto tokens = requests[i].context;
    tokens.insert(tokens.end(), requests[i].continuation.begin(), requests[i].continuation.end());
    const M table = log_probabilities(model.parameters(), tokens);
    double sum = 0;
    bool greedy = true;
    for (std::size_t t = requests[i].context.size(); t < tokens.size(); ++t) {
      sum += table(Index(t) - 1, tokens[t]);
      Index best;
      table.row(Index(t) - 1).maxCoeff(&best);
      greedy &= best == tokens[t];
    }
    CHECK(scores[i].log_likelihood == doctest::Approx(sum).epsilon(1e-5));
    CHECK(scores[i].greedy == greedy);
  }
  CHECK(scores[3].greedy);

  ReferenceModel alone(scoring_config(), 1, 12);
  alone.parameters().values() = model.parameters().values();
  const auto one_by_one = score(alone, requests, 1, 12, kSilent);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(one_by_one[i].log_likelihood == doctest::Approx(scores[i].log_likelihood).epsilon(1e-6));
    CHECK(one_by_one[i].greedy == scores[i].greedy);
  }
}

TEST_CASE("a request longer than the window loses the beginning of its context") {
  ReferenceModel model(scoring_config(), 1, 6);
  make_interesting(model.parameters());
  Random random(2);
  const auto context = random.tokens(20, 17), continuation = random.tokens(2, 17);
  const std::vector<std::int32_t> end(context.end() - 5, context.end());
  const auto scores = score(model, {{context, continuation}, {end, continuation}}, 1, 6, kSilent);
  CHECK(scores[0].log_likelihood == scores[1].log_likelihood);
  CHECK(contains(error_of([&] {
                   score(model, {{context, context}}, 1, 6, kSilent);
                 }),
                 "does not fit a window of 6"));
  CHECK(contains(error_of([&] { score(model, {{{}, context}}, 1, 6, kSilent); }), "at least one"));
}

TEST_CASE("rolling windows score every token but the first once, whatever stride and batch") {
  ReferenceModel model(scoring_config(), 2, 8);
  make_interesting(model.parameters());
  Random random(3);
  const auto tokens = random.tokens(37, 17);
  for (const Index stride : {1, 3, 8}) {
    const RollingScore sum = score_rolling(model, tokens, 2, 8, stride, kSilent);
    CHECK(sum.scored == 36);
    double expected = 0;
    std::size_t done = 1;
    for (std::size_t begin = 0; done < tokens.size(); begin += std::size_t(stride)) {
      const std::size_t end = std::min(tokens.size(), begin + 9);
      const M table = log_probabilities(
          model.parameters(),
          {tokens.begin() + std::ptrdiff_t(begin), tokens.begin() + std::ptrdiff_t(end) - 1});
      for (; done < end; ++done) expected -= table(Index(done - begin) - 1, tokens[done]);
    }
    CHECK(sum.loss_sum == doctest::Approx(expected).epsilon(1e-5));
  }
  // A text that one window holds: the plain loss of its tokens.
  const RollingScore whole = score_rolling(model, {1, 2, 3, 4}, 2, 8, 8, kSilent);
  CHECK(whole.scored == 3);
  CHECK(contains(error_of([&] { score_rolling(model, tokens, 2, 8, 9, kSilent); }), "stride"));
  CHECK(contains(error_of([&] { score_rolling(model, {1}, 2, 8, 8, kSilent); }), "two tokens"));
}

TEST_CASE("HellaSwag texts are cleaned as the harness cleans them") {
  CHECK(clean_hellaswag("  a [title] b [step] c  ") == "a. b c");
  CHECK(clean_hellaswag("x [substeps] y [unclosed") == "x y [unclosed");
  CHECK(clean_hellaswag("four    spaces, three   here") == "four  spaces, three  here");
}

TEST_CASE("malformed examples: one line that names the file") {
  TemporaryFolder folder;
  ReferenceModel model(scoring_config(), 1, 8);
  const Tokenizer tokenizer = Tokenizer::gpt2();
  const ModelForWindow model_for = [&](Index) -> Model& { return model; };
  const auto refusal = [&](auto task, const char* text) {
    write_text(folder / "examples.jsonl", text);
    TaskOptions options;
    options.data = folder / "examples.jsonl";
    return error_of([&] { task(model_for, tokenizer, options, kSilent); });
  };
  CHECK(contains(refusal(lambada_task, ""), "examples.jsonl: holds no examples"));
  CHECK(
      contains(refusal(lambada_task, "{\"text\": \"a b\"}\n{\n"), "examples.jsonl:2: is no JSON"));
  CHECK(contains(refusal(lambada_task, "{\"txt\": 1}\n"), "has no string \"text\""));
  CHECK(contains(refusal(lambada_task, "{\"text\": \"word\"}\n"), "no last word"));
  const std::string context = R"({"activity_label":"a","ctx_a":"b","ctx_b":"c",)";
  for (const char* endings : {R"(["d"])", R"(["d",1,"f","g"])", R"("defg")"})
    CHECK(contains(
        refusal(hellaswag_task, (context + "\"label\":0,\"endings\":" + endings + "}").c_str()),
        "examples.jsonl:1: has no \"endings\", four strings"));
  for (const char* label : {"4", "-1", "\"\"", "null", "\"first\""})
    CHECK(contains(
        refusal(hellaswag_task,
                (context + R"("endings":["d","e","f","g"],"label":)" + label + "}").c_str()),
        "examples.jsonl:1: has no \"label\" from 0 to 3"));
}
