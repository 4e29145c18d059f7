#include "keel/tasks/supervised.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "keel/autograd/elementwise.h"
#include "keel/data/data_file.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/softmax.h"
#include "keel/nn/layer_text.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/heads.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/metrics/values.h"
#include "keel/tasks/supervised_columns.h"
#include "keel/tasks/supervised_keys.h"

namespace keel {
namespace {

constexpr const char* kColumnsFile = "columns.json";

DatasetPtr open_examples(const std::string& path, const TaskSite& site, EmptyLines empty = EmptyLines::left_out) {
  const DataKind kind = kind_of_file(path);
  KEEL_CHECK(kind == DataKind::csv || kind == DataKind::jsonl || kind == DataKind::columns, "'", path, "' is ",
             name_of(kind), "; a table (.csv, .tsv), JSON lines (.jsonl) or a columnar file is asked for");
  DatasetPtr data = open_data(path, {.empty_lines = empty, .progress = site.progress});
  KEEL_CHECK(data->size() > 0, "'", path, "' has no examples");
  return data;
}

MetricList metrics_of(const SupervisedHead& head, std::int64_t width) {
  try {
    return {head.metrics, head.has_classes() ? MetricInput::classes : MetricInput::numbers, width,
            concat(head.name, '_')};
  } catch (const Error& error) { throw Error(concat("model.heads: head '", head.name, "': "), error); }
}

class SupervisedTask : public Task {
 public:
  explicit SupervisedTask(const TaskSite& site) : site_(site) {
    for (const Settings& head : site_.settings.parts("model.heads")) heads_.push_back(head_options(head));
    for (const Settings& part : site_.settings.parts("task.regularizers"))
      regularizers_.push_back(chosen_regularizer(part));
    (void)make_model(1, std::vector<std::int64_t>(heads_.size(), 1));  // a trunk that is wrong is told at once
  }

  Module& model() override { return net(); }

  Data data() override {
    (void)metrics_of_heads();  // one that is not there is told before anything is made
    const auto as_batches_have_it = [&](const DatasetPtr& examples, const std::string& of) {
      return prepared(examples, shared_columns(), of, true);
    };
    const DividedExamples examples =
        division().of(as_batches_have_it(training_file(), path()),
                      [&](const std::string& file) { return as_batches_have_it(file_of_set(file), file); });
    Data data = make_data(site_, examples, stack(), {.last = last_rows(site_.settings)});
    data.files.emplace_back(kColumnsFile, columns().json());
    if (site_.settings.texts("data.inputs").empty()) {
      for (const std::string& name : columns().input_names())
        data.note += concat(data.note.empty() ? "the model reads " : ", ", name);
    }
    return data;
  }

  Loss training_step(const Batch& batch, Forward& pass) override { return loss_of(outputs(batch, pass), batch); }

  std::string why_not_recordable() const override {
    if (heads_.size() + regularizers_.size() > 1) return "the loss has several terms, of heads and regularizers";
    return site_.settings.text("model.trunk").find("dropout") == std::string::npos
               ? ""
               : "model.trunk has dropout: a recorded step would drop the same activations again and again";
  }

  void make_metrics(std::string_view /*set*/, Metrics& metrics) override {
    for (const MetricList& list : metrics_of_heads()) list.make(metrics);
  }

  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const std::vector<Variable> said = outputs(batch, pass);
    feed(metrics, loss_of(said, batch), batch);
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      const Tensor& targets = batch[heads_[i].name];
      metrics_of_heads()[i].feed(metrics, {.outputs = in_own_units(said[i].value(), i),
                                           .targets = heads_[i].has_classes() ? targets : in_own_units(targets, i),
                                           .examples = batch.examples()});
    }
  }

  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    return in_order(site_, prepared(open_examples(path, site_, EmptyLines::refused), shared_columns(), path, false),
                    stack());
  }

  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const std::vector<Variable> said = outputs(batch, pass);
    std::vector<Json> rows(static_cast<std::size_t>(batch.rows()), Json::object());
    for (std::size_t i = 0; i < heads_.size(); ++i)
      if (heads_[i].has_classes()) tell_classes(said[i].value(), i, rows);
      else tell_numbers(said[i].value(), i, rows);
    for (std::size_t row = 0; row < rows.size(); ++row) out.add(batch.examples()[row], std::move(rows[row]));
  }

 private:
  const std::string& path() const { return site_.settings.text("data.path"); }

  const DatasetPtr& training_file() {
    if (!training_file_) training_file_ = open_examples(path(), site_);
    return training_file_;
  }
  const DatasetPtr& file_of_set(const std::string& file) {
    DatasetPtr& kept = files_of_sets_[file];
    if (!kept) kept = open_examples(file, site_);
    return kept;
  }
  const Division& division() {
    if (!division_) division_.emplace(division_options(site_.settings, site_.data_seed), *training_file(), path());
    return *division_;
  }

  // Those of the run that is asked, or of the data.
  const std::shared_ptr<const SupervisedColumns>& shared_columns() {
    if (columns_) return columns_;
    const std::string kept = site_.run.empty() ? "" : concat(site_.run, '/', kColumnsFile);
    const bool has_kept = !kept.empty() && std::filesystem::exists(kept);
    const auto columns = std::make_shared<const SupervisedColumns>(has_kept ? columns_of_run(kept) : columns_of_data());
    if (!has_kept && reads_all_before_training()) {
      read_all(*prepared(training_file(), columns, path(), true));
      for (const HeldOutSet& set : division_options(site_.settings, site_.data_seed).sets)
        if (!set.path.empty()) read_all(*prepared(file_of_set(set.path), columns, set.path, true));
    }
    return columns_ = columns;
  }
  // Then an example that does not fit costs nothing.
  bool reads_all_before_training() const {
    const auto asks = [](const SupervisedHead& head) {
      return head.is_scaled || (head.has_classes() && head.classes == 0);
    };
    return site_.settings.text("data.scale") == "standard" || std::ranges::any_of(heads_, asks);
  }
  const SupervisedColumns& columns() { return *shared_columns(); }

  SupervisedColumns columns_of_run(const std::string& kept) const {
    try {
      return {read_text_file(kept), heads_};
    } catch (const Error& error) { throw Error(concat("'", kept, "': "), error); }
  }

  SupervisedColumns columns_of_data() {
    try {
      const DivisionOptions options = division_options(site_.settings, site_.data_seed);
      SupervisedColumns columns(*training_file(), site_.settings.texts("data.inputs"), heads_, options.column);
      const DividedExamples examples =
          division().of(training_file(), [&](const std::string& file) { return file_of_set(file); });
      columns.find_classes(*training_file());
      columns.find_scales(*examples.trained, site_.settings.text("data.scale") == "standard");
      return columns;
    } catch (const Error& error) {
      const std::string_view what = error.what();
      throw Error(what.find(path()) != std::string_view::npos ? std::string(what) : concat("'", path(), "': ", what),
                  error.kind());
    }
  }

  TextModel make_model(std::int64_t inputs, const std::vector<std::int64_t>& widths) const {
    std::string text = site_.settings.text("model.trunk");
    try {
      if (text == "none") text.clear();
      else if (const TextModel trunk(text, inputs); trunk.outputs().size() != 1 || trunk.outputs().front().layer)
        throw Error("outputs are those of model.heads; leave `output` out");
      for (std::size_t i = 0; i < heads_.size(); ++i)
        text += concat(text.empty() ? "" : "; ", "output ", heads_[i].name, ' ', widths[i]);
      return TextModel(text, inputs);
    } catch (const Error& error) { throw Error("model.trunk: ", error); }
  }

  TextModel& net() {
    if (!net_) {
      std::vector<std::int64_t> widths;
      for (std::size_t i = 0; i < heads_.size(); ++i) widths.push_back(columns().head(i).width);
      net_.emplace(make_model(columns().inputs(), widths));
      net_->recompute = site_.settings.flag("model.recompute");
    }
    return *net_;
  }

  const std::vector<MetricList>& metrics_of_heads() {
    if (metrics_.empty())
      for (std::size_t i = 0; i < heads_.size(); ++i)
        metrics_.push_back(metrics_of(heads_[i], columns().head(i).width));
    return metrics_;
  }

  // f32, of each head.
  std::vector<Variable> outputs(const Batch& batch, Forward& pass) {
    const Tensor inputs = input(batch, kInputs, pass).value();
    std::vector<Variable> said = net()(std::span(&inputs, 1), pass);
    for (Variable& each : said) each = cast(each, DType::f32);
    return said;
  }

  Loss loss_of(const std::vector<Variable>& said, const Batch& batch) const {
    Loss loss;
    for (std::size_t i = 0; i < heads_.size(); ++i)
      heads_[i].loss->add(loss, heads_[i].name, said[i], batch[heads_[i].name], heads_[i].weight, heads_[i].smoothing);
    for (const ChosenRegularizer& chosen : regularizers_)
      for (std::size_t i = 0; i < heads_.size(); ++i)
        if (heads_[i].name == chosen.head)
          loss.add_regularizer(chosen.term(), chosen.regularizer->of(said[i]), chosen.weight);
    return loss;
  }

  std::vector<double> numbers_in_own_units(const Tensor& numbers, std::size_t head) {
    std::vector<double> values = floating_numbers(numbers);
    const HeadColumns& columns = this->columns().head(head);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = columns.scale.unscaled(values[i], i % static_cast<std::size_t>(columns.width));
    return values;
  }
  Tensor in_own_units(const Tensor& numbers, std::size_t head) {
    if (!columns().head(head).scale.is_set()) return numbers;
    return from_values(site_.host, numbers_in_own_units(numbers, head), numbers.shape());
  }

  void tell_numbers(const Tensor& outputs, std::size_t head, std::vector<Json>& rows) {
    const std::vector<double> numbers = numbers_in_own_units(outputs, head);
    const std::size_t width = numbers.size() / std::max<std::size_t>(1, rows.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(row * width);
      if (width == 1) rows[row][heads_[head].name] = *begin;
      else rows[row][heads_[head].name] = std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  }
  void tell_classes(const Tensor& outputs, std::size_t head, std::vector<Json>& rows) {
    const Tensor chances = kernels::softmax(outputs);
    const std::vector<std::int64_t> guesses = kernels::argmax(chances, -1).to_vector<std::int64_t>();
    const std::vector<float> highest = kernels::max(chances, {-1}).to_vector<float>();
    const std::vector<std::string>& names = columns().head(head).classes;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (names.empty()) rows[row][heads_[head].name] = guesses[row];
      else rows[row][heads_[head].name] = names[static_cast<std::size_t>(guesses[row])];
      rows[row][concat(heads_[head].name, "_probability")] = highest[row];
    }
  }

  TaskSite site_;
  std::vector<SupervisedHead> heads_;
  std::vector<ChosenRegularizer> regularizers_;
  DatasetPtr training_file_;
  std::map<std::string, DatasetPtr> files_of_sets_;  // by path
  std::optional<Division> division_;
  std::shared_ptr<const SupervisedColumns> columns_;
  std::optional<TextModel> net_;
  std::vector<MetricList> metrics_;
};

}  // namespace

TaskEntry supervised_task() {
  TaskEntry entry =
      task_entry<SupervisedTask>("supervised", "numbers and classes by name, from rows of numbers", supervised_keys());
  entry.complain = complain_of_supervised;
  entry.example =
      "task: {type: supervised}\n"
      "model: {trunk: dense 64 relu, heads: [{name: sky, type: classification}, {name: far, weight: 0.5}]}\n"
      "data: {path: readings.csv}\n";
  return entry;
}

}  // namespace keel
