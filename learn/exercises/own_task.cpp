// own_task: a task of your own for keel's trainer
//
// A task says what is learnt: model, data, loss, metrics. The trainer does everything else: ranks, stages of
// ZeRO, checkpoints, records. It can, because a step is a function of a batch, the pass and the weights. A
// step is cut into micro-batches, which are shared out among ranks. So a loss is a mean over the rows of a
// micro-batch, the loss of a row does not depend on other rows, and no member remembers anything from step to
// step.
//
// The task here: does a point of the plane lie inside of a circle? The table data.path has the columns x, y
// and inside, which is 0 or 1. Of each point the model says two scores, for outside and inside.
//
//   data(): open_csv() of that table, with the fields {"point", "x,y"} and {"inside", "#inside"}, where #
//     says that numbers are whole. Then make_data() of site_, that, 0.2 and stack(): a fifth is held out.
//   training_step(): the scores are net_(input(batch, "point", pass), pass). The loss is the cross_entropy()
//     of them and batch["inside"], which is a mean over the rows.
//   make_metrics(): accuracy_.make(metrics).
//   validation_step(): feed() for the loss. accuracy_.feed() with the scores' value() as outputs, and
//     batch["inside"] as targets.
//
// Write these four. docs/own-task.md has more, and examples/own_task a whole program. To read afterwards:
// tasks/task.h, then trainer/trainer.h.

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
    return {};  // Your code.
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return {};  // Your code.
  }
  void make_metrics(std::string_view, Metrics& metrics) override {
    // Your code.
  }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    // Your code.
  }

 private:
  TaskSite site_;
  Mlp net_{{2, 16, 16, 2}, ActivationKind::tanh};
  MetricList accuracy_{{"accuracy"}, MetricInput::classes, 2};
};

TaskEntry circle_task() {
  return task_entry<Circle>(
      "circle", "which points lie inside of a circle",
      {{.key = "data.path", .type = KeyType::path, .help = "A csv file: x, y, inside."}});
}
