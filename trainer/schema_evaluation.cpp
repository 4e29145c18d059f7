// The keys of evaluations, and of trials that take a part of the data.

#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

constexpr Condition kInAny = {};
constexpr Range kNoneOrMore = {.low = 0};

class BatchLimitField : public KeyField {
 public:
  explicit BatchLimitField(Access<BatchLimit> access) : access_(access) {}
  std::string values(const SchemaRow& /*row*/) const override { return "a whole number >= 0, or a part as in 10%"; }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    if (node.kind != YamlNode::Kind::scalar) refuse_value(row, node);
    access_(config_of(settings)) = BatchLimit::parse(node.text);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return access_(const_cast<Config&>(config_of(settings))).text();
  }

 private:
  Access<BatchLimit> access_;
};

class BatchLimitsField : public KeyField {
 public:
  explicit BatchLimitsField(Access<BatchLimits> access) : access_(access) {}
  std::string values(const SchemaRow& /*row*/) const override {
    return "a whole number >= 0, a part as in 10%, or a list as in [10%, dev=5]";
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    std::vector<std::string> texts;
    for (const YamlNode& each : node.kind == YamlNode::Kind::list ? node.items : std::vector<YamlNode>{node}) {
      if (each.kind != YamlNode::Kind::scalar) refuse_value(row, each);
      texts.push_back(each.text);
    }
    access_(config_of(settings)) = BatchLimits::parse(texts);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    const std::vector<std::string> texts = access_(const_cast<Config&>(config_of(settings))).texts();
    std::string text;
    for (const std::string& each : texts) text += concat(text.empty() ? "" : ", ", each);
    return texts.size() == 1 ? text : concat('[', text, ']');
  }

 private:
  Access<BatchLimits> access_;
};

FieldPtr trial_field() {
  return parsed_field([](const Config& config) { return std::to_string(config.fast_dev_run); },
                      [](Config& config, std::string_view text) {
                        const std::string digits(text == "true" ? "1" : text == "false" ? "0" : text);
                        const BatchLimit steps = BatchLimit::parse(digits);
                        KEEL_CHECK(steps.percent == 0, "expects a number of steps, true or false, got '", text, "'");
                        config.fast_dev_run = steps.batches;
                      },
                      "a whole number >= 0, true or false");
}

std::vector<SchemaRow> all_ignored(std::vector<SchemaRow> rows) {
  for (SchemaRow& row : rows) row.on_resume = OnResume::ignores;
  return rows;
}

}  // namespace

FieldPtr member(Access<BatchLimit> access) { return std::make_shared<BatchLimitField>(access); }
FieldPtr member(Access<BatchLimits> access) { return std::make_shared<BatchLimitsField>(access); }

std::vector<SchemaRow> evaluation_rows() {
  return all_ignored({
      {"eval.every", member(+[](Config& c) -> Length& { return c.eval.every; }), "250", kNoneOrMore, kInAny,
       "Between two evaluations, in steps, epochs or a part of the run; 0: only at the end.",
       "eval_interval|evaluate_every"},
      {"eval.batches", member(+[](Config& c) -> BatchLimits& { return c.eval.batches; }), "0", kAny, kInAny,
       "Batches of each validation set in one evaluation, or a part of them; 0: all that is held out. A list has "
       "others for the sets that it names, as in [25%, others=10].",
       "eval_iters|limit_val_batches|limit_test_batches"},
      {"eval.at_start", member(+[](Config& c) -> bool& { return c.eval.at_start; }), "false", kAny, kInAny,
       "Evaluate before the first step of a run, too.", "eval_when_start|eval_on_start"},
      {"eval.sanity", member(+[](Config& c) -> std::int64_t& { return c.eval.sanity; }), "0", kNoneOrMore, kInAny,
       "Batches of each validation set that are evaluated when a session begins, before it writes anything, so "
       "that what is wrong with an evaluation shows at once; their results are dropped.",
       "num_sanity_val_steps|sanity_steps"},
  });
}

std::vector<SchemaRow> trial_rows() {
  return all_ignored({
      {"fast_dev_run", trial_field(), "0", kAny, kInAny,
       "A trial of everything: the run ends after so many steps, is evaluated in as many batches of each set, "
       "saves a checkpoint, and removes all that it has written. Trackers get nothing. true is 1; 0: a run as "
       "any other."},
  });
}

}  // namespace keel
