// Losses of classes of texts.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "keel/autograd/backward.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/flat_buffer.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::GivenKeys;
using testing::TemporaryFolder;

// The loss of all rows of a file, as a mean over what they weigh.
double loss_of_file(const TemporaryFolder& place, const std::string& table, GivenKeys given) {
  write_text_file(place / "t.csv", table);
  given.emplace_back("data.path", place / "t.csv");
  given.emplace_back("task.classes", "[a, b, c]");
  const std::unique_ptr<TaskBase> made = testing::label_task(place, "sequence_classification", std::move(given));
  auto& task = dynamic_cast<Task&>(*made);
  const Data data = task.data();
  const Batch batch = data.training->load_all(0);
  const std::vector<FlatBuffer> buffers = materialize(task.model(), batch.sample_ids().context());
  Forward pass;
  const Loss loss = task.training_step(batch, pass);
  const LossTerm& term = loss.terms().at(0);
  return term.value.value().item() / (term.is_sum ? batch.weight(term.weight) : 1);
}

TEST(LabelLoss, OfWeightedClassesIsTheSumByTheSumOfWeights) {
  const TemporaryFolder place;
  testing::write_word_pieces(place);
  const std::string head = "text,label\n", a = "good film,a\ngood,a\n", b = "bad,b\n", c = "what ?,c\na film,c\n";
  for (const char* smoothing : {"0", "0.2"}) {
    const GivenKeys plain = {{"task.label_smoothing", smoothing}};
    const double of_a = loss_of_file(place, head + a, plain), of_b = loss_of_file(place, head + b, plain),
                 of_c = loss_of_file(place, head + c, plain);
    EXPECT_NEAR(loss_of_file(place, head + a + b + c, plain), (2 * of_a + of_b + 2 * of_c) / 5, 1e-6);
    GivenKeys weighted = plain;
    weighted.emplace_back("task.class_weights", "[0.5, 3, 1]");
    EXPECT_NEAR(loss_of_file(place, head + a + b + c, weighted), (0.5 * 2 * of_a + 3 * of_b + 2 * of_c) / (1 + 3 + 2),
                1e-6);
  }
}

}  // namespace
}  // namespace keel
