// Which arm of three spirals a point lies on: a task of one's own, with all of keel's commands for it.
//
//   spirals train spirals.yaml                    one process
//   spirals launch -N 4 --strat zero3 spirals.yaml
//   spirals compare spirals.yaml -N 2             all stages, to the bit
//   spirals evaluate runs/spirals                 its metrics
//   spirals predict runs/spirals --input points.csv --out arms.jsonl
//   spirals tasks spirals                         its keys

#include "keel/autograd/loss.h"
#include "keel/cli/main.h"
#include "keel/data/csv.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/nn/layers.h"
#include "keel/tasks/metrics/catalog.h"

using namespace keel;

class Spirals : public Task {
 public:
  explicit Spirals(const TaskSite& site)
      : site_(site),
        net_({2, width(), width(), kArms}, parse_activation(site.settings.text("model.activation"))),
        metrics_(site.settings.texts("task.metrics"), MetricInput::classes, kArms) {}

  Module& model() override { return net_; }

  Data data() override {
    const DatasetPtr points =
        open_csv(site_.settings.text("data.path"), {.fields = {{"point", "x,y"}, {"arm", "#arm"}}});
    return make_data(site_, points, site_.settings.number("data.validation"), stack());
  }

  Loss training_step(const Batch& batch, Forward& pass) override { return loss(logits(batch, pass), batch); }

  void make_metrics(std::string_view, Metrics& metrics) override { metrics_.make(metrics); }

  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const Variable scores = logits(batch, pass);
    feed(metrics, loss(scores, batch), batch);
    metrics_.feed(metrics, {.outputs = scores.value(), .targets = batch["arm"], .examples = batch.examples()});
  }

  // A csv file with columns x and y.
  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    return in_order(site_, open_csv(path, {.fields = {{"point", "x,y"}}}), stack());
  }

  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const Tensor chances = kernels::softmax(logits(batch, pass).value());
    const auto arms = kernels::argmax(chances, -1).to_vector<std::int64_t>();
    const auto highest = kernels::cast(kernels::max(chances, {-1}), DType::f32).to_vector<float>();
    for (std::size_t i = 0; i < arms.size(); ++i)
      out.add(batch.examples()[i], {{"arm", arms[i]}, {"probability", highest[i]}});
  }

 private:
  static constexpr std::int64_t kArms = 3;
  std::int64_t width() const { return site_.settings.integer("model.width"); }
  Variable logits(const Batch& batch, Forward& pass) const { return net_(input(batch, "point", pass), pass); }
  static Loss loss(const Variable& scores, const Batch& batch) { return cross_entropy(scores, batch["arm"]); }

  TaskSite site_;
  Mlp net_;
  MetricList metrics_;
};

int main(int argc, char** argv) {
  const TaskEntry tasks[] = {task_entry<Spirals>(
      "spirals", "which arm of three spirals a point lies on",
      {{.key = "task.metrics",
        .type = KeyType::texts,
        .standard = "[accuracy, f1_macro]",
        .help = "What is told of the validation set, beside the loss; docs/metrics.md lists all.",
        .on_resume = ResumeRule::ignores},
       {.key = "model.width",
        .type = KeyType::integer,
        .standard = "32",
        .help = "Hidden units of both layers.",
        .low = 1},
       {.key = "model.activation",
        .type = KeyType::choice,
        .standard = "tanh",
        .help = "Between the layers.",
        .choices = "relu|gelu|tanh"},
       {.key = "data.path", .type = KeyType::path, .help = "A csv file of points, with columns x, y and arm."},
       {.key = "data.validation",
        .type = KeyType::number,
        .standard = "0.2",
        .help = "Fraction that is never trained on.",
        .low = 0,
        .high = 0.5}})};
  return keel::main(argc, argv, tasks);
}
