#pragma once
// What tasks that learn labels of texts have in common: an encoder of the catalog with a head, its tokenizer, its
// classes, and examples from records.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/models/encoder_model.h"
#include "keel/models/model_keys.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/class_labels.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/task.h"
#include "keel/tasks/text_records.h"

namespace keel {

// task.classes, task.class_weights and task.label_smoothing, which apply where `when` holds, and task.word_dropout.
std::vector<KeyRow> label_keys(const KeyCondition& when = {});
KeyRow label_metrics_key();
// Of all keys that these tasks have, those of the model and of records, too.
std::vector<SettingsComplaint> complain_of_labels(const Settings& settings, bool has_classes);

// What a config.json says of its head's outputs, and what the sections task and data have for them.
struct HubLabels {
  bool has_classes = true;
  std::vector<std::string> names;
};
struct HubSections {
  std::string task, data;  // inside of {}
};
// TaskEntry::of_hub of such a task, for a folder whose config.json names a class that ends so
// ("ForTokenClassification"); empty for another.
std::string label_task_of_hub(const std::string& folder, std::string_view ending,
                              HubSections (*sections)(const HubLabels& labels));

class LabelTask : public Task {
 public:
  explicit LabelTask(const TaskSite& site);

  Module& model() override { return encoder(); }
  Data data() override;
  std::string why_not_recordable() const override;
  void make_metrics(std::string_view set, Metrics& metrics) override;
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override;
  Loss training_step(const Batch& batch, Forward& pass) override { return loss_of(outputs(batch, pass), batch); }
  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override;
  std::int64_t positions() const override { return base_.positions(); }
  bool has_equal_rows() const override { return false; }
  Beginning beginning() override;
  HubFiles hub_files(DType dtype) override;

 protected:
  // What an example needs of the task; examples are made by several threads, and outlive it.
  struct Reading {
    TokenizerPtr tokenizer;
    std::shared_ptr<const ClassLabels> classes;  // null: of a regression
    std::vector<std::string> texts, labels;      // fields
    TextLimit limit;
    std::int64_t token_types = 0;
    bool has_labels = true;
  };
  virtual bool has_classes() const { return true; }
  virtual EncoderHead head() const = 0;
  // The classes that a record has, and its text.
  virtual std::vector<std::string> classes_in(const Example& record) const = 0;
  virtual std::string text_in(const Example& record) const = 0;
  // Makes fields input_ids, token_types, and `labels` where they are read.
  using MakeExample = Example (*)(const Reading& reading, const Example& record);
  virtual MakeExample make_example() const = 0;
  // Of fields that are sequences, beside input_ids and token_types.
  virtual std::vector<PaddedField> padded(bool has_labels) const = 0;
  virtual Loss loss_of(const Variable& outputs, const Batch& batch) = 0;

  // f32: logits, or numbers.
  Variable outputs(const Batch& batch, Forward& pass);
  // Cross-entropy of the labels that are not -100, a mean over `weight`.
  Loss class_loss(const Variable& logits, const Batch& batch, std::string_view weight) const;
  const Settings& settings() const { return site_.settings; }
  const RecordForm& form() const { return form_; }
  const std::shared_ptr<const ClassLabels>& classes();

 private:
  EncoderModel& encoder();
  ModelSpecPtr spec() { return base_.spec(vocabulary()); }
  HeadOptions head_of_model();
  std::int64_t outputs_of_model() { return has_classes() ? classes()->size() : std::ssize(form_.labels); }
  std::vector<std::string> classes_of_data();
  std::vector<std::string> classes_of_hub() const;
  const TokenizerPtr& tokenizer();
  std::int64_t vocabulary();
  const TextRecords& training();
  LabelCells cells() const { return has_classes() ? LabelCells::texts : LabelCells::numbers; }
  DatasetPtr examples_of(const TextRecords& records, const std::string& path, bool has_labels);
  Collator collator(bool has_labels);
  std::vector<std::string> varying(bool has_labels) const;
  const MetricList& metrics();
  const std::string& path() const { return site_.settings.text("data.path"); }

  TaskSite site_;
  CatalogModel base_{site_};
  RecordForm form_;
  std::optional<TextRecords> training_;
  TokenizerPtr tokenizer_;
  std::shared_ptr<const ClassLabels> classes_;
  std::unique_ptr<EncoderModel> model_;
  std::optional<MetricList> metrics_;
};

}  // namespace keel
