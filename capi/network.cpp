#include "keel/capi/network.h"

#include <utility>

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/model_keys.h"
#include "keel/nn/layer_text.h"
#include "keel/tasks/language.h"

namespace keel::capi {
namespace {

class MlpNetwork : public Network {
 public:
  MlpNetwork(const std::vector<std::int64_t>& widths, ActivationKind activation)
      : Network({{"input", widths.front()}}, {{"output", widths.back()}}), mlp_(widths, activation) {}

  Module& module() override { return mlp_; }
  std::vector<Variable> forward(std::span<const Tensor> inputs, Forward& pass) const override {
    return {mlp_(Variable(inputs.front()), pass)};
  }

 private:
  Mlp mlp_;
};

class TextNetwork : public Network {
 public:
  explicit TextNetwork(TextModel model)
      : Network(ports_of(model.inputs()), ports_of(model.outputs())), model_(std::move(model)) {}

  Module& module() override { return model_; }
  bool draws() const override { return true; }
  std::vector<Variable> forward(std::span<const Tensor> inputs, Forward& pass) const override {
    // Any number of extents as one of samples, and back.
    Dims extents = inputs.front().shape();
    if (this->inputs().front().width > 0) extents.pop_back();
    const std::int64_t samples = product(extents);
    std::vector<Tensor> rows;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t width = this->inputs()[i].width;
      rows.push_back(kernels::contiguous(inputs[i]).view(width > 0 ? Dims{samples, width} : Dims{samples}));
    }
    std::vector<Variable> results;
    for (const Variable& each : model_(rows, pass)) {
      Dims shape = extents;
      shape.push_back(each.dim(-1));
      results.push_back(view(each, shape));
    }
    return results;
  }

 private:
  static std::vector<Port> ports_of(const std::vector<TextModel::Input>& inputs) {
    std::vector<Port> ports;
    for (const TextModel::Input& input : inputs) ports.push_back({input.name, input.table ? 0 : input.width});
    return ports;
  }
  static std::vector<Port> ports_of(const std::vector<TextModel::Output>& outputs) {
    std::vector<Port> ports;
    for (const TextModel::Output& output : outputs) ports.push_back({output.name, output.width});
    return ports;
  }

  TextModel model_;
};

class DecoderNetwork : public Network {
 public:
  explicit DecoderNetwork(std::unique_ptr<CausalModel> model)
      : Network({{"input", 0}}, {{"output", model->vocabulary()}}), model_(std::move(model)) {}

  Module& module() override { return *model_; }
  void check_samples(const Dims& samples) const override {
    KEEL_CHECK(samples.size() == 2 && samples[1] <= model_->block(), "the input is ", samples,
               ", but must be (batch, positions) with at most ", model_->block(), " positions");
  }
  std::vector<Variable> forward(std::span<const Tensor> inputs, Forward& pass) const override {
    return {(*model_)(inputs.front(), pass)};
  }

 private:
  std::unique_ptr<CausalModel> model_;
};

}  // namespace

std::unique_ptr<Network> make_mlp_network(const std::vector<std::int64_t>& widths, const std::string& activation) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 30;
  KEEL_CHECK(widths.size() >= 2, "widths has ", widths.size(), " entries; give inputs and outputs at least");
  for (const std::int64_t width : widths)
    KEEL_CHECK(width >= 1 && width <= kWidest, "a width of ", width, " is not in [1, ", kWidest, "]");
  return std::make_unique<MlpNetwork>(widths, parse_activation(activation));
}

std::unique_ptr<Network> make_text_network(const std::string& text, std::int64_t inputs) {
  return std::make_unique<TextNetwork>(TextModel(text, inputs));
}

std::unique_ptr<Network> make_gpt_network(const Config& config) {
  const std::int64_t vocabulary = config.integer("model.vocabulary");
  KEEL_CHECK(vocabulary > 0, "model.vocabulary is missing; without data nothing else says it");
  if (config.number("model.dropout") != 0)
    throw Error("model.dropout: the samples have no numbers of their own here, which it needs; set it to 0",
                ErrorKind::unsupported);
  return std::make_unique<DecoderNetwork>(model_spec(config, vocabulary)->make_decoder());
}

}  // namespace keel::capi
