#include "keel/tasks/fine_tuning.h"

#include <memory>
#include <optional>

#include "keel/data/data_file.h"
#include "keel/data/packing.h"
#include "keel/data/token_batch.h"
#include "keel/models/generation.h"
#include "keel/nn/rank_group.h"
#include "keel/runtime/error.h"
#include "keel/tasks/answer_options.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/fine_tuning_data.h"
#include "keel/tasks/fine_tuning_keys.h"
#include "keel/tasks/labelled_positions.h"
#include "keel/tasks/language.h"
#include "keel/tasks/language_prediction.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tasks/text_records.h"
#include "keel/tasks/text_stream.h"

namespace keel {
namespace {

constexpr std::string_view kTokenizerKey = "data.tokenizer", kPackingKey = "data.packing";

RecordFields record_fields(const Settings& settings) {
  const std::string& system = settings.text("data.system");
  return {.messages = settings.text("data.messages"),
          .prompt = settings.text("data.prompt"),
          .response = settings.text("data.response"),
          .system = system == "none" ? "" : system};
}

class FineTuningTask : public Task {
 public:
  explicit FineTuningTask(const TaskSite& site)
      : site_(site),
        form_(parse_chat_template(site.settings.text("data.template"))),
        fields_(record_fields(site.settings)) {}

  Module& model() override {
    if (!model_) {
      const ModelSpecPtr made = shape();
      model_ = made->make_decoder();
      base_.adapt(*model_, *made);
      model_->recompute = site_.settings.flag("model.recompute");
    }
    return *model_;
  }

  Data data() override {
    (void)shape();  // before anything is made of the data
    const std::string& path = site_.settings.text("data.path");
    const DatasetPtr records = open_records(path);
    Data data;
    std::int64_t left_out = 0;
    const auto rows_of = [&](const DatasetPtr& part, const std::string& of) {
      const DatasetPtr chats = chat_records(part, of, record_options());
      left_out += part->size() - chats->size();
      const bool is_cut = parse_long_records(site_.settings.text("data.long")) == LongRecords::cut;
      KEEL_CHECK(chats->size() > 0, "'", of, "' has no record that ",
                 is_cut ? "has a token of an answer within its first model.block=" : "fits in model.block=",
                 positions(), " tokens", is_cut ? ", behind which data.long=cut cuts it; enlarge model.block" : "");
      return is_packed() ? pack(chats, {.length = positions(),
                                        .labels = std::string(kLabels),
                                        .padding = padding(),
                                        .progress = site_.progress})
                         : chats;
    };
    DivisionOptions options = division_options(site_.settings, site_.data_seed);
    DividedExamples divided = Division(std::move(options), *records, path).of(records, [&](const std::string& other) {
      return open_records(other);
    });
    divided.trained = rows_of(divided.trained, path);
    for (ExampleSet& set : divided.validation) set.examples = rows_of(set.examples, path_of_set(set.name));
    data = make_data(site_, divided, is_packed() ? next_tokens() : answers_to_learn(padding()),
                     {.varying = varying(), .last = last_rows(site_.settings)});
    if (left_out > 0)
      data.note = concat(left_out, left_out == 1 ? " record has" : " records have",
                         " no answer within model.block=", positions(), " tokens and ", left_out == 1 ? "is" : "are",
                         " left out");
    base_.add_files(*shape(), tokenizer(), site_.settings.text(kTokenizerKey), data);
    return data;
  }

  Beginning beginning() override { return base_.beginning(model(), *shape()); }
  HubFiles hub_files(DType dtype) override {
    return base_.hub_files(*shape(), tokenizer(), site_.settings.text(kTokenizerKey), dtype, {},
                           {.end = form_ == ChatTemplate::plain ? "" : std::string(end_of_answer(form_)),
                            .jinja = jinja_of(form_, fields_.system),
                            .system = system_in_jinja(form_, fields_.system)});
  }

  Loss training_step(const Batch& batch, Forward& pass) override { return language_loss(*model_, batch, pass); }

  std::string why_not_recordable() const override {
    return is_packed() ? "data.packing must be false: where documents begin is another place in each step"
                       : "rows of records are as long as the longest of a step";
  }

  void make_metrics(std::string_view /*set*/, Metrics& metrics) override { metrics_.make(metrics); }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const LabelledPositions at = labelled_positions(batch);
    const Variable logits = model_->logits_at(at.positions, batch[kInputIds], pass, packed_documents(batch));
    feed_labelled(metrics, metrics_, logits.value(), at, batch);
  }

  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    const DatasetPtr records = open_texts_to_predict(path);
    (void)tokenizer();  // threads of the loader ask for it
    const Collator collator = [this, records, path](std::span<const CollatedRow> rows, const CollateInfo& info,
                                                    Batch& batch) {
      std::vector<std::vector<std::int64_t>> prompts;
      for (const CollatedRow& row : rows) {
        try {
          prompts.push_back(prompt_tokens(messages_to_answer(row.example)));
        } catch (const Error& error) { throw Error(concat("'", path, "', ", records->place(row.index), ": "), error); }
      }
      fill_prompts(prompts, info.context, batch);
    };
    return in_order(site_, records, collator, {std::string(kInputIds)});
  }

  // Row by row. Ranks whose answer has ended go on until the last one's has.
  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    const std::vector<std::int32_t> ids = batch[kInputIds].to_vector<std::int32_t>();
    const std::vector<std::int64_t> lengths = batch[kLengths].to_vector<std::int64_t>();
    const auto time = static_cast<std::size_t>(batch[kInputIds].dim(1));
    const SamplingOptions greedy = {.tokens = site_.settings.integer("eval.answer_tokens"), .temperature = 0};
    for (std::size_t row = 0; any_goes_on(pass.group, row < lengths.size()); ++row) {
      const std::size_t own = std::min(row, lengths.size() - 1);
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(own * time);
      const std::string answer =
          answer_to({begin, begin + static_cast<std::ptrdiff_t>(lengths[own])}, greedy, {}, pass, {});
      if (row < lengths.size()) out.add(batch.examples()[row], {{"answer", answer}});
    }
  }

  void answer(std::string_view prompt, const AnswerOptions& options, Forward& pass,
              const std::function<void(std::string_view)>& on_text) override {
    KEEL_CHECK(prompt.find_first_not_of(" \t\r\n") != std::string_view::npos,
               "--prompt is empty; give the text that the model shall answer");
    std::vector<ChatMessage> messages;
    if (!fields_.system.empty()) messages.push_back({ChatRole::system, fields_.system});
    messages.push_back({ChatRole::user, std::string(prompt)});
    answer_to(prompt_tokens(messages), sampling_options(options), options.stop, pass, on_text);
  }

  std::string_view unit() const override { return kTokenWeight; }
  std::int64_t positions() const override { return base_.positions(); }
  bool has_equal_rows() const override { return is_packed(); }

 private:
  bool is_packed() const { return site_.settings.flag(kPackingKey); }
  std::vector<std::string> varying() const {
    return is_packed() ? std::vector<std::string>() : std::vector{std::string(kInputIds), std::string(kLabels)};
  }
  ModelSpecPtr shape() { return base_.spec(base_.is_published() ? 0 : tokenizer()->vocabulary_size()); }

  const TokenizerPtr& tokenizer() {
    if (!tokenizer_) {
      tokenizer_ = base_.tokenizer_of(site_.settings.text(kTokenizerKey));
      check_chat_tokens(form_, *tokenizer_);
      (void)base_.spec(tokenizer_->vocabulary_size());  // refuses a tokenizer of more tokens
    }
    return tokenizer_;
  }
  std::int64_t padding() { return first_token_of(*tokenizer(), {"[PAD]", "<pad>", "<|pad|>"}).value_or(0); }

  DatasetPtr open_records(const std::string& path) const {
    DatasetPtr records = open_data(path, {.empty_lines = EmptyLines::refused, .progress = site_.progress});
    KEEL_CHECK(records->size() > 0, "'", path, "' has no records");
    return records;
  }
  std::string path_of_set(const std::string& name) const {
    for (const HeldOutSet& set : held_out_sets(site_.settings))
      if (set.name == name && !set.path.empty()) return set.path;
    return site_.settings.text("data.path");
  }
  ChatRecordOptions record_options() {
    return {.tokenizer = tokenizer(),
            .form = form_,
            .fields = fields_,
            .longer = parse_long_records(site_.settings.text("data.long")),
            .length = positions()};
  }

  // Lines that are no records are the user's message.
  std::vector<ChatMessage> messages_to_answer(const Example& record) const {
    RecordFields fields = fields_;
    if (!record.has(fields.messages) && !record.has(fields.prompt) && record.has("text")) fields.prompt = "text";
    return messages_of(record, fields, /*answered=*/false);
  }
  std::vector<std::int64_t> prompt_tokens(const std::vector<ChatMessage>& messages) {
    std::vector<std::int64_t> ids = tokens_of_chat(*tokenizer(), write_chat(form_, messages, /*asks=*/true)).ids;
    KEEL_CHECK(std::ssize(ids) < positions(), "the prompt has ", ids.size(),
               " tokens with its template, and the model reads ", positions(), " with the answer; shorten it");
    return ids;
  }
  static void fill_prompts(const std::vector<std::vector<std::int64_t>>& prompts, const Context& context,
                           Batch& batch) {
    std::size_t time = 1;
    for (const auto& prompt : prompts) time = std::max(time, prompt.size());
    std::vector<std::int32_t> inputs(prompts.size() * time);
    std::vector<std::int64_t> lengths;
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      for (std::size_t i = 0; i < prompts[row].size(); ++i)
        inputs[row * time + i] = static_cast<std::int32_t>(prompts[row][i]);
      lengths.push_back(std::ssize(prompts[row]));
    }
    batch.set(std::string(kInputIds),
              from_values(context, inputs, {std::ssize(prompts), static_cast<std::int64_t>(time)}));
    batch.set(std::string(kLengths), from_values(context, lengths, {std::ssize(prompts)}));
  }

  // The answer without the mark of its end. Calls on_text (if any) with each part of it.
  std::string answer_to(const std::vector<std::int64_t>& prompt, const SamplingOptions& sampling,
                        std::vector<std::string> stops, Forward& pass,
                        const std::function<void(std::string_view)>& on_text) {
    const std::string end(end_of_answer(form_));
    const bool is_plain = form_ == ChatTemplate::plain;
    const std::optional<std::uint32_t> end_token = is_plain ? std::nullopt : tokenizer()->token_of(end);
    if (is_plain) stops.push_back(end);
    TextStream text(tokenizer(), {}, std::move(stops));
    std::string told;
    bool has_begun = false;
    const auto tell = [&](std::string piece) {
      const bool drops_space = is_plain && !has_begun && piece.starts_with(' ');
      has_begun = has_begun || !piece.empty();
      if (drops_space) piece.erase(0, 1);
      told += piece;
      if (on_text) on_text(piece);
    };
    bool has_ended = false;
    generate(*model_, prompt, sampling, [&](std::int64_t token) {
      has_ended = has_ended || (end_token && token == *end_token);
      tell(has_ended ? std::string() : text.add(token));
      has_ended = has_ended || text.has_ended();
      return any_goes_on(pass.group, !has_ended);
    });
    tell(text.finish());
    return told;
  }

  TaskSite site_;
  CatalogModel base_{site_};
  ChatTemplate form_;
  RecordFields fields_;
  MetricList metrics_{{"accuracy", "perplexity"}, MetricInput::classes, 2};
  TokenizerPtr tokenizer_;
  std::unique_ptr<CausalModel> model_;
};

}  // namespace

TaskEntry fine_tuning_task() {
  TaskEntry entry =
      task_entry<FineTuningTask>("fine_tuning", "answers to messages, from records with roles", fine_tuning_keys());
  entry.complain = complain_of_fine_tuning;
  entry.example =
      "task: {type: fine_tuning}\n"
      "model: {from: models/qwen2}\n"
      "data: {path: chats.jsonl, template: chatml, packing: true, validation: 0.1}\n";
  return entry;
}

}  // namespace keel
