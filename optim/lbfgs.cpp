#include "keel/optim/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"
#include "keel/optim/line_search.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using Vector = std::vector<Tensor>;

// A change that says less about the curvature is forgotten.
constexpr double kLeastCurvature = 1e-10;

Vector copy(const Vector& x) {
  Vector result;
  for (const Tensor& part : x) result.push_back(kernels::clone(part));
  return result;
}

void scale(const Vector& x, double factor) {
  for (const Tensor& part : x) kernels::scale(part, factor);
}

void assign(const Vector& to, const Vector& from) {
  for (std::size_t i = 0; i < to.size(); ++i) kernels::copy_into(to[i], from[i]);
}

// y += factor * x.
void add(const Vector& y, double factor, const Vector& x) {
  const Vector scaled = copy(x);
  scale(scaled, factor);
  for (std::size_t i = 0; i < y.size(); ++i) kernels::accumulate(y[i], scaled[i]);
}

class Step {
 public:
  Step(LbfgsProblem& problem, LbfgsState& state, const LbfgsOptions& options)
      : problem_(problem), state_(state), options_(options) {}

  LbfgsResult run() {
    double loss = evaluate();
    LbfgsResult result{.loss = loss, .largest_gradient = largest(problem_.gradient())};
    const int most = options_.max_evaluations > 0 ? options_.max_evaluations : options_.max_iterations * 5 / 4;
    double gradient = result.largest_gradient;
    while (gradient > options_.tolerance_gradient && result.iterations < options_.max_iterations) {
      ++result.iterations;
      choose_direction();
      const double before = loss, slope = dot(problem_.gradient(), state_.direction);
      if (slope > -options_.tolerance_change) break;
      const bool is_last = result.iterations == options_.max_iterations;
      move(loss, slope, is_last);
      if (is_last || evaluations_ >= most) break;
      gradient = largest(problem_.gradient());
      if (largest(state_.direction) * std::abs(state_.step) <= options_.tolerance_change ||
          std::abs(loss - before) < options_.tolerance_change)
        break;
    }
    result.evaluations = evaluations_;
    return result;
  }

 private:
  double dot(const Vector& x, const Vector& y) {
    double mine = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i].numel() == 0) continue;
      const Tensor products = kernels::binary<Mul>(kernels::cast(x[i], DType::f64), kernels::cast(y[i], DType::f64));
      mine += kernels::sum(products).item();
    }
    return problem_.sum(mine);
  }
  double sum_of_sizes(const Vector& x) {
    double mine = 0;
    for (const Tensor& part : x)
      if (part.numel() != 0) mine += kernels::sum(kernels::unary<Abs>(kernels::cast(part, DType::f64))).item();
    return problem_.sum(mine);
  }
  double largest(const Vector& x) {
    double mine = 0;
    for (const Tensor& part : x)
      if (part.numel() != 0) mine = std::max(mine, kernels::max(kernels::unary<Abs>(part)).item());
    return problem_.largest(mine);
  }

  double evaluate() {
    ++evaluations_;
    ++state_.evaluations;
    const double loss = problem_.evaluate();
    if (!std::isfinite(loss)) throw Error(concat("LBFGS: the loss is ", loss), ErrorKind::numeric);
    return loss;
  }

  void choose_direction() {
    const Vector& gradient = problem_.gradient();
    if (state_.iterations++ == 0) {
      state_.direction = copy(gradient);
      scale(state_.direction, -1);
    } else {
      remember(gradient);
      apply_inverse_hessian(gradient);
    }
    state_.step = options_.lr;
    if (state_.iterations == 1) state_.step *= std::min(1.0, 1 / sum_of_sizes(gradient));
    state_.gradient = copy(gradient);
  }

  // What the step before has changed.
  void remember(const Vector& gradient) {
    LbfgsState::Change change{.gradient = copy(gradient), .weights = copy(state_.direction)};
    add(change.gradient, -1, state_.gradient);
    scale(change.weights, state_.step);
    const double product = dot(change.gradient, change.weights);
    if (product <= kLeastCurvature) return;
    state_.scale = product / dot(change.gradient, change.gradient);
    change.inverse = 1 / product;
    if (static_cast<int>(state_.changes.size()) == options_.history) state_.changes.pop_front();
    state_.changes.push_back(std::move(change));
  }

  // The two loops of Nocedal 1980: -H gradient.
  void apply_inverse_hessian(const Vector& gradient) {
    Vector direction = copy(gradient);
    scale(direction, -1);
    std::vector<double> shares(state_.changes.size());
    for (std::size_t i = shares.size(); i-- > 0;) {
      const LbfgsState::Change& change = state_.changes[i];
      shares[i] = dot(change.weights, direction) * change.inverse;
      add(direction, -shares[i], change.gradient);
    }
    scale(direction, state_.scale);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const LbfgsState::Change& change = state_.changes[i];
      add(direction, shares[i] - dot(change.gradient, direction) * change.inverse, change.weights);
    }
    state_.direction = std::move(direction);
  }

  // Along the direction. Without a search the last move of a step is not evaluated: the next step begins with it.
  void move(double& loss, double slope, bool is_last) {
    const Vector begin = copy(problem_.weights());
    try {
      if (options_.strong_wolfe) {
        loss = search(begin, loss, slope);
      } else {
        add(problem_.weights(), state_.step, state_.direction);
        if (!is_last) loss = evaluate();
      }
    } catch (...) {
      assign(problem_.weights(), begin);
      throw;
    }
  }
  double search(const Vector& begin, double loss, double slope) {
    const auto go = [&](double step) {
      assign(problem_.weights(), begin);
      add(problem_.weights(), step, state_.direction);
    };
    const auto at = [&](double step) {
      go(step);
      LinePoint point{.step = step, .loss = evaluate()};
      point.gradient = copy(problem_.gradient());
      point.slope = dot(point.gradient, state_.direction);
      return point;
    };
    const LinePoint start{.loss = loss, .slope = slope, .gradient = copy(problem_.gradient())};
    const LineSearch found = strong_wolfe(at, start, state_.step, largest(state_.direction));
    state_.step = found.point.step;
    go(state_.step);
    assign(problem_.gradient(), found.point.gradient);
    return found.point.loss;
  }

  LbfgsProblem& problem_;
  LbfgsState& state_;
  const LbfgsOptions& options_;
  int evaluations_ = 0;
};

}  // namespace

std::string LbfgsOptions::problem() const {
  if (!(lr > 0)) return concat("lr must be positive, got ", lr);
  if (max_iterations < 1) return concat("max_iter must be at least 1, got ", max_iterations);
  if (max_evaluations < 0) return concat("max_eval must not be negative, got ", max_evaluations);
  if (tolerance_gradient < 0 || tolerance_change < 0)
    return concat("tolerances must not be negative, got ", tolerance_gradient, " and ", tolerance_change);
  if (history < 1) return concat("history_size must be at least 1, got ", history);
  return "";
}

LbfgsResult lbfgs_step(LbfgsProblem& problem, LbfgsState& state, const LbfgsOptions& options) {
  const std::string complaint = options.problem();
  KEEL_CHECK(complaint.empty(), "LBFGS: ", complaint);
  return Step(problem, state, options).run();
}

}  // namespace keel
