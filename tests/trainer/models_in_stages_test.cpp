// Whole models in ZeRO stages: the same bits in every one, with dropout, rows of several lengths and units that are
// computed again.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "keel/models/gpt.h"
#include "keel/models/lora.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/models/tiny_encoder.h"
#include "tests/tiny_gpt.h"

namespace keel {
namespace {

using testing::tiny_encoder;
using testing::tiny_gpt;
using testing::token_numbers;

constexpr std::int64_t kStagedRows = 7, kStagedTime = 9;

// Rows of a global batch.
struct StageBatch {
  Tensor tokens, labels, types, lengths, ids;
  StageBatch part(std::int64_t begin, std::int64_t end) const {
    const auto rows = [&](const Tensor& of) { return of.slice(0, begin, end); };
    return {rows(tokens), rows(labels), rows(types), rows(lengths), rows(ids)};
  }
};

StageBatch stage_batch(const Context& context, int step) {
  const auto seed = static_cast<std::uint64_t>(10 * step);
  std::vector<std::int64_t> lengths, ids;
  std::vector<double> labels = testing::uniform(kStagedRows * kStagedTime, seed + 1, 2, 61);
  for (std::int64_t r = 0; r < kStagedRows; ++r) {
    lengths.push_back(3 + (r + step) % (kStagedTime - 2));
    ids.push_back(kStagedRows * step + r);
    for (std::int64_t t = 0; t < kStagedTime; ++t)
      if (t >= lengths.back() || (r + t) % 3 == 0) labels[static_cast<std::size_t>(r * kStagedTime + t)] = -100;
  }
  for (double& label : labels) label = static_cast<double>(static_cast<std::int64_t>(label));
  return {token_numbers(context, {kStagedRows, kStagedTime}, seed),
          testing::tensor_of(context, labels, {kStagedRows, kStagedTime}, DType::i64),
          token_numbers(context, {kStagedRows, kStagedTime}, seed + 2, 0, 2),
          from_values(context, lengths, {kStagedRows}), from_values(context, ids, {kStagedRows})};
}

// A model and how it is learnt.
struct StagedModel {
  std::unique_ptr<Module> model;
  std::function<CrossEntropyLoss(const StageBatch&, Forward&)> loss;
};

struct StageRun {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
};

// Weights after some steps, and losses of rank 0.
std::vector<double> train_in_stage(const std::function<StagedModel()>& make, const StageRun& run) {
  std::vector<double> outcome;
  std::mutex mutex;
  run_ranks(run.ranks, [&](Communicator& comm) {
    const Context context = testing::context(1);
    const StagedModel made = make();
    ShardedOptions options;
    options.sharding.stage = run.stage;
    options.policy = PrecisionPolicy::of(run.dtype);
    options.clip = 1;
    Sharded engine(*made.model, context, comm, make_adamw(), options);
    std::vector<double> numbers;
    for (int step = 0; step < 4; ++step) {
      const Span mine = part({0, kStagedRows}, comm.size(), comm.rank());
      const StageBatch batch = stage_batch(context, step).part(mine.begin, mine.end);
      Forward pass{.training = true,
                   .random = {.seed = static_cast<std::uint64_t>(step)},
                   .sample_ids = batch.ids,
                   .dtype = run.dtype};
      const CrossEntropyLoss loss = made.loss(batch, pass);
      numbers.push_back(loss.loss.value().item());
      engine.backward(loss.loss, {.weight = static_cast<std::int64_t>(loss.count.item())});
      EXPECT_TRUE(engine.step(1e-2).get().taken);
    }
    for (const double value : testing::whole_values(engine)) numbers.push_back(value);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = std::move(numbers);
  });
  return outcome;
}

void expect_the_same_bits_in_stages(const std::function<StagedModel()>& make) {
  for (const int ranks : {1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<double> reference = train_in_stage(make, {.ranks = ranks, .stage = 0, .dtype = dtype});
      for (const int stage : {1, 2, 3})
        EXPECT_TRUE(train_in_stage(make, {.ranks = ranks, .stage = stage, .dtype = dtype}) == reference)
            << ranks << " ranks, stage " << stage << ", " << dtype;
    }
}

StagedModel staged_encoder(std::string_view family, bool recompute) {
  EncoderOptions options = tiny_encoder(family);
  options.dropout = options.attention_dropout = 0.1;
  auto encoder = std::make_unique<Encoder>(options, HeadOptions{.head = EncoderHead::masked_language});
  encoder->recompute = recompute;
  const Encoder& model = *encoder;
  return {std::move(encoder), [&model](const StageBatch& batch, Forward& pass) {
            return model.masked_loss({.tokens = batch.tokens, .types = batch.types, .lengths = batch.lengths},
                                     batch.labels, pass);
          }};
}

TEST(ModelsInStages, AGptHasTheSameBitsInEveryOne) {
  expect_the_same_bits_in_stages([] {
    GptOptions options = tiny_gpt();
    options.dropout = 0.1;
    auto gpt = std::make_unique<Gpt>(options);
    const Gpt& model = *gpt;
    return StagedModel{std::move(gpt), [&model](const StageBatch& batch, Forward& pass) {
                         return model.loss(batch.tokens, batch.labels, pass);
                       }};
  });
}

StagedModel staged_gpt_with_adapters(bool recompute) {
  GptOptions options = tiny_gpt();
  options.dropout = 0.1;
  auto gpt = std::make_unique<Gpt>(options);
  gpt->recompute = recompute;
  add_lora(*gpt, {.rank = 3, .dropout = 0.2, .trained = {"ln_f"}}, find_model("gpt")->naming);
  const Gpt& model = *gpt;
  return {std::move(gpt),
          [&model](const StageBatch& batch, Forward& pass) { return model.loss(batch.tokens, batch.labels, pass); }};
}

TEST(ModelsInStages, AGptWithAdaptersHasTheSameBitsInEveryOne) {
  for (const bool recompute : {false, true})
    expect_the_same_bits_in_stages([recompute] { return staged_gpt_with_adapters(recompute); });
}

TEST(ModelsInStages, FrozenWeightsStayAndHaveNeitherGradientsNorState) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& comm) {
      const Context context = testing::context(1);
      const StagedModel made = staged_gpt_with_adapters(false);
      ShardedOptions options;
      options.sharding.stage = stage;
      Sharded engine(*made.model, context, comm, make_adamw(), options);
      std::map<std::string, std::vector<double>> before;
      for (const TensorPart& part : engine.weights())
        if (part.numel() > 0) before.emplace(part.name, testing::doubles(part.values));
      for (const TensorPart& part : engine.optimizer_state())
        EXPECT_TRUE(part.name.find("lora_") != std::string::npos || part.name.find("ln_f") != std::string::npos)
            << part.name;
      const Span mine = part({0, kStagedRows}, comm.size(), comm.rank());
      const StageBatch batch = stage_batch(context, 1).part(mine.begin, mine.end);
      for (int step = 0; step < 2; ++step) {  // in the first one B is 0, and A has no gradient
        Forward pass{.training = true, .random = {.seed = 1}, .sample_ids = batch.ids};
        engine.backward(made.loss(batch, pass).loss);
        EXPECT_TRUE(engine.step(1e-2).get().taken);
      }
      for (const TensorPart& part : engine.weights()) {
        if (part.numel() == 0) continue;
        const bool is_trained =
            part.name.find("lora_") != std::string::npos || part.name.find("ln_f") != std::string::npos;
        EXPECT_EQ(testing::doubles(part.values) == before.at(part.name), !is_trained) << part.name;
      }
    });
}

TEST(ModelsInStages, ABertHasTheSameBitsInEveryOne) {
  expect_the_same_bits_in_stages([] { return staged_encoder("bert", false); });
}

TEST(ModelsInStages, ARobertaThatIsComputedAgainHasTheSameBitsInEveryOne) {
  expect_the_same_bits_in_stages([] { return staged_encoder("roberta", true); });
}

}  // namespace
}  // namespace keel
