#pragma once
// A parameter: born as a description, given memory later, so that a model can be built without any.

#include <cstdint>
#include <memory>
#include <string>

#include "keel/autograd/variable.h"

namespace keel {

// How the numbers of a parameter begin: a function of (seed, name, global element index) alone, so
// that every rank can make just its own part.
struct Initializer {
  enum class Kind : unsigned char { constant, normal, uniform } kind = Kind::constant;
  double a = 0;  // constant: the value; normal: mean; uniform: low
  double b = 0;  // normal: standard deviation; uniform: high

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::constant, 1, 0}; }
  static Initializer constant(double value) { return {Kind::constant, value, 0}; }
  static Initializer normal(double deviation, double mean = 0) { return {Kind::normal, mean, deviation}; }
  static Initializer uniform(double low, double high) { return {Kind::uniform, low, high}; }
  // Uniform in +-1/sqrt(inputs): PyTorch's default for linear layers (LeCun et al. 1998, up to a factor);
  // 0 without inputs.
  static Initializer fan_in(std::int64_t inputs);

  // Writes elements first ... first + count - 1 of the parameter `name` to `out`.
  void fill(const Context& context, std::uint64_t seed, std::string_view name, std::int64_t first, std::int64_t count,
            float* out) const;
};

// A handle that modules hold as a plain member. It cannot be copied by accident: a second handle of
// the same parameter is made with tie(), and both then are one identity with one gradient.
class Parameter {
 public:
  // What all handles of one parameter share.
  struct State {
    Dims shape;
    Initializer initializer;
    bool trainable = true;
    bool sparse = false;  // its gradient is kept as rows: keel/autograd/row_gradient.h
    std::string name;     // its path in the model; set by materialize()
    Variable variable;    // set by materialize()
  };

  Parameter() = default;  // absent: a bias that is switched off
  Parameter(const Dims& shape, Initializer initializer, bool trainable = true)
      : state_(std::make_shared<State>(State{shape, initializer, trainable, false, {}, {}})) {}
  Parameter(Parameter&&) = default;
  Parameter& operator=(Parameter&&) = default;
  Parameter tie() const {
    Parameter other;
    other.state_ = state_;
    return other;
  }

  bool defined() const { return state_ != nullptr; }
  const Dims& shape() const { return state_->shape; }
  bool trainable() const { return state_->trainable; }
  void set_trainable(bool trainable) const { state_->trainable = trainable; }  // before materialize()
  void set_sparse(bool sparse) const { state_->sparse = sparse; }              // before materialize()
  const std::string& name() const { return state_->name; }
  const std::shared_ptr<State>& state() const { return state_; }

  // The variable to compute with; empty for an absent parameter, an Error before materialize().
  const Variable& variable() const;
  operator const Variable&() const { return variable(); }  // NOLINT: a parameter is used as its variable
  const Tensor& value() const { return variable().value(); }
  Tensor grad() const { return variable().grad(); }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace keel
