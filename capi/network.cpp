#include "keel/capi/network.h"

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/nn/models/gpt.h"
#include "keel/tasks/language.h"

namespace keel::capi {
namespace {

Forward training_pass() { return {.training = true, .random = {}, .sample_ids = {}}; }

bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

void check_floating(const Array& array, const char* name) {
  KEEL_CHECK(is_floating(array.tensor.dtype()), "the ", name, " is ", array.tensor, ", but must be f32 or f64");
}

void check_index(const Array& array, const Dims& shape, const char* name) {
  KEEL_CHECK(is_index(array.tensor.dtype()) && array.tensor.shape() == shape, "the ", name, " is ", array.tensor,
             ", but must be i32 or i64 ", shape);
}

// The mean over targets that count, which are told by the device.
SampleLoss classify(const Variable& logits, const Array& target) {
  const CrossEntropyLoss result = cross_entropy(logits, read_array(target, target.tensor.dtype()));
  return {result.loss, static_cast<std::int64_t>(result.count.item())};
}

class MlpNetwork : public Network {
 public:
  enum class Loss : unsigned char { squares, classes };

  MlpNetwork(const std::vector<std::int64_t>& widths, ActivationKind activation, Loss loss)
      : mlp_(widths, activation), inputs_(widths.front()), outputs_(widths.back()), loss_(loss) {}

  Module& module() override { return mlp_; }

  void check(const Array& input, const Array& target) const override {
    check_input(input);
    if (loss_ == Loss::squares) check_outputs(input, target, "target");
    else check_index(target, samples_of(input), "target");
  }

  SampleLoss loss(const Array& input, const Array& target) const override {
    Forward pass = training_pass();
    const Variable answer = mlp_(read(input), pass);
    if (loss_ == Loss::classes) return classify(answer, target);
    // In f32 or wider, whatever the model computes in.
    const DType wide = answer.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor wanted = with_outputs(read_array(target, wide), input.tensor.rank());
    return {mse_loss(cast(answer, wide), Variable(wanted)), product(samples_of(input))};
  }

  void check_answer(const Array& input, const Array& output) const override {
    check_input(input);
    check_outputs(input, output, "output");
  }

  Tensor answer(const Array& input, const Array& output) const override {
    Forward pass;
    return mlp_(read(input), pass).value().view(output.tensor.shape());
  }

 private:
  static Dims samples_of(const Array& input) {
    Dims shape = input.tensor.shape();
    shape.pop_back();
    return shape;
  }
  Variable read(const Array& input) const {
    return Variable(read_array(input, mlp_.layers.front().weight.state()->variable.dtype()));
  }
  // (...) as (..., 1).
  static Tensor with_outputs(const Tensor& x, int rank) { return x.rank() < rank ? x.unsqueeze(-1) : x; }

  void check_input(const Array& input) const {
    check_floating(input, "input");
    KEEL_CHECK(input.tensor.rank() >= 1 && input.tensor.dim(-1) == inputs_, "the input is ", input.tensor,
               ", but its last extent must be ", inputs_, ", the model's inputs");
  }
  void check_outputs(const Array& input, const Array& array, const char* name) const {
    check_floating(array, name);
    Dims shape = samples_of(input);
    if (outputs_ == 1 && array.tensor.shape() == shape) return;
    shape.push_back(outputs_);
    KEEL_CHECK(array.tensor.shape() == shape, "the ", name, " is ", array.tensor, ", but must be ", shape,
               " for the input ", input.tensor.shape(), " and ", outputs_, " outputs");
  }

  Mlp mlp_;
  std::int64_t inputs_, outputs_;
  Loss loss_;
};

class GptNetwork : public Network {
 public:
  explicit GptNetwork(const GptOptions& options) : gpt_(options) {}

  Module& module() override { return gpt_; }

  void check(const Array& input, const Array& target) const override {
    check_tokens(input);
    check_index(target, input.tensor.shape(), "target");
  }

  SampleLoss loss(const Array& input, const Array& target) const override {
    Forward pass = training_pass();
    return classify(gpt_(tokens_of(input), pass), target);
  }

  void check_answer(const Array& input, const Array& output) const override {
    check_tokens(input);
    check_floating(output, "output");
    Dims shape = input.tensor.shape();
    shape.push_back(gpt_.options.vocabulary);
    KEEL_CHECK(output.tensor.shape() == shape, "the output is ", output.tensor, ", but must be ", shape);
  }

  Tensor answer(const Array& input, const Array&) const override {
    Forward pass;
    return gpt_(tokens_of(input), pass).value();
  }

 private:
  static Tensor tokens_of(const Array& input) { return read_array(input, input.tensor.dtype()); }

  void check_tokens(const Array& input) const {
    const Tensor& tokens = input.tensor;
    KEEL_CHECK(is_index(tokens.dtype()) && tokens.rank() == 2 && tokens.dim(1) <= gpt_.options.block, "the input is ",
               tokens, ", but must be i32 or i64 (batch, positions) with at most ", gpt_.options.block, " positions");
  }

  Gpt gpt_;
};

}  // namespace

std::unique_ptr<Network> make_mlp_network(const std::vector<std::int64_t>& widths, const std::string& activation,
                                          const std::string& loss) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 30;
  KEEL_CHECK(widths.size() >= 2, "widths has ", widths.size(), " entries; give inputs and outputs at least");
  for (const std::int64_t width : widths)
    KEEL_CHECK(width >= 1 && width <= kWidest, "a width of ", width, " is not in [1, ", kWidest, "]");
  KEEL_CHECK(loss == "mse" || loss == "cross_entropy", "unknown loss '", loss, "'; known are mse, cross_entropy");
  return std::make_unique<MlpNetwork>(widths, parse_activation(activation),
                                      loss == "mse" ? MlpNetwork::Loss::squares : MlpNetwork::Loss::classes);
}

std::unique_ptr<Network> make_gpt_network(const Config& config) {
  const std::int64_t vocabulary = config.integer("model.vocabulary");
  KEEL_CHECK(vocabulary > 0, "model.vocabulary is missing; without data nothing else says it");
  if (config.number("model.dropout") != 0)
    throw Error("model.dropout: the samples have no numbers of their own here, which it needs; set it to 0",
                ErrorKind::unsupported);
  return std::make_unique<GptNetwork>(gpt_options(config, vocabulary));
}

}  // namespace keel::capi
