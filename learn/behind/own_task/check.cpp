#include <cstdlib>
#include <fstream>
#include <sstream>

#include "keel/dist/comm/run_ranks.h"
#include "keel/tasks/catalog.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/trainer.h"
#include "learn/behind/check.h"

keel::TaskEntry circle_task();

namespace {

constexpr int kPoints = 300, kRows = 24;

// Beside the program, in a folder that is removed behind it.
const std::string& table() {
  static const std::string path = [] {
    std::string csv = "x,y,inside\n";
    const std::vector<float> drawn = learn::draw(2 * kPoints, 3, -1.5, 1.5);
    for (int i = 0; i < kPoints; ++i) {
      const double x = drawn[static_cast<std::size_t>(2 * i)], y = drawn[static_cast<std::size_t>(2 * i + 1)];
      csv += fmt::format("{:.4f},{:.4f},{}\n", x, y, x * x + y * y < 1.1 ? 1 : 0);
    }
    std::ofstream("circle.csv") << csv;
    return std::string("circle.csv");
  }();
  return path;
}

// Steps of a run in the folder `run`.
keel::Config config(const std::string& run, std::vector<std::string> more = {}) {
  const keel::TaskEntry entry = circle_task();
  static const auto keys = std::make_shared<const keel::ConfigKeys>(std::span(&entry, 1));
  more.insert(more.begin(), {"run=" + run, "data.path=" + table(), fmt::format("batch.global={}", kRows)});
  return keel::parse_config(keys, R"(
steps: 12
batch: {micro: 6}
optimizer: {type: AdamW, lr: 2e-2}
checkpoint: {every: 100}
log: {every: 100}
threads: 1
)",
                            "circle.yaml", more);
}

class Told : public keel::TrainObserver {
 public:
  explicit Told(std::int64_t stop_after = 0) : stop_after_(stop_after) {}
  void on_step(const keel::StepReport& report) override {
    losses.push_back(report.loss);
    step_ = report.step;
  }
  bool stop_requested() override { return stop_after_ > 0 && step_ >= stop_after_; }
  std::vector<double> losses = {};

 private:
  std::int64_t stop_after_, step_ = 0;
};

struct Trained {
  keel::TrainResult result = {};
  std::vector<double> losses = {};
  std::string weights = {};  // the bytes of its file
};

Trained trained(int n, const keel::Config& run, std::int64_t stop_after = 0) {
  Trained trained;
  keel::run_ranks(n, [&](keel::Communicator& ranks) {
    Told told(stop_after);
    const keel::TrainResult result = keel::train(run, told, ranks);
    if (ranks.rank() == 0) trained = {result, told.losses, {}};
  });
  std::ifstream file(run.run + "/model.safetensors", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  trained.weights = bytes.str();
  if (trained.weights.empty()) learn::wrong("The run left no weights in {}/model.safetensors.", run.run);
  return trained;
}

// The numbers of two files of weights of one form: their largest distance.
double distance(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return 1e9;
  std::uint64_t header = 0;
  std::memcpy(&header, a.data(), sizeof header);
  double largest = 0;
  for (std::size_t at = 8 + header; at + 4 <= a.size(); at += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + at, 4);
    std::memcpy(&y, b.data() + at, 4);
    largest = std::max(largest, std::abs(double{x} - double{y}));
  }
  return largest;
}

void has_data() {
  const keel::Config run = config("none");
  const auto task = keel::make_task(run);
  const keel::Data data = task->data();
  if (!data.training) learn::wrong("data() returns nothing to train on. Is it written?");
  const keel::Batch batch = data.training->load_all(0);
  for (const char* field : {"point", "inside"})
    if (!batch.has(field)) learn::wrong("A batch of training has no field \"{}\".", field);
  const keel::Tensor &point = batch["point"], &inside = batch["inside"];
  if (point.rank() != 2 || point.dim(1) != 2)
    learn::wrong("The field \"point\" must be two numbers a row, x and y.");
  if (inside.dtype() != keel::DType::i32)
    learn::wrong("The field \"inside\" has numbers with fractions, and classes are whole: \"#inside\".");
  if (batch.rows() != kRows)
    learn::wrong("A step has {} rows, and batch.global says {}: make_data() gets it from site_.",
                 batch.rows(), kRows);
  std::int64_t held_out = 0;
  if (!data.validation.empty())
    for (std::int64_t s = 0; s < data.validation[0].source->steps(); ++s)
      held_out += data.validation[0].source->rows(s);
  if (held_out < 50 || held_out > 70)
    learn::wrong(
        "{} of {} points are held out for validation, and a fifth was expected. Accuracy on points that were "
        "trained on says nothing of others.",
        held_out, kPoints);
}

void first_loss() {
  const Trained run = trained(1, config("first", {"steps=2"}));
  const double loss = run.losses.at(0);
  if (!(loss > 0.2))
    learn::wrong("The loss of the first step is {:.4f}; a model that knows nothing has about ln 2 = 0.69.",
                 loss);
  if (loss > 1.6)
    learn::wrong(
        "The loss of the first step is {:.2f}; a model that knows nothing has about ln 2 = 0.69. Is it the "
        "sum over "
        "the rows? A loss is their mean: then the learning rate need not follow the size of a micro-batch.",
        loss);
}

void learns() {
  const Trained run = trained(1, config("learns", {"steps=150", "eval.every=150"}));
  if (run.losses.back() > 0.5 * run.losses.front())
    learn::wrong(
        "The loss is {:.3f} in the first step and {:.3f} in the last of {}: the model does not learn.",
        run.losses.front(), run.losses.back(), run.losses.size());
  const auto loss = run.result.evaluation ? run.result.evaluation->find("validation_loss") : std::nullopt,
             accuracy = run.result.evaluation ? run.result.evaluation->find("accuracy") : std::nullopt;
  if (!loss) learn::wrong("The evaluation has no validation loss: validation_step() must feed() it.");
  if (!accuracy)
    learn::wrong("The evaluation has no accuracy: make_metrics() makes it, and validation_step() feeds it.");
  if (!(*accuracy > 0.85))
    learn::wrong(
        "After {} steps {:.0f} % of the points that were held out are told right, and more than 85 % were "
        "expected.{}",
        run.losses.size(), 100 * *accuracy,
        std::isnan(*accuracy) ? "\nIt is NaN: nothing was fed to it." : "");
}

void stages_agree() {
  const Trained one = trained(1, config("one"));
  const Trained zero = trained(2, config("zero", {"strategy=ddp-fp32"}));
  const Trained three = trained(2, config("three", {"strategy=zero3-fp32"}));
  if (zero.weights != three.weights)
    learn::wrong(
        "Two ranks train other weights in stage 3 than in stage 0; their largest distance is {:.2g}. The "
        "same step "
        "must be the same function in both: does it draw or remember anything of its own?",
        distance(zero.weights, three.weights));
  if (const double apart = distance(one.weights, zero.weights); apart > 1e-4)
    learn::wrong(
        "One rank and two train weights that are {:.2g} apart after 12 steps. Does a step depend on which "
        "micro-batches a rank has seen?",
        apart);
}

void parts_agree() {
  const Trained small = trained(1, config("small", {"batch.micro=3"})),
                large = trained(1, config("large", {"batch.micro=24"}));
  if (const double apart = distance(small.weights, large.weights); apart > 1e-4)
    learn::wrong(
        "Micro-batches of 3 rows and of 24 train weights that are {:.2g} apart after 12 steps. A row's loss "
        "must "
        "not depend on the rows beside it, and the loss must be their mean.",
        apart);
}

void goes_on() {
  const Trained whole = trained(1, config("whole"));
  trained(1, config("halves"), 5);
  const Trained halves = trained(1, config("halves", {"resume=auto"}));
  if (halves.losses.size() >= whole.losses.size()) learn::wrong("The run did not go on from its checkpoint.");
  if (whole.weights != halves.weights)
    learn::wrong(
        "A run that was ended after step 5 and resumed has other weights in the end than one without a "
        "break; "
        "their largest distance is {:.2g}. What a member of the task remembers is not in the checkpoint.",
        distance(whole.weights, halves.weights));
}

}  // namespace

int main() {
  return learn::run({
      {"there is data to train on, and a fifth held out", has_data},
      {"the loss is the mean cross-entropy", first_loss},
      {"a run that was ended goes on to the same bits", goes_on},
      {"any division into micro-batches trains alike", parts_agree},
      {"the model learns, and accuracy is measured", learns},
      {"stages 0 and 3 have the same bits, and one rank trains as two do", stages_agree},
  });
}
