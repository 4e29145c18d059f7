#include "keel/trainer/early_stopping.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/trainer/run_folder.h"

namespace keel {
namespace {

constexpr std::string_view kStoppingKey = "early_stopping.metric", kBestKey = "checkpoint.best";

}  // namespace

bool JudgedRule::judge(const LoopState& state, std::string_view key) {
  const std::vector<double> values = rule_.values_in(state.metrics, key);
  if (!rule_.is_better(values, best_)) {
    ++missed_;
    return false;
  }
  best_.assign(values.begin(), values.end());
  best_step_ = state.step;
  missed_ = 0;
  return true;
}

// JSON has no word for infinities.
Json JudgedRule::save() const {
  Json best = Json::array();
  for (const std::optional<double>& each : best_) best.push_back(each && std::isfinite(*each) ? Json(*each) : Json());
  return {{"best", best}, {"step", best_step_}, {"missed", missed_}};
}

void JudgedRule::load(const Json& numbers) {
  best_.clear();
  for (const Json& each : numbers.at("best").items())
    best_.push_back(each.is_null() ? std::nullopt : std::optional(each.number()));
  best_step_ = numbers.at("step").integer();
  missed_ = numbers.at("missed").integer();
}

JudgedRules::JudgedRules(std::vector<MetricRule> rules) {
  for (MetricRule& each : rules) {
    const auto is_same = [&](const JudgedRule& before) { return before.rule().text() == each.text(); };
    KEEL_CHECK(std::ranges::none_of(rules_, is_same), "the rule ", each.text(), " is there twice");
    rules_.emplace_back(std::move(each));
  }
}

Json JudgedRules::save() const {
  Json all = Json::object();
  for (const JudgedRule& each : rules_) all[each.rule().text()] = each.save();
  return {{"rules", all}};
}

void JudgedRules::load(const Json& numbers) {
  if (!numbers.contains("rules")) {  // of checkpoints from before there were several rules
    const bool is_one = rules_.size() == 1 && rules_[0].rule().terms().size() == 1;
    if (!is_one) return;
    const Json missed = numbers.contains("missed") ? numbers.at("missed") : Json(0);
    Json best = Json::array();
    best.push_back(numbers.at("best"));
    return rules_[0].load({{"best", best}, {"step", numbers.at("step")}, {"missed", missed}});
  }
  const Json& all = numbers.at("rules");
  for (JudgedRule& each : rules_)
    if (all.contains(each.rule().text())) each.load(all.at(each.rule().text()));
}

EarlyStopping::EarlyStopping(std::vector<MetricRule> rules, std::vector<std::int64_t> patience)
    : rules_(std::move(rules)), patience_(std::move(patience)) {
  KEEL_CHECK(patience_.size() == rules_.all().size() && !patience_.empty(), patience_.size(),
             " numbers of patience are for ", rules_.all().size(), " rules");
}

void EarlyStopping::stop_where_spent(LoopView& view) const {
  std::string reason;
  for (std::size_t i = 0; i < patience_.size(); ++i) {
    const JudgedRule& each = rules_.all()[i];
    if (each.missed() < patience_[i]) return;
    reason += concat(reason.empty() ? "" : ", and ", each.rule().text(), " has not become better in ", each.missed(),
                     each.missed() == 1 ? " evaluation" : " evaluations",
                     each.best_step() < 0 ? std::string() : concat(" since step ", each.best_step()));
  }
  view.ask_stop(reason + " (early_stopping)");
}

void EarlyStopping::resumed(LoopView& view) { stop_where_spent(view); }

void EarlyStopping::evaluation_end(LoopView& view, bool done) {
  if (!done) return;
  for (JudgedRule& each : rules_.all()) each.judge(view.state(), kStoppingKey);
  stop_where_spent(view);
}

void BestCheckpoint::evaluation_end(LoopView& view, bool done) {
  if (!done || view.state().step == 0) return;
  for (JudgedRule& each : rules_.all())
    if (each.judge(view.state(), kBestKey)) view.ask_checkpoint();
}

void BestCheckpoint::checkpoint_saved(LoopView& view, const std::string& path, std::int64_t step) {
  if (!view.is_first()) return;
  for (std::size_t i = 0; i < rules_.all().size(); ++i) {
    const JudgedRule& each = rules_.all()[i];
    if (step != each.best_step()) continue;
    const RunFolder folder(view.run_folder());
    try {
      write_text_file(i == 0 ? folder.best() : folder.best_by(each.rule().text()),
                      std::filesystem::path(path).filename().string() + "\n");
    } catch (const Error& error) {
      // The checkpoint is there, and training worth more than its name.
      view.message(LogLevel::warning, concat("the best checkpoint by ", each.rule().text(), ", of step ", step,
                                             ", is not named: ", error.what()));
    }
  }
}

}  // namespace keel
