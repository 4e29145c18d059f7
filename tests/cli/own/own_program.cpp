// A program with a task and callbacks of its own that do what `task.fault` says: which of them are refused, and how.

#include <cstdlib>

#include "keel/autograd/functions.h"
#include "keel/cli/main.h"
#include "keel/data/csv.h"
#include "keel/nn/layers.h"

namespace keel {
namespace {

class Line : public Task {
 public:
  explicit Line(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    if (fault("no_data")) return {};
    const DatasetPtr points = open_csv(site_.settings.text("data.path"), {.fields = {{"x", "x"}, {"y", "y"}}});
    return make_data(site_, points, 0.25, as_columns());
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable guess = net_(input(batch, fault("field") ? "xs" : "x", pass), pass),
                   wanted = input(batch, "y", pass);
    if (fault("shape")) return square(sub(guess, wanted));
    if (fault("whole")) return Variable(batch.sample_ids());
    if (fault("gradient")) return mean(square(wanted));
    if (fault("weight")) return {mse_loss(guess, wanted), "tokens"};
    return mse_loss(guess, wanted);
  }
  void make_metrics(std::string_view, Metrics& metrics) override { metrics.make<Accuracy>("accuracy"); }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    feed(metrics, training_step(batch, pass), batch);
    const Tensor one = zeros(batch.sample_ids().context(), {1}, DType::i64);
    metrics.at<Accuracy>("accuracy").update(fault("metric") ? one : batch.sample_ids(), batch.sample_ids());
  }
  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    return in_order(site_, open_csv(path, {.fields = {{"x", "x"}}}), as_columns());
  }
  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const std::vector<float> guesses = net_(input(batch, "x", pass), pass).value().to_vector<float>();
    for (std::size_t i = 0; i < guesses.size(); ++i) out.add(batch.examples()[i], {{"y", guesses[i]}});
  }

 private:
  bool fault(std::string_view name) const { return site_.settings.text("task.fault") == name; }
  // Numbers (rows) as columns (rows, 1).
  static Collator as_columns() {
    return [](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
      for (const char* field : {"x", "y"}) {
        std::vector<float> values;
        for (const CollatedRow& row : rows)
          if (row.example.has(field)) values.push_back(static_cast<float>(row.example.number(field)));
        if (!values.empty()) batch.set(field, from_values(info.context, values, {std::ssize(values), 1}));
      }
    };
  }

  TaskSite site_;
  Linear net_{1, 1};
};

// Does what `task.event` says, from step 3 on: throws in that event on one rank; with "stop" or "rate", asks there for
// what nobody else asks for; with "tell", tells of every event on every rank.
class Faulty : public Callback {
 public:
  explicit Faulty(const Settings& settings)
      : event_(settings.text("task.event")), rank_(settings.integer("task.rank")) {}
  std::string_view name() const override { return "faulty"; }
  void fit_begin(LoopView& view) override { at("fit_begin", view, 0); }
  void resumed(LoopView& view) override { at("resumed", view); }
  void epoch_begin(LoopView& view) override { at("epoch_begin", view); }
  void step_begin(LoopView& view) override { at("step_begin", view); }
  void before_backward(LoopView& view) override { at("before_backward", view); }
  void after_backward(LoopView& view) override { at("after_backward", view); }
  void before_optimizer_step(LoopView& view) override { at("before_optimizer_step", view); }
  void after_optimizer_step(LoopView& view) override { at("after_optimizer_step", view); }
  void step_end(LoopView& view) override {
    at("step_end", view);
    if (view.rank() != rank_ || view.state().step != 3) return;
    if (event_ == "stop") view.ask_stop("a rank has had enough");
    if (event_ == "rate") view.set_rate_factor(0.5);
  }
  void evaluation_begin(LoopView& view) override { at("evaluation_begin", view); }
  void evaluation_end(LoopView& view, bool done) override { at(done ? "evaluation_end" : "evaluation_failed", view); }
  void checkpoint_saved(LoopView& view, const std::string&, std::int64_t) override { at("checkpoint_saved", view); }
  void epoch_end(LoopView& view) override { at("epoch_end", view); }
  void exception(LoopView& view, const std::exception&) override { tell("exception", view); }
  void interrupt(LoopView& view) override { at("interrupt", view); }
  void fit_end(LoopView& view) override { tell("fit_end", view); }

 private:
  void tell(std::string_view event, LoopView& view) const {
    if (event_ == "tell") view.message(LogLevel::info, concat("event ", event, ' ', view.state().step));
  }
  void at(std::string_view event, LoopView& view, std::int64_t step = 3) const {
    tell(event, view);
    if (event == event_ && view.rank() == rank_ && view.state().step >= step) throw Error("out of milk");
  }
  std::string event_;
  std::int64_t rank_;
};

TaskEntry line(std::string_view name) {
  return task_entry<Line>(name, "the slope of a line",
                          {{.key = "task.fault",
                            .type = KeyType::choice,
                            .standard = "none",
                            .help = "What the task does wrong.",
                            .choices = "none|no_data|field|shape|whole|gradient|weight|metric",
                            .on_resume = ResumeRule::ignores},
                           {.key = "task.event",
                            .type = KeyType::text,
                            .standard = "none",
                            .help = "Where the callback throws.",
                            .on_resume = ResumeRule::ignores},
                           {.key = "task.rank",
                            .type = KeyType::integer,
                            .standard = "0",
                            .help = "On which rank.",
                            .on_resume = ResumeRule::ignores},
                           {.key = "data.path", .type = KeyType::path, .help = "A csv file of points."}});
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  const bool has_two = std::getenv("TWO_LINES") != nullptr;
  const keel::TaskEntry tasks[] = {keel::line("line"), keel::line(has_two ? "line" : "other_line")};
  return keel::main(argc, argv, tasks, [](const keel::Settings& settings) {
    return keel::Callbacks{std::make_shared<keel::Faulty>(settings)};
  });
}
