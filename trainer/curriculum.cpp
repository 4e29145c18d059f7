#include "keel/trainer/curriculum.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "keel/data/shortened.h"
#include "keel/runtime/error.h"

namespace keel {

std::string problem_of(const CurriculumConfig& config) {
  const auto follow = [](const Length& before, const Length& after) {
    return !before.is_measured() || !after.is_measured() || before.last_step() < after.last_step();
  };
  const auto wrong = std::ranges::adjacent_find(config.until, std::not_fn(follow));
  if (wrong == config.until.end()) return "";
  const bool are_steps = !wrong->has_unit() && !std::next(wrong)->has_unit();
  return are_steps ? "expects steps that increase"
                   : concat("expects steps that increase; ", wrong->text(), " ends with step ", wrong->last_step(),
                            ", and ", std::next(wrong)->text(), " with step ", std::next(wrong)->last_step());
}

std::int64_t length_of_step(const CurriculumConfig& config, std::int64_t step, std::int64_t whole) {
  using Type = CurriculumConfig::Type;
  if (config.type == Type::none) return whole;
  if (config.type == Type::fixed_discrete) {
    const auto found = std::ranges::find_if(config.until, [&](const Length& last) { return step <= last.last_step(); });
    return config.lengths.at(static_cast<std::size_t>(found - config.until.begin()));
  }
  const std::int64_t most = config.max_length == 0 ? whole : config.max_length;
  const std::int64_t steps = config.steps.last_step();
  if (step >= steps) return most;
  const double root = config.type == Type::fixed_linear ? 1 : config.root,
               share = std::pow(static_cast<double>(step) / static_cast<double>(steps), 1 / root);
  const auto length = static_cast<std::int64_t>(
      std::floor(share * static_cast<double>(most - config.min_length) + static_cast<double>(config.min_length)));
  return std::min(length - length % config.multiple, most);
}

std::shared_ptr<const BatchSource> with_curriculum(const CurriculumConfig& config,
                                                   std::shared_ptr<const BatchSource> source, std::int64_t whole) {
  if (config.type == CurriculumConfig::Type::none) return source;
  KEEL_CHECK(whole > 1, "curriculum.type: the rows of this task are no sequences of a known length");
  const std::int64_t longest = config.type == CurriculumConfig::Type::fixed_discrete
                                   ? std::ranges::max(config.lengths)
                                   : std::max(config.min_length, config.max_length);
  KEEL_CHECK(longest <= whole, "curriculum: a length of ", longest, " is longer than the task's sequences, which have ",
             whole, " positions");
  return shortened(std::move(source), whole, [config, whole](std::int64_t step) {
    return length_of_step(config, step + 1, whole);  // sources count from 0
  });
}

}  // namespace keel
