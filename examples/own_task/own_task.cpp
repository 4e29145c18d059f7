// How far a ball flies and how high it rises: a task of one's own, which learns two numbers from a table.
//
//   throws train throws.yaml                      one process; all of keel's commands are there
//   throws launch -N 4 --strat zero3 throws.yaml
//   throws evaluate runs/throws                   its metrics
//   throws predict runs/throws --input balls.csv --out flights.jsonl
//   throws tasks throws                           its keys

#include "keel/autograd/functions.h"
#include "keel/cli/main.h"
#include "keel/data/csv.h"
#include "keel/nn/layers.h"
#include "keel/tasks/metrics/catalog.h"

using namespace keel;

struct Flight {
  Variable distance, height;  // f32 (rows)
};

// Two heads on the layers that they share.
struct FlightModel : Module {
  Mlp trunk;
  Linear distance, height;

  explicit FlightModel(std::int64_t width)
      : trunk({3, width, width}, ActivationKind::tanh), distance(width, 1), height(width, 1) {}
  void visit(Visitor& v) override {
    v("trunk", trunk);
    v("distance", distance);
    v("height", height);
  }
  Flight operator()(const Variable& ball, Forward& pass) const {
    const Variable shared = tanh(trunk(ball, pass));
    const auto numbers = [&](const Linear& head) { return cast(view(head(shared, pass), {-1}), DType::f32); };
    return {numbers(distance), numbers(height)};
  }
};

class Throws : public Task {
 public:
  explicit Throws(const TaskSite& site) : site_(site), model_(site.settings.integer("model.width")) {}

  Module& model() override { return model_; }

  Data data() override {
    const DatasetPtr throws =
        open_csv(site_.settings.text("data.path"),
                 {.fields = {{"ball", "speed,angle,drag"}, {"distance", "distance"}, {"height", "height"}}});
    return make_data(site_, throws, 0.2, stack());  // a fifth is never trained on
  }

  Loss training_step(const Batch& batch, Forward& pass) override { return loss(flight(batch, pass), batch); }

  void make_metrics(std::string_view, Metrics& metrics) override {
    of_distance_.make(metrics);
    of_height_.make(metrics);
  }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const Flight said = flight(batch, pass);
    feed(metrics, loss(said, batch), batch);
    of_distance_.feed(metrics, {.outputs = said.distance.value(), .targets = batch["distance"]});
    of_height_.feed(metrics, {.outputs = said.height.value(), .targets = batch["height"]});
  }

  // A csv file with columns speed, angle and drag.
  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    return in_order(site_, open_csv(path, {.fields = {{"ball", "speed,angle,drag"}}}), stack());
  }
  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const Flight said = flight(batch, pass);
    const auto distances = said.distance.value().to_vector<float>(), heights = said.height.value().to_vector<float>();
    for (std::size_t i = 0; i < distances.size(); ++i)
      out.add(batch.examples()[i], {{"distance", distances[i]}, {"height", heights[i]}});
  }

 private:
  Flight flight(const Batch& batch, Forward& pass) const { return model_(input(batch, "ball", pass), pass); }

  // A term for each head, and one of outputs alone: balls do not rise below the ground.
  Loss loss(const Flight& said, const Batch& batch) const {
    Loss loss;
    loss.add("distance", mse_loss(said.distance, Variable(batch["distance"])), "rows");
    loss.add("height", mse_loss(said.height, Variable(batch["height"])), "rows", 4);
    loss.add_regularizer("below_ground", mean(relu(neg(said.height))), site_.settings.number("task.ground"));
    return loss;
  }

  TaskSite site_;
  FlightModel model_;
  MetricList of_distance_{{"r2", "mae"}, MetricInput::numbers, 1, "distance_"},
      of_height_{{"r2", "mae"}, MetricInput::numbers, 1, "height_"};
};

int main(int argc, char** argv) {
  using enum KeyType;
  const TaskEntry tasks[] = {task_entry<Throws>(
      "throws", "how far a ball flies, and how high it rises",
      {{.key = "task.ground",
        .type = number,
        .standard = "0.1",
        .help = "Weight of heights below the ground.",
        .low = 0},
       {.key = "model.width", .type = integer, .standard = "32", .help = "Hidden units of both layers.", .low = 1},
       {.key = "data.path", .type = path, .help = "A csv file: speed, angle, drag, distance, height."}})};
  return keel::main(argc, argv, tasks);
}
