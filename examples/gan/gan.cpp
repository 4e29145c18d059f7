// Points on a ring out of noise: a generator and a critic, two models that play against each other, each with an
// optimizer of its own.
//
//   gan train gan.yaml                      one process
//   gan launch -N 4 --strat zero3 gan.yaml  sharded, to the bits of one stage
//   gan evaluate runs/gan                   how far the points lie from the ring, and how much of it they cover
//   gan get runs/gan --stack generator --out generator.safetensors

#include <cmath>

#include "keel/autograd/functions.h"
#include "keel/cli/main.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/tasks/manual_task.h"

using namespace keel;

// Each example is a point of the ring and noise, functions of its number.
class Ring : public Dataset {
 public:
  explicit Ring(std::uint64_t seed) : seed_(seed) {}
  std::int64_t size() const override { return 8192; }
  Example example(std::int64_t i) const override {
    check_index(i);
    std::vector<float> drawn(5);
    fill_uniform(drawn, seed_, "ring", static_cast<std::uint64_t>(5 * i));
    const float angle = 2 * kPi * drawn[0];
    Example example;
    example.set("point", Numbers{{2}, {std::cos(angle), std::sin(angle)}});
    example.set("noise", Numbers{{4}, {2 * drawn[1] - 1, 2 * drawn[2] - 1, 2 * drawn[3] - 1, 2 * drawn[4] - 1}});
    return example;
  }
  std::string fingerprint() const override { return concat("ring ", seed_); }
  static constexpr float kPi = 3.14159265F;

 private:
  std::uint64_t seed_;
};

class Gan : public ManualTask {
 public:
  explicit Gan(const TaskSite& site) : site_(site), width_(site.settings.integer("model.width")) {}

  std::vector<StackModel> stacks() override {
    return {{.name = "critic", .module = &critic_}, {.name = "generator", .module = &generator_}};
  }
  Data data() override { return make_data(site_, std::make_shared<Ring>(site_.data_seed), 0.0625, stack()); }

  // The losses of the original, without saturation (Goodfellow et al. 2014).
  void training_step(ManualStep& step) override {
    step.train("critic", [&](const Batch& batch, Forward& pass) {
      Loss loss;
      loss.add("real", mean(softplus(neg(critic_(input(batch, "point", pass), pass)))), "rows");
      loss.add("fake", mean(softplus(critic_(made(batch, pass), pass))), "rows");
      return loss;
    });
    step.train("generator", [&](const Batch& batch, Forward& pass) -> Loss {
      return mean(softplus(neg(critic_(made(batch, pass), pass))));
    });
  }

  // How far the points lie from the ring on average, and how many of its eighths have at least half of their share.
  void make_metrics(std::string_view, Metrics& metrics) override {
    metrics.make<MeanMetric>("radius_error");
    metrics.make<MeanMetric>("covered");
  }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const std::vector<float> points = cast(made(batch, pass), DType::f32).value().to_vector<float>();
    std::vector<double> share(8);
    double error = 0;
    for (std::size_t i = 0; i < points.size(); i += 2) {
      error += std::abs(std::hypot(points[i], points[i + 1]) - 1);
      const double turn = std::atan2(points[i + 1], points[i]) / (2 * Ring::kPi) + 0.5;
      share[static_cast<std::size_t>(8 * turn) % 8] += 1 / batch.weight("rows");
    }
    metrics.at<MeanMetric>("radius_error").update(error / batch.weight("rows"), batch.weight("rows"));
    double covered = 0;
    for (const double each : share) covered += each >= 1.0 / 16 ? 1.0 / 8 : 0;
    metrics.at<MeanMetric>("covered").update(covered, batch.weight("rows"));
  }

 private:
  Variable made(const Batch& batch, Forward& pass) const { return generator_(input(batch, "noise", pass), pass); }

  TaskSite site_;
  std::int64_t width_;
  Mlp critic_{{2, width_, width_, 1}, ActivationKind::relu}, generator_{{4, width_, width_, 2}, ActivationKind::relu};
};

int main(int argc, char** argv) {
  const TaskEntry tasks[] = {task_entry<Gan>(
      "ring", "points on a ring, out of noise",
      {{.key = "model.width", .type = KeyType::integer, .standard = "32", .help = "Hidden units.", .low = 1}},
      {"critic", "generator"})};
  return keel::main(argc, argv, tasks);
}
