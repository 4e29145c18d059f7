// The task masked_language against its formula in double precision. The test knows the tokens and the words of its
// texts by itself: it has written them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/autograd/variable.h"
#include "keel/data/batch.h"
#include "keel/data/token_batch.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/encoder_model.h"
#include "keel/nn/flat_buffer.h"
#include "keel/nn/module.h"
#include "keel/runtime/file.h"
#include "keel/tasks/metric.h"
#include "keel/tasks/task.h"
#include "keel/tasks/text_records.h"
#include "tests/binomial.h"
#include "tests/support.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::doubles;
using testing::expect_binomial;
using testing::GivenKeys;
using testing::TemporaryFolder;

constexpr std::int32_t kPad = 0, kUnknown = 1, kClass = 2, kSeparator = 3, kHole = 4, kFirstWord = 5;
// Pieces of which words consist: a beginning, and up to three that go on.
constexpr std::int32_t kBeginnings = 12, kEndings = 8, kPieces = kFirstWord + kBeginnings + kEndings;

void write_piece_vocabulary(const TemporaryFolder& place) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < kBeginnings; ++i) vocabulary += concat("x", static_cast<char>('a' + i), '\n');
  for (int i = 0; i < kEndings; ++i) vocabulary += concat("##", static_cast<char>('m' + i), '\n');
  write_text_file(place / "vocab.txt", vocabulary);
}

// A document as the test knows it.
struct KnownText {
  std::vector<std::int32_t> tokens;             // with special ones around it
  std::vector<std::vector<std::size_t>> words;  // places of the tokens of each that may be chosen
};

// Documents of 5 to 30 words. One of twenty words is unknown, and one of twenty is a special token.
std::vector<KnownText> write_known_texts(const TemporaryFolder& place, int count) {
  std::string lines;
  std::vector<KnownText> all;
  std::mt19937_64 draw(11);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int32_t>((draw() >> 33) % n); };
  for (int i = 0; i < count; ++i) {
    KnownText text{{kClass}, {}};
    std::string written;
    for (std::int32_t words = 5 + below(26); words > 0; --words) {
      written += written.empty() ? "" : " ";
      if (const std::int32_t kind = below(20); kind < 2) {
        written += kind == 0 ? "qqq" : "[SEP]";
        text.tokens.push_back(kind == 0 ? kUnknown : kSeparator);
        continue;
      }
      const std::int32_t beginning = below(kBeginnings);
      written += concat("x", static_cast<char>('a' + beginning));
      text.words.push_back({text.tokens.size()});
      text.tokens.push_back(kFirstWord + beginning);
      for (std::int32_t endings = below(4); endings > 0; --endings) {
        const std::int32_t ending = below(kEndings);
        written += static_cast<char>('m' + ending);
        text.words.back().push_back(text.tokens.size());
        text.tokens.push_back(kFirstWord + kBeginnings + ending);
      }
    }
    text.tokens.push_back(kSeparator);
    lines += concat("{\"text\": \"", written, "\"}\n");
    all.push_back(std::move(text));
  }
  write_text_file(place / "texts.jsonl", lines);
  return all;
}

std::unique_ptr<TaskBase> masked_task(const TemporaryFolder& place, GivenKeys given) {
  GivenKeys all = {{"data.path", place / "texts.jsonl"}, {"data.rows", "documents"}, {"model.block", "140"}};
  for (auto& own : given) all.push_back(std::move(own));
  return testing::label_task(place, "masked_language", std::move(all));
}

std::vector<std::int32_t> numbers_of(const Batch& batch, std::string_view field) {
  return batch[field].to_vector<std::int32_t>();
}

struct MaskCounts {
  double units = 0, chosen_units = 0;                      // words, or tokens
  double chosen = 0, masked = 0, kept = 0, of_hole = 0;    // tokens
  std::map<std::int32_t, double> replacements, drawn_for;  // by token; drawn_for: chosen tokens that are others
};

// Every row is its document but for what was chosen; returns what was.
void count_masks(const std::vector<KnownText>& texts, bool of_words, const Batch& batch, MaskCounts& counts) {
  const std::vector<std::int32_t> inputs = numbers_of(batch, kInputIds), labels = numbers_of(batch, kLabels);
  const auto time = static_cast<std::size_t>(batch[kInputIds].dim(1));
  double labelled = 0;
  for (std::size_t row = 0; row < batch.examples().size(); ++row) {
    const KnownText& text = texts[static_cast<std::size_t>(batch.examples()[row])];
    const std::int32_t *input = &inputs[row * time], *label = &labels[row * time];
    ASSERT_EQ(batch[kLengths].to_vector<std::int64_t>()[row], std::ssize(text.tokens));
    std::vector<bool> may_be_chosen(time);
    for (const std::vector<std::size_t>& word : text.words) {
      double chosen = 0;
      for (const std::size_t at : word) {
        may_be_chosen[at] = true;
        chosen += label[at] != kIgnoreTarget ? 1 : 0;
      }
      if (of_words) { ASSERT_TRUE(chosen == 0 || chosen == static_cast<double>(word.size())) << "a part of a word"; }
      counts.units += of_words ? 1 : static_cast<double>(word.size());
      counts.chosen_units += of_words ? (chosen > 0 ? 1 : 0) : chosen;
    }
    for (std::size_t at = 0; at < time; ++at) {
      const std::int32_t token = at < text.tokens.size() ? text.tokens[at] : kPad;
      if (label[at] == kIgnoreTarget) {
        ASSERT_EQ(input[at], token) << "a token that was not chosen";
        continue;
      }
      ASSERT_TRUE(may_be_chosen[at]) << "a special token, or padding: " << token;
      ASSERT_EQ(label[at], token);
      ++labelled;
      counts.masked += input[at] == kHole ? 1 : 0;
      counts.kept += input[at] == token ? 1 : 0;
      for (std::int32_t other = 0; other < kPieces; ++other)
        if (other != token && other != kHole) ++counts.drawn_for[other];
      if (input[at] != token && input[at] != kHole) ++counts.replacements[input[at]];
    }
  }
  EXPECT_EQ(batch.weight(kTokenWeight), labelled);
  counts.chosen += labelled;
}

TEST(MaskedLoss, MasksAreDrawnByTheSharesOfTheTaskAndSpareSpecialTokens) {
  const TemporaryFolder place;
  write_piece_vocabulary(place);
  const std::vector<KnownText> texts = write_known_texts(place, 400);
  struct Form {
    const char *masking, *masked, *random, *unchanged;
  };
  for (const Form& form : {Form{"tokens", "0.8", "0.1", "0.1"},
                           {"words", "0.8", "0.1", "0.1"},
                           {"tokens", "0.5", "0.2", "0.3"},
                           {"words", "0", "1", "0"}}) {
    SCOPED_TRACE(concat(form.masking, ' ', form.masked));
    const std::unique_ptr<TaskBase> task = masked_task(place, {{"task.masking", form.masking},
                                                               {"task.masked", form.masked},
                                                               {"task.random", form.random},
                                                               {"task.unchanged", form.unchanged}});
    const Data data = task->data();
    MaskCounts counts;
    for (std::int64_t step = 0; step < 250; ++step)
      count_masks(texts, form.masking == std::string("words"), data.training->load_all(step), counts);
    expect_binomial(counts.chosen_units, counts.units, 0.15, "chosen");
    // What is replaced by any token may become the mask token, or the same again.
    const double masked = std::stod(form.masked), random = std::stod(form.random), any = random / kPieces;
    expect_binomial(counts.masked, counts.chosen, masked + any, "masked");
    expect_binomial(counts.kept, counts.chosen, std::stod(form.unchanged) + any, "kept");
    // Any of the vocabulary alike: chi squared within six standard deviations.
    double distance = 0, replaced = 0;
    for (const auto& [token, possible] : counts.drawn_for) {
      const double expected = possible * any, counted = counts.replacements[token];
      distance += (counted - expected) * (counted - expected) / expected;
      replaced += counted;
    }
    const auto others = static_cast<double>(counts.drawn_for.size());
    EXPECT_EQ(others, kPieces - 1) << "all but the mask token";
    EXPECT_LT(distance, others + 6 * std::sqrt(2 * others)) << replaced;
  }
}

// A model with numbers far from uniform.
struct MaskedModel {
  std::unique_ptr<TaskBase> made;
  Task* task = nullptr;
  EncoderModel* model = nullptr;
  Data data = {};
  std::vector<FlatBuffer> buffers = {};

  MaskedModel(const TemporaryFolder& place, GivenKeys given) : made(masked_task(place, std::move(given))) {
    task = dynamic_cast<Task*>(made.get());
    model = dynamic_cast<EncoderModel*>(&task->model());
    data = task->data();
    const Context context = data.training->load_all(0).sample_ids().context();
    buffers = materialize(*model, context);
    std::uint64_t seed = 4;
    for (const FlatBuffer& buffer : buffers)
      kernels::copy_into(buffer.values, testing::uniform_tensor(context, buffer.values.shape(), seed++));
  }
};

// What the formula says of a batch, from the model's logits of all positions.
struct MaskedReference {
  double loss = 0, right = 0, chosen = 0;
  std::vector<double> bias_gradient;  // of the logits' bias: the mean of softmax - 1[label]

  MaskedReference(const MaskedModel& of, const Batch& batch) {
    const NoGrad no_grad;
    Forward pass;
    const Tensor logits =
        (*of.model)({.tokens = batch[kInputIds], .types = {}, .lengths = batch[kLengths]}, pass).value();
    const std::vector<double> all = doubles(logits);
    const auto width = static_cast<std::size_t>(logits.dim(-1));
    const std::vector<std::int32_t> labels = numbers_of(batch, kLabels);
    bias_gradient.resize(width);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == kIgnoreTarget) continue;
      const auto label = static_cast<std::size_t>(labels[i]);
      const double* row = &all[i * width];
      const double most = *std::max_element(row, row + width);
      double sum = 0;
      for (std::size_t c = 0; c < width; ++c) sum += std::exp(row[c] - most);
      loss += most + std::log(sum) - row[label];
      right += std::max_element(row, row + width) == row + label ? 1 : 0;
      ++chosen;
      for (std::size_t c = 0; c < width; ++c) bias_gradient[c] += std::exp(row[c] - most) / sum - (c == label ? 1 : 0);
    }
    loss /= chosen;
    for (double& each : bias_gradient) each /= chosen;
  }
};

TEST(MaskedLoss, IsTheMeanNegativeLogarithmOfSoftmaxOverChosenTokens) {
  const TemporaryFolder place;
  write_piece_vocabulary(place);
  (void)write_known_texts(place, 60);
  for (const char* type : {"bert", "roberta", "xlm_roberta", "distilbert", "electra"})
    for (const char* masking : {"tokens", "words", "budget"}) {
      SCOPED_TRACE(concat(type, ' ', masking));
      GivenKeys given = {{"model.type", type}, {"task.masking", masking}};
      if (std::string_view(type).ends_with("roberta")) given.emplace_back("model.padding_token", "0");
      MaskedModel masked(place, std::move(given));
      for (std::int64_t step = 0; step < 3; ++step) {
        const Batch batch = masked.data.training->load_all(step);
        const MaskedReference expected(masked, batch);
        ASSERT_GT(expected.chosen, 5);
        for (FlatBuffer& buffer : masked.buffers) buffer.zero_grad();
        Forward pass;
        const Loss loss = masked.task->training_step(batch, pass);
        ASSERT_EQ(loss.terms().size(), 1U);
        const LossTerm& term = loss.terms().front();
        EXPECT_EQ(term.weight, kTokenWeight);
        EXPECT_FALSE(term.is_sum);
        EXPECT_NEAR(term.value.value().item(), expected.loss, 1e-6 * expected.loss);
        EXPECT_GT(std::abs(expected.loss - std::log(kPieces)), 0.01) << "a model that says nothing";
        backward(term.value);
        int biases = 0;
        for_each_parameter(*masked.model, [&](const std::string& name, Parameter& parameter) {
          if (parameter.shape() != Dims{kPieces}) return;
          ++biases;
          EXPECT_LT(testing::relative_error(doubles(parameter.variable().grad()), expected.bias_gradient), 1e-5)
              << name;
        });
        EXPECT_EQ(biases, 1);
        // Parts of a step, weighed by what they count, are the step.
        double sum = 0, weight = 0;
        for (const Rows part : {Rows{0, 3}, Rows{3, 8}}) {
          const Batch own = masked.data.training->load(step, part);
          const double counted = own.weight(kTokenWeight);
          if (counted == 0) continue;
          sum += masked.task->training_step(own, pass).terms().front().value.value().item() * counted;
          weight += counted;
        }
        EXPECT_EQ(weight, expected.chosen);
        EXPECT_NEAR(sum / weight, expected.loss, 2e-6 * expected.loss);
      }
    }
}

TEST(MaskedLoss, ValidationIsTheMeanOverAllChosenTokens) {
  const TemporaryFolder place;
  write_piece_vocabulary(place);
  (void)write_known_texts(place, 60);
  MaskedModel masked(place, {{"data.validation", "0.5"}});
  Metrics metrics;
  metrics.make<MeanMetric>("loss");
  masked.task->make_metrics("", metrics);
  const std::shared_ptr<const BatchSource> source = masked.data.validation.at(0).source;
  double loss = 0, right = 0, chosen = 0;
  for (std::int64_t step = 0; step < source->steps(); ++step) {
    const NoGrad no_grad;
    const Batch batch = source->load_all(step);
    Forward pass;
    masked.task->validation_step(batch, pass, metrics);
    join_added(metrics, take_added(metrics));
    const MaskedReference expected(masked, batch);
    loss += expected.loss * expected.chosen;
    right += expected.right;
    chosen += expected.chosen;
  }
  const auto value = [&](const char* name) { return metrics.all().at(name)->result().at(0).value; };
  EXPECT_GT(chosen, 30);
  EXPECT_NEAR(value("loss"), loss / chosen, 1e-6 * loss / chosen);
  EXPECT_NEAR(value("perplexity"), std::exp(loss / chosen), 2e-5 * std::exp(loss / chosen));
  EXPECT_DOUBLE_EQ(value("accuracy"), right / chosen);
}

}  // namespace
}  // namespace keel
