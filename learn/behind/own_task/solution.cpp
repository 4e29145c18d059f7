#include "keel/autograd/functions.h"
#include "keel/data/csv.h"
#include "keel/nn/layers.h"
#include "keel/tasks/catalog.h"
#include "keel/tasks/metrics/catalog.h"

using namespace keel;

class Circle : public Task {
 public:
  explicit Circle(const TaskSite& site) : site_(site) {}

  Module& model() override { return net_; }

  Data data() override {
    const DatasetPtr points =
        open_csv(site_.settings.text("data.path"), {.fields = {{"point", "x,y"}, {"inside", "#inside"}}});
    return make_data(site_, points, 0.2, stack());
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return cross_entropy(scores(batch, pass), batch["inside"]);
  }
  void make_metrics(std::string_view, Metrics& metrics) override { accuracy_.make(metrics); }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    feed(metrics, training_step(batch, pass), batch);
    accuracy_.feed(metrics, {.outputs = scores(batch, pass).value(), .targets = batch["inside"]});
  }

 private:
  Variable scores(const Batch& batch, Forward& pass) const { return net_(input(batch, "point", pass), pass); }

  TaskSite site_;
  Mlp net_{{2, 16, 16, 2}, ActivationKind::tanh};
  MetricList accuracy_{{"accuracy"}, MetricInput::classes, 2};
};

TaskEntry circle_task() {
  return task_entry<Circle>(
      "circle", "which points lie inside of a circle",
      {{.key = "data.path", .type = KeyType::path, .help = "A csv file: x, y, inside."}});
}
