#include "keel/tasks/language.h"

#include <algorithm>
#include <optional>

#include "keel/data/addition.h"
#include "keel/data/data_file.h"
#include "keel/data/loader.h"
#include "keel/data/packing.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_batch.h"
#include "keel/data/token_fingerprint.h"
#include "keel/kernels/reduce.h"
#include "keel/models/generation.h"
#include "keel/nn/rank_group.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/tasks/answer_options.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/language_data.h"
#include "keel/tasks/language_keys.h"
#include "keel/tasks/language_prediction.h"
#include "keel/tasks/metrics/classes.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tasks/text_source_keys.h"
#include "keel/tasks/text_stream.h"
#include "keel/tokenizers/find_tokenizer.h"

namespace keel {
namespace {

// Rows of the model's embedding that belong to no token.
std::string unused_rows_note(std::int64_t rows, std::int64_t vocabulary) {
  // Models are widened a little for speed on GPUs; that is no mistake.
  if (rows < 4 * vocabulary || rows - vocabulary < 1024) return "";
  return concat("model.vocabulary is ", rows, ", but the data has ", vocabulary,
                " different tokens: ", rows - vocabulary,
                " rows of the embedding belong to none; model.vocabulary=", vocabulary, " leaves them out");
}

// How a decoder of others answers.
std::string language_of_hub(const std::string& folder) {
  const std::string place = concat(folder, "/config.json");
  if (hub_kind(read_text_file(place), place) != ModelKind::decoder) return {};
  const std::string quoted = Json(folder).dump();
  return concat("task: {type: language}\nmodel: {from: ", quoted, "}\ndata: {type: text, path: ", quoted,
                ", tokenizer: ", quoted, "}\n");
}

class LanguageTask : public Task {
 public:
  explicit LanguageTask(const TaskSite& site) : site_(site) {}

  Module& model() override {
    if (!model_) {
      const ModelSpecPtr made = spec(vocabulary());
      model_ = made->make_decoder();
      base_.adapt(*model_, *made);
      model_->recompute = site_.settings.flag("model.recompute");
    }
    return *model_;
  }

  Data data() override {
    if (has_examples()) (void)spec(examples().vocabulary());  // before anything is made of it
    Data data = is_addition() ? sums() : has_examples() ? examples().data(site_) : windows();
    const auto& tokenizer = is_addition()    ? this->tokenizer()
                            : has_examples() ? examples().tokenizer()
                                             : text().tokenizer;
    base_.add_files(*shape(), tokenizer, has_texts() ? tokenizer_name() : "", data);
    return data;
  }

  Beginning beginning() override { return base_.beginning(model(), *shape()); }

  HubFiles hub_files(DType dtype) override {
    return base_.hub_files(*shape(), tokenizer(), has_texts() ? tokenizer_name() : "", dtype);
  }

  Loss training_step(const Batch& batch, Forward& pass) override { return language_loss(*model_, batch, pass); }

  std::string why_not_recordable() const override {
    if (is_packed()) return "data.packing must be false: where documents begin is another place in each step";
    return spec(0)->dropout() == 0 && base_.lora().dropout == 0
               ? ""
               : "model.dropout, model.attention_dropout and model.lora_dropout must be 0: a recorded step would drop "
                 "the same again and again";
  }

  void make_metrics(std::string_view /*set*/, Metrics& metrics) override {
    if (is_addition()) metrics.make<ExactMatch>("exact_match");
  }

  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    validate_language(*model_, batch, pass, metrics);
  }

  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    if (is_addition()) return sums_to_answer(site_, path, addition());
    check_tokenizer();
    return texts_to_score(site_, path, tokenizer(), tokens_before());
  }

  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    if (is_addition()) answer_sums(*model_, addition(), batch, pass, out);
    else score_texts(*model_, batch, pass, out);
  }

  void answer(std::string_view prompt, const AnswerOptions& options, Forward& pass,
              const std::function<void(std::string_view)>& on_text) override {
    if (is_addition()) return answer_sum(prompt, pass, on_text);
    const std::string one(prompt);
    continue_texts(std::span(&one, 1), options, pass, [&](std::size_t, std::string_view text) { on_text(text); });
  }

  void answer_all(std::span<const std::string> prompts, const AnswerOptions& options, Forward& pass,
                  const std::function<void(std::size_t, std::string_view)>& on_text) override {
    if (is_addition()) return Task::answer_all(prompts, options, pass, on_text);
    continue_texts(prompts, options, pass, on_text);
  }

  std::string_view unit() const override { return kTokenWeight; }
  std::int64_t positions() const override { return base_.positions(); }

  std::vector<std::string> notes() override {
    const std::int64_t tokens = vocabulary();
    const std::string note = tokens == 0 ? "" : unused_rows_note(spec(tokens)->vocabulary(), tokens);
    return note.empty() ? std::vector<std::string>() : std::vector{note};
  }

 private:
  ModelSpecPtr spec(std::int64_t vocabulary) const { return base_.spec(vocabulary); }
  ModelSpecPtr shape() { return spec(base_.is_published() ? 0 : vocabulary()); }

  bool is_addition() const { return site_.settings.text("data.type") == "addition"; }

  bool is_mixture() const { return site_.settings.text("data.type") == "mixture"; }
  bool is_packed() const { return !is_addition() && site_.settings.flag("data.packing"); }
  bool is_of_tokens() const { return site_.settings.text("data.type") == "tokens"; }
  bool has_examples() const { return is_mixture() || is_packed(); }

  const LanguageData& examples() {
    if (examples_) return *examples_;
    LanguageDataOptions options = {
        .sources = {},
        .packing = is_packed(),
        .tokenizer = is_of_tokens() ? "byte" : tokenizer_name(),
        .run_tokenizer = base_.has_run_tokenizer() || has_named_tokenizer() ? tokenizer() : nullptr,
        .block = positions(),
        .division = division(),
        .last = is_packed() ? last_rows(site_.settings) : LastRows::join,
        .progress = site_.progress};
    if (is_mixture()) {
      for (const Settings& source : site_.settings.parts("data.mixture"))
        options.sources.push_back({source.text("path"), source.number("weight")});
      options.stages = mixture_stages(site_.settings, site_.steps);
    } else {
      options.sources.push_back({site_.settings.text("data.path"), 1});
    }
    return examples_.emplace(std::move(options));
  }

  // Of files, not of sums.
  DivisionOptions division() const { return division_options(site_.settings, site_.data_seed, is_packed()); }

  const AdditionTask& addition() {
    if (!addition_) addition_.emplace(static_cast<int>(site_.settings.integer("data.digits")));
    return *addition_;
  }

  const TextDataset& text() {
    if (!text_) {
      const SplitOptions split{.validation = division().fraction, .block = positions()};
      const std::string& path = site_.settings.text("data.path");
      if (is_of_tokens()) text_ = open_tokens(path, split);
      else if (base_.has_run_tokenizer() || has_named_tokenizer()) text_ = open_text(path, tokenizer(), split);
      else text_ = open_text(path, tokenizer_name(), split);
    }
    return *text_;
  }

  // Of texts.
  bool has_texts() const { return is_mixture() || site_.settings.text("data.type") == "text"; }
  std::string tokenizer_name() const { return base_.tokenizer_name(site_.settings.text("data.tokenizer")); }
  // One that is there before the text is. A mixture whose files are all of tokens has that of the files.
  bool has_named_tokenizer() const {
    return has_texts() && !is_made_of_text(tokenizer_name()) && (!is_mixture() || mixture_has_texts());
  }
  bool mixture_has_texts() const {
    return std::ranges::any_of(site_.settings.parts("data.mixture"), [](const Settings& source) {
      return kind_of_file(source.text("path")) != DataKind::tokens;
    });
  }

  // Null for a token file without one. Opens the data where nothing else says it.
  const std::shared_ptr<const Tokenizer>& tokenizer() {
    if (tokenizer_) return tokenizer_;
    if (is_addition()) tokenizer_ = addition().tokenizer();
    else if (base_.has_run_tokenizer()) tokenizer_ = base_.run_tokenizer();
    else if (has_named_tokenizer()) tokenizer_ = base_.tokenizer_of(tokenizer_name());
    else return has_examples() ? examples().tokenizer() : text().tokenizer;
    return tokenizer_;
  }

  void check_tokenizer() {
    KEEL_CHECK(tokenizer(), "the model was trained on token numbers without a tokenizer, and reads no text");
    (void)spec(tokenizer()->vocabulary_size());  // refuses a tokenizer of more tokens
  }

  // Of the data.
  std::int64_t vocabulary() {
    const Settings& settings = site_.settings;
    if (is_addition() || base_.has_run_tokenizer()) return tokenizer()->vocabulary_size();
    // Where the file says nothing more, it need not be there yet.
    if (!text_ && !examples_ && (base_.is_published() || settings.integer("model.vocabulary") > 0)) return 0;
    if (!text_ && has_named_tokenizer()) return tokenizer()->vocabulary_size();
    return has_examples() ? examples().vocabulary() : text().train.vocabulary_size();
  }

  Data sums() {
    const AdditionTask& task = addition();
    KEEL_CHECK(positions() >= task.block(), "model.block is ", positions(), ", but sums of ", task.digits(),
               " digits have ", task.block(), " tokens; set model.block=", task.block());
    const std::int64_t samples = site_.settings.integer("eval.samples");
    return {.training = std::make_shared<ExampleLoader>(task.training_loader(site_.host, site_.rows, site_.data_seed)),
            .validation = {{"", std::make_shared<ExampleLoader>(
                                    task.held_out_loader(site_.host, std::min<std::int64_t>(samples, 256), samples))}}};
  }

  Data windows() {
    const TextDataset& text = this->text();
    (void)spec(vocabulary());  // before anything is made of it
    Data data{
        .training = std::make_shared<RandomWindowLoader>(site_.host, text.train,
                                                         WindowOptions{.rows = site_.rows,
                                                                       .block = positions(),
                                                                       .seed = site_.data_seed,
                                                                       .fingerprint = fingerprint_of(text.whole)}),
        .note = text.note};
    const DivisionOptions held_out = division();
    if (held_out.fraction > 0) data.validation.push_back(windows_in_order(site_, {}, text.validation, positions()));
    for (const HeldOutSet& set : held_out.sets) {
      const Tokens tokens = tokens_to_validate_on(set.path, text.tokenizer, text.train.vocabulary_size());
      data.validation.push_back(windows_in_order(site_, set, tokens, positions()));
    }
    return data;
  }

  std::vector<std::uint32_t> prompt_tokens(std::string_view prompt) {
    std::vector<std::uint32_t> tokens = tokenizer()->encode(prompt);
    KEEL_CHECK(!tokens.empty(), "--prompt is empty; give the text that the model shall continue");
    const std::vector<std::uint32_t>& before = tokens_before();
    tokens.insert(tokens.begin(), before.begin(), before.end());
    return tokens;
  }
  // What the model has read before every text: of the tokenizer's template where the model is a published one, or has
  // learnt from documents.
  const std::vector<std::uint32_t>& tokens_before() {
    if (!before_) {
      before_.emplace();
      if (!is_addition() && (base_.is_published() || (is_packed() && has_texts()))) {
        const TextTemplate around = template_of(*tokenizer());
        before_->assign(around.before.begin(), around.before.end());
      }
    }
    return *before_;
  }

  // Each prompt, and what follows it.
  void continue_texts(std::span<const std::string> prompts, const AnswerOptions& options, Forward& pass,
                      const std::function<void(std::size_t, std::string_view)>& on_text) {
    check_tokenizer();
    const std::vector<std::int64_t> ends = base_.end_tokens();
    const SamplingOptions sampling = sampling_options(options);
    check_sampling(sampling);
    check_stops(options.stop);
    std::vector<std::vector<std::int64_t>> tokens;
    std::vector<TextStream> texts;
    for (const std::string& prompt : prompts) {
      const std::vector<std::uint32_t> own = prompt_tokens(prompt);
      tokens.emplace_back(own.begin(), own.end());
      texts.emplace_back(tokenizer(), own, options.stop);
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) on_text(i, prompts[i]);
    std::vector<bool> has_ended(prompts.size());
    generate_batch(*model_, tokens, sampling, [&](std::size_t i, std::int64_t token) {
      has_ended[i] = has_ended[i] || std::ranges::find(ends, token) != ends.end();
      on_text(i, has_ended[i] ? std::string() : texts[i].add(token));
      has_ended[i] = has_ended[i] || texts[i].has_ended();
      return any_goes_on(pass.group, !has_ended[i]);
    });
    for (std::size_t i = 0; i < prompts.size(); ++i) on_text(i, texts[i].finish());
  }

  void answer_sum(std::string_view asked, Forward& pass, const std::function<void(std::string_view)>& on_text) {
    const std::string prompt = addition().prompt(addition().parse_prompt(asked));
    const std::vector<std::uint32_t> tokens = prompt_tokens(prompt);
    const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
    TextStream text(tokenizer(), tokens, {});
    std::string written;
    generate(*model_, wide, {.tokens = addition().digits() + 2, .temperature = 0}, [&](std::int64_t token) {
      written += text.add(token);
      return any_goes_on(pass.group, !written.ends_with('\n'));
    });
    const std::optional<std::int64_t> sum = addition().parse_answer(written);
    on_text(prompt);
    on_text(sum ? std::to_string(*sum) : written + " (no number)");
  }

  TaskSite site_;
  CatalogModel base_{site_};
  std::optional<AdditionTask> addition_;
  std::optional<TextDataset> text_;
  std::optional<LanguageData> examples_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<std::vector<std::uint32_t>> before_;  // of tokens_before()
  std::unique_ptr<CausalModel> model_;
};

}  // namespace

TaskEntry language_task() {
  TaskEntry entry =
      task_entry<LanguageTask>("language", "the next token of a text, of a token file, or of sums", language_keys());
  entry.complain = complain_of_language;
  entry.of_hub = language_of_hub;
  entry.example =
      "model: {type: gpt, layers: 4, heads: 4, width: 128, block: 64}\n"
      "data: {type: text, path: corpus.txt, tokenizer: byte, validation: 0.1}\n";
  return entry;
}

PackedDocuments packed_documents(const Batch& batch) {
  if (!batch.has(kDocuments)) return {};
  return {spans_of(batch[kDocuments]), batch[kPositions]};
}

Loss language_loss(const CausalModel& model, const Batch& batch, Forward& pass) {
  return {model.loss(batch[kInputIds], batch[kLabels], pass, packed_documents(batch)), std::string(kTokenWeight)};
}

void validate_language(const CausalModel& model, const Batch& batch, Forward& pass, Metrics& metrics) {
  const auto add_loss = [&](const CrossEntropyLoss& loss) {
    metrics.at<MeanMetric>("loss").update(loss.loss.value().item(), batch.weight(kTokenWeight));
  };
  // Answers alone need all logits.
  if (!metrics.has("exact_match"))
    return add_loss(model.loss(batch[kInputIds], batch[kLabels], pass, packed_documents(batch)));
  const Variable logits = model(batch[kInputIds], pass, packed_documents(batch));
  metrics.at<ExactMatch>("exact_match").update(kernels::argmax(logits.value(), -1), batch[kLabels]);
  add_loss(cross_entropy(logits, batch[kLabels]));
}

}  // namespace keel
