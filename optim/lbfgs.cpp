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

// In memory that is made where there is none.
void keep(Vector& as, const Vector& x) {
  if (as.empty()) as = copy(x);
  else assign(as, x);
}

// y += factor * x.
void add(const Vector& y, double factor, const Vector& x) {
  const Vector scaled = copy(x);
  scale(scaled, factor);
  for (std::size_t i = 0; i < y.size(); ++i) kernels::accumulate(y[i], scaled[i]);
}

class Step {
 public:
  Step(Objective& objective, LbfgsState& state, const LbfgsOptions& options)
      : objective_(objective), state_(state), options_(options) {}

  Minimised run() {
    double loss = evaluate();
    Minimised result{.loss = loss, .largest_gradient = largest(objective_.gradient())};
    const int most = most_evaluations();
    double gradient = result.largest_gradient;
    while (options_.lr > 0 && gradient > options_.tolerance_gradient && result.iterations < options_.max_iterations) {
      ++result.iterations;
      choose_direction();
      const double before = loss, slope = dot(objective_.gradient(), state_.direction);
      if (slope > -options_.tolerance_change) {
        state_.step = 0;  // nothing moves
        break;
      }
      const bool is_last = result.iterations == options_.max_iterations;
      move(loss, slope, is_last);
      if (is_last || evaluations_ >= most) break;
      gradient = largest(objective_.gradient());
      if (largest(state_.direction) * std::abs(state_.step) <= options_.tolerance_change ||
          std::abs(loss - before) < options_.tolerance_change)
        break;
    }
    result.evaluations = evaluations_;
    return result;
  }

 private:
  int most_evaluations() const {
    return options_.max_evaluations > 0 ? options_.max_evaluations : options_.max_iterations * 5 / 4;
  }
  double dot(const Vector& x, const Vector& y) {
    const Vector mine = objective_.counted(x), other = objective_.counted(y);
    double sum = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (mine[i].numel() == 0) continue;
      const Tensor products =
          kernels::binary<Mul>(kernels::cast(mine[i], DType::f64), kernels::cast(other[i], DType::f64));
      sum += kernels::sum(products).item();
    }
    return objective_.sum(sum);
  }
  double sum_of_sizes(const Vector& x) {
    double sum = 0;
    for (const Tensor& part : objective_.counted(x))
      if (part.numel() != 0) sum += kernels::sum(kernels::unary<Abs>(kernels::cast(part, DType::f64))).item();
    return objective_.sum(sum);
  }
  double largest(const Vector& x) {
    double most = 0;
    for (const Tensor& part : objective_.counted(x))
      if (part.numel() != 0) most = std::max(most, kernels::max(kernels::unary<Abs>(part)).item());
    return objective_.largest(most);
  }

  double evaluate() {
    ++evaluations_;
    ++state_.evaluations;
    const double loss = objective_.evaluate();
    if (!std::isfinite(loss)) throw Error(concat("LBFGS: the loss is ", loss), ErrorKind::numeric);
    return loss;
  }

  void choose_direction() {
    const Vector& gradient = objective_.gradient();
    const bool is_first = state_.iterations++ == 0;
    if (!is_first) remember(gradient);
    keep(state_.direction, gradient);
    scale(state_.direction, -1);
    if (!is_first) apply_inverse_hessian();
    state_.step = options_.lr;
    if (is_first) state_.step *= std::min(1.0, 1 / sum_of_sizes(gradient));
    keep(state_.gradient, gradient);
  }

  // What the move before has changed. The vectors that become the next ones hold it meanwhile.
  void remember(const Vector& gradient) {
    const Vector &change = state_.gradient, &moved = state_.direction;
    scale(change, -1);
    for (std::size_t i = 0; i < change.size(); ++i) kernels::accumulate(change[i], gradient[i]);
    scale(moved, state_.step);
    const double product = dot(change, moved);
    if (product <= kLeastCurvature) return;
    state_.scale = product / dot(change, change);
    LbfgsState::Change& place = next_place();
    keep(place.gradient, change);
    keep(place.weights, moved);
    place.inverse = 1 / product;
  }
  // That of the oldest change, where there is no other.
  LbfgsState::Change& next_place() {
    if (state_.remembered == options_.history) {
      LbfgsState::Change& place = state_.changes[static_cast<std::size_t>(state_.oldest)];
      state_.oldest = (state_.oldest + 1) % options_.history;
      return place;
    }
    const auto next = static_cast<std::size_t>((state_.oldest + state_.remembered++) % options_.history);
    if (next >= state_.changes.size()) state_.changes.resize(next + 1);
    return state_.changes[next];
  }
  // By age, 0 the oldest.
  const LbfgsState::Change& change(int age) const {
    return state_.changes[static_cast<std::size_t>((state_.oldest + age) % options_.history)];
  }

  // The two loops of Nocedal 1980 turn the direction -gradient into -H gradient.
  void apply_inverse_hessian() {
    const Vector& direction = state_.direction;
    std::vector<double> shares(static_cast<std::size_t>(state_.remembered));
    for (int age = state_.remembered; age-- > 0;) {
      double& share = shares[static_cast<std::size_t>(age)];
      share = dot(change(age).weights, direction) * change(age).inverse;
      add(direction, -share, change(age).gradient);
    }
    scale(direction, state_.scale);
    for (int age = 0; age < state_.remembered; ++age) {
      const double share = shares[static_cast<std::size_t>(age)];
      add(direction, share - dot(change(age).gradient, direction) * change(age).inverse, change(age).weights);
    }
  }

  // Along the direction. Without a search the last move of a step is not evaluated: the next step begins with it.
  void move(double& loss, double slope, bool is_last) {
    const Vector begin = copy(objective_.weights());
    try {
      if (options_.strong_wolfe) {
        loss = search(begin, loss, slope);
      } else {
        add(objective_.weights(), state_.step, state_.direction);
        if (!is_last) loss = evaluate();
      }
    } catch (...) {
      if (!objective_.may_take_back()) throw;
      assign(objective_.weights(), begin);
      state_.step = 0;  // nothing has moved, and there is nothing to remember
      --state_.iterations;
      throw;
    }
  }
  double search(const Vector& begin, double loss, double slope) {
    const auto go = [&](double step) {
      assign(objective_.weights(), begin);
      add(objective_.weights(), step, state_.direction);
    };
    const auto at = [&](double step) {
      go(step);
      LinePoint point{.step = step, .loss = evaluate()};
      point.gradient = copy(objective_.gradient());
      point.slope = dot(point.gradient, state_.direction);
      return point;
    };
    const LinePoint start{.loss = loss, .slope = slope, .gradient = copy(objective_.gradient())};
    const WolfeOptions wolfe{.most_trials = most_evaluations() - evaluations_};
    const LineSearch found = strong_wolfe(at, start, state_.step, largest(state_.direction), wolfe);
    state_.step = found.point.step;
    go(state_.step);
    assign(objective_.gradient(), found.point.gradient);
    return found.point.loss;
  }

  Objective& objective_;
  LbfgsState& state_;
  const LbfgsOptions& options_;
  int evaluations_ = 0;
};

}  // namespace

std::string LbfgsOptions::problem() const {
  if (!(lr >= 0)) return concat("lr must not be negative, got ", lr);
  if (max_iterations < 1) return concat("max_iterations must be at least 1, got ", max_iterations);
  if (max_evaluations < 0) return concat("max_evaluations must not be negative, got ", max_evaluations);
  if (tolerance_gradient < 0 || tolerance_change < 0)
    return concat("tolerances must not be negative, got ", tolerance_gradient, " and ", tolerance_change);
  if (history < 1) return concat("history must be at least 1, got ", history);
  return "";
}

Minimised lbfgs_step(Objective& objective, LbfgsState& state, const LbfgsOptions& options) {
  const std::string complaint = options.problem();
  KEEL_CHECK(complaint.empty(), "LBFGS: ", complaint);
  return Step(objective, state, options).run();
}

}  // namespace keel
