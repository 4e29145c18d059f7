#include "keel/optim/line_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace keel {
namespace {

// Where the cubic through two points with their slopes is lowest, within [low, high]; the middle where it has no lowest
// point.
double lowest_of_cubic(const LinePoint& a, const LinePoint& b, double low, double high) {
  const LinePoint &left = a.step <= b.step ? a : b, &right = a.step <= b.step ? b : a;
  const double width = right.step - left.step;
  const double bend = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.step - right.step);
  const double root = std::sqrt(bend * bend - left.slope * right.slope);
  const double at = right.step - width * ((right.slope + root - bend) / (right.slope - left.slope + 2 * root));
  return std::isnan(at) ? (low + high) / 2 : std::min(std::max(at, low), high);
}

class Search {
 public:
  Search(const std::function<LinePoint(double)>& at, const LinePoint& start, double largest,
         const WolfeOptions& options)
      : at_(at), start_(start), largest_(largest), options_(options) {}

  LineSearch run(double first) {
    if (bracket(first)) return {std::move(low_), evaluations_};
    zoom();
    return {std::move(low_), evaluations_};
  }

 private:
  LinePoint try_step(double step) {
    ++evaluations_;
    return at_(step);
  }
  bool is_too_high(const LinePoint& point) const {
    return point.loss > start_.loss + options_.decrease * point.step * start_.slope;
  }
  bool is_flat_enough(const LinePoint& point) const {
    return std::abs(point.slope) <= -options_.curvature * start_.slope;
  }
  void keep_ends(LinePoint a, LinePoint b) {
    if (b.loss < a.loss) std::swap(a, b);
    low_ = std::move(a);
    high_ = std::move(b);
  }

  // Goes on with longer steps until a good one lies between the last two; true: the last one is good itself.
  bool bracket(double step) {
    LinePoint before = start_, now = try_step(step);
    for (; trials_ < options_.most_trials; ++trials_) {
      if (is_too_high(now) || (trials_ > 1 && now.loss >= before.loss)) {
        keep_ends(std::move(before), std::move(now));
        return false;
      }
      if (is_flat_enough(now)) {
        low_ = std::move(now);
        return true;
      }
      if (now.slope >= 0) {
        keep_ends(std::move(before), std::move(now));
        return false;
      }
      const double next = lowest_of_cubic(before, now, now.step + 0.01 * (now.step - before.step), now.step * 10);
      before = std::exchange(now, try_step(next));
    }
    keep_ends(start_, std::move(now));
    return false;
  }

  // Narrows the bracket, whose lower end satisfies the first condition.
  void zoom() {
    bool was_slow = false;
    for (; trials_ < options_.most_trials; ++trials_) {
      const auto [left, right] = std::minmax(low_.step, high_.step);
      if ((right - left) * largest_ < options_.shortest) return;
      double step = lowest_of_cubic(low_, high_, left, right);
      // Twice near an end, or at it, is no progress.
      const double margin = 0.1 * (right - left);
      const bool is_slow = std::min(right - step, step - left) < margin;
      const bool moves = is_slow && (was_slow || step >= right || step <= left);
      if (moves) step = std::abs(step - right) < std::abs(step - left) ? right - margin : left + margin;
      was_slow = is_slow && !moves;
      LinePoint now = try_step(step);
      if (is_too_high(now) || now.loss >= low_.loss) {
        keep_ends(std::move(low_), std::move(now));
        continue;
      }
      const bool is_good = is_flat_enough(now);
      if (!is_good && now.slope * (high_.step - low_.step) >= 0) high_ = std::move(low_);
      low_ = std::move(now);
      if (is_good) {
        ++trials_;
        return;
      }
    }
  }

  const std::function<LinePoint(double)>& at_;
  const LinePoint& start_;
  double largest_;
  const WolfeOptions& options_;
  int trials_ = 0, evaluations_ = 0;
  LinePoint low_, high_;  // ends of the bracket, by their losses
};

}  // namespace

LineSearch strong_wolfe(const std::function<LinePoint(double)>& at, const LinePoint& start, double first,
                        double largest, const WolfeOptions& options) {
  return Search(at, start, largest, options).run(first);
}

}  // namespace keel
