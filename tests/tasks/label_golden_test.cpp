// Pairs of texts against transformers (tests/golden/generate_encoder_pairs.py): from the texts to tokens, types, losses
// and gradients.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/data/token_batch.h"
#include "keel/nn/flat_buffer.h"
#include "keel/tasks/text_records.h"
#include "tests/models/encoder_golden.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::doubles;
using testing::GivenKeys;
using testing::TemporaryFolder;

const Json& golden_pairs() {
  static const Json all = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/encoder_pairs.json"));
  return all;
}

// The shape and the tokenizer are those of a folder that transformers has written.
std::unique_ptr<TaskBase> pair_task(const TemporaryFolder& place, const Json& family, const std::string& head,
                                    const std::string& truncation) {
  write_text_file(place / "config.json", family.at("heads").at(head).at("config").dump());
  write_text_file(place / "tokenizer.json", family.at("tokenizer").string());
  std::string lines;
  for (const Json& record : family.at("records").items()) lines += record.dump() + '\n';
  write_text_file(place / "pairs.jsonl", lines);
  GivenKeys given = {{"model.from", place / ""},
                     {"data.validation", "0"},
                     {"data.path", place / "pairs.jsonl"},
                     {"data.text", "[first, second]"},
                     {"data.truncation", truncation}};
  if (head == "classes") {
    given.emplace_back("data.label", "[kind]");
    given.emplace_back("task.classes", "[\"0\", \"1\", \"2\"]");
  } else {
    given.emplace_back("task.problem", "regression");
    given.emplace_back("data.label", head == "number" ? "[x]" : "[x, y]");
  }
  static const TaskCatalog catalog;
  const TaskEntry& entry = *catalog.find("sequence_classification");
  TaskSite site;
  site.settings = Settings(entry.rows, given);
  site.rows = std::ssize(family.at("records").items());
  site.host = testing::context(2);
  return entry.make(site);
}

constexpr std::size_t kGoldenRecords = 8;

TEST(LabelGolden, PairsHaveTheTokensAndTypesOfTransformersInEachWayOfCutting) {
  std::size_t cases = 0;
  for (const auto& [name, family] : golden_pairs().members())
    for (const auto& [truncation, cut] : family.at("cuts").members()) {
      SCOPED_TRACE(name + ' ' + truncation);
      ++cases;
      const TemporaryFolder place;
      const std::unique_ptr<TaskBase> task = pair_task(place, family, "number", truncation);
      const Batch batch = task->data().training->load_all(0);
      for (const auto& [field, key] : {std::pair{kInputIds, "ids"}, std::pair{kTokenTypes, "types"}}) {
        const auto rows = testing::rows_of_examples(batch, field);
        ASSERT_EQ(rows.size(), kGoldenRecords);
        ASSERT_EQ(cut.at(key).items().size(), kGoldenRecords);
        for (const auto& [example, row] : rows) {
          std::vector<std::int64_t> expected;
          for (const Json& each : cut.at(key).items()[static_cast<std::size_t>(example)].items())
            expected.push_back(each.integer());
          EXPECT_EQ(row, expected) << key << " of " << example;
        }
      }
    }
  EXPECT_EQ(cases, 2U * 3) << "families, ways of cutting";
}

// One number, two numbers and classes, by the losses that transformers' own models have for them.
TEST(LabelGolden, LossesOfPairsAndTheirGradientsAreThoseOfTransformers) {
  std::size_t cases = 0;
  for (const auto& [name, family] : golden_pairs().members())
    for (const auto& [head, expected] : family.at("heads").members()) {
      SCOPED_TRACE(name + ' ' + head);
      ++cases;
      const TemporaryFolder place;
      const std::unique_ptr<TaskBase> made = pair_task(place, family, head, "longest_first");
      auto& task = dynamic_cast<Task&>(*made);
      const Batch batch = task.data().training->load_all(0);
      auto& model = dynamic_cast<EncoderModel&>(task.model());
      const ModelSpecPtr spec = read_hub_spec(expected.at("config").dump(), "config.json");
      const std::vector<HubTensor> tensors = hub_tensors(model, spec->entry().naming);
      const Context context = batch.sample_ids().context();
      std::vector<FlatBuffer> buffers = materialize(model, context);
      load_state(model, buffers, testing::golden_weights(context, model, tensors));
      Forward pass;
      const Loss loss = task.training_step(batch, pass);
      const LossTerm& term = loss.terms().at(0);
      EXPECT_FALSE(term.is_sum);
      EXPECT_EQ(batch.weight(term.weight), static_cast<double>(batch.rows()));
      const double transformers = expected.at("loss").number();
      EXPECT_NEAR(term.value.value().item(), transformers, 2e-6 * transformers);
      backward(term.value);
      std::map<std::string, Tensor> gradients;
      for (const FlatBuffer& buffer : buffers)
        for (const Segment& segment : buffer.segments)
          gradients.emplace(segment.name, segment.parameter->variable.grad());
      testing::expect_golden_tensors(tensors, gradients, expected.at("gradients"), 1e-5);

      const NoGrad no_grad;
      const EncoderInput input = {.tokens = batch[kInputIds],
                                  .types = model.token_types() > 1 ? batch[kTokenTypes] : Tensor(),
                                  .lengths = batch[kLengths]};
      const std::vector<double> logits = doubles(model(input, pass).value());
      ASSERT_EQ(batch.examples().size(), kGoldenRecords);
      ASSERT_EQ(expected.at("logits").items().size(), kGoldenRecords);
      const std::size_t outputs = head == "number" ? 1 : head == "numbers" ? 2 : 3;
      ASSERT_EQ(logits.size(), kGoldenRecords * outputs);
      for (std::size_t row = 0; row < batch.examples().size(); ++row) {
        const Json::Array& own = expected.at("logits").items()[static_cast<std::size_t>(batch.examples()[row])].items();
        ASSERT_EQ(own.size(), outputs);
        for (std::size_t i = 0; i < outputs; ++i) EXPECT_NEAR(logits[row * outputs + i], own[i].number(), 1e-5);
      }
    }
  EXPECT_EQ(cases, 2U * 3) << "families, heads";
}

}  // namespace
}  // namespace keel
