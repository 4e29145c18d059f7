#include "keel/capi/goal.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"

namespace keel::capi {
namespace {

// Each sample's part of the weight, f32 in rows of one. All 0 where no sample weighs anything.
Variable parts_of(std::vector<double> weights, const Context& context) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<float> parts;
  for (const double weight : weights) parts.push_back(total > 0 ? static_cast<float>(weight / total) : 0);
  return Variable(from_values(context, parts, {static_cast<std::int64_t>(parts.size()), 1}));
}

// (samples..., width) as rows.
Variable rows_of(const Variable& x) {
  return view(x, {product(x.shape()) / std::max<std::int64_t>(x.dim(-1), 1), x.dim(-1)});
}

class Squares : public Goal {
 public:
  void check(const Network& network, const Samples& samples) const override {
    for (std::size_t i = 0; i < network.outputs().size(); ++i)
      check_numbers(network.outputs()[i], samples.arrays.targets[i].get(), samples.extents, "target");
  }

  SampleLoss loss(std::span<const Variable> outputs, const Samples& samples) const override {
    SampleLoss sum{{}, samples.weight};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Variable own = loss_of(outputs[i], *samples.arrays.targets[i], samples);
      sum.value = i == 0 ? own : add(sum.value, own);
    }
    return sum;
  }

 private:
  static Variable loss_of(const Variable& output, const Array& target, const Samples& samples) {
    // In f32 or wider, whatever the model computes in.
    const DType wide = output.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor wanted = read_array(target, wide);
    if (wanted.rank() == samples.extents.size()) wanted = wanted.unsqueeze(-1);
    const Variable answer = cast(output, wide);
    if (samples.weights.empty()) return mse_loss(answer, Variable(wanted));
    const Variable squares = rows_of(square(sub(answer, Variable(wanted))));
    return scale(sum(mul(squares, parts_of(samples.weights, output.context()))),
                 1 / static_cast<double>(output.dim(-1)));
  }
};

class Classes : public Goal {
 public:
  void check(const Network& network, const Samples& samples) const override {
    KEEL_CHECK(network.outputs().size() == 1, "cross_entropy is for a model with one output, and this one has ",
               network.outputs().size(), "; give it a loss of your own (keel_model_loss)");
    check_classes(network.outputs().front(), samples.arrays.targets.front().get(), samples.extents);
  }

  // The mean over targets that count, which are told by the device.
  SampleLoss loss(std::span<const Variable> outputs, const Samples& samples) const override {
    const Array& target = *samples.arrays.targets.front();
    const Tensor classes = read_array(target, target.tensor.dtype());
    if (!samples.weights.empty()) return weighted(outputs.front(), classes, samples.weights);
    const CrossEntropyLoss result = cross_entropy(outputs.front(), classes);
    return {result.loss, result.count.item()};
  }

 private:
  static constexpr std::int64_t kIgnored = -100;

  static SampleLoss weighted(const Variable& logits, const Tensor& classes, std::vector<double> weights) {
    std::vector<std::int64_t> chosen =
        kernels::cast(kernels::to(kernels::contiguous(classes), logits.context().host()), DType::i64)
            .to_vector<std::int64_t>();
    double total = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] == kIgnored) weights[i] = static_cast<double>(chosen[i] = 0);
      KEEL_CHECK(chosen[i] >= 0 && chosen[i] < logits.dim(-1), "class ", chosen[i], " is not in [0, ", logits.dim(-1),
                 ")");
      total += weights[i];
    }
    const Context& context = logits.context();
    const Tensor index = from_values(context, chosen, {static_cast<std::int64_t>(chosen.size()), 1});
    const Variable likelihood = gather(log_softmax(rows_of(cast(logits, DType::f32))), -1, index);
    return {neg(sum(mul(likelihood, parts_of(std::move(weights), context)))), total};
  }
};

}  // namespace

std::unique_ptr<Goal> make_goal(const std::string& name) {
  if (name == "mse") return std::make_unique<Squares>();
  if (name == "cross_entropy") return std::make_unique<Classes>();
  throw Error(concat("unknown loss '", name, "'; known are mse, cross_entropy"));
}

}  // namespace keel::capi
