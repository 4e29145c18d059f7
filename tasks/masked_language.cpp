#include "keel/tasks/masked_language.h"

#include <cmath>
#include <memory>
#include <optional>

#include "keel/data/document_rows.h"
#include "keel/data/token_batch.h"
#include "keel/models/model_keys.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/catalog_model.h"
#include "keel/tasks/labelled_positions.h"
#include "keel/tasks/language_data.h"
#include "keel/tasks/masked_prediction.h"
#include "keel/tasks/masking.h"
#include "keel/tasks/text_records.h"
#include "keel/tasks/text_source_keys.h"

namespace keel {
namespace {

constexpr std::string_view kDataType = "data.type", kMaskToken = "task.mask_token", kAuto = "auto";
HeadOptions masked_head() { return {.head = EncoderHead::masked_language}; }

std::vector<KeyRow> masking_keys() {
  using enum KeyType;
  const auto share = [](std::string_view key, std::string_view standard, std::string_view help) {
    return KeyRow{.key = key, .type = number, .standard = standard, .help = help, .low = 0, .high = 1};
  };
  return {
      {.key = "task.probability",
       .type = number,
       .standard = "0.15",
       .help = "Of a token, or of a word, that it is chosen to be guessed. Drawn anew in each epoch.",
       .low = 0,
       .high = 1,
       .known_as = "mlm_probability",
       .low_open = true},
      {.key = "task.masking",
       .type = choice,
       .standard = "tokens",
       .help =
           "tokens: each by itself; words: the first token of a word draws for all of it; budget: words in a drawn "
           "order, up to probability times the row's tokens (at least 1, at most 512), and one that would be too many "
           "is passed over. Words are the tokenizer's.",
       .choices = "tokens|words|budget"},
      share("task.masked", "0.8", "Of the chosen tokens, the share in whose place the mask token stands."),
      share("task.random", "0.1",
            "The share in whose place any token stands, drawn uniformly from the tokenizer's whole vocabulary."),
      share("task.unchanged", "0.1", "The share that stays as it is. The three add up to 1."),
      {.key = kMaskToken,
       .type = text,
       .standard = kAuto,
       .help = "The token that masks others; auto: [MASK], <mask> or <|mask|>, whichever the tokenizer has."}};
}

std::vector<KeyRow> masked_language_keys() {
  using enum KeyType;
  std::vector<KeyRow> rows = masking_keys();
  const auto add = [&](const std::vector<KeyRow>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  add(model_keys(ModelKind::encoder, "bert"));
  rows.push_back({.key = kDataType,
                  .type = choice,
                  .standard = "text",
                  .help = "A text, a file of token numbers, or several files in shares.",
                  .choices = "text|tokens|mixture",
                  .known_as = "dataset",
                  .asked = true});
  add(text_source_keys());
  rows.push_back({.key = "data.rows",
                  .type = choice,
                  .standard = "joined",
                  .help =
                      "Documents are objects of .jsonl, rows and examples with a field text, files of a folder, lines "
                      "of other texts. joined: one behind the other, cut into rows of model.block tokens with the "
                      "tokenizer's special tokens; documents: each is a row, a longer one several.",
                  .choices = "joined|documents",
                  .when_key = kDataType,
                  .when_values = "text|mixture"});
  rows.push_back(
      {.key = "data.tokenizer",
       .type = text,
       .standard = kModelTokenizer,
       .help = "The folder of a model, a file of its tokenizer, or the name of a model in the local cache; model: "
               "that of model.from. It needs a token that masks.",
       .when_key = kDataType,
       .when_values = "text|mixture",
       .asked = true});
  add(text_validation_keys({kDataType, "text|mixture"}));
  return rows;
}

std::vector<SettingsComplaint> complain_of_masked_language(const Settings& settings) {
  std::vector<SettingsComplaint> complaints = complain_of_model(settings);
  const bool has_documents = settings.text(kDataType) != "tokens";
  for (SettingsComplaint& each : complain_of_text_sources(settings, has_documents))
    complaints.push_back(std::move(each));
  if (has_documents) complain_of_tokenizer(settings, complaints);
  const double sum =
      settings.number("task.masked") + settings.number("task.random") + settings.number("task.unchanged");
  if (std::abs(sum - 1) > 1e-9)
    complaints.push_back(
        {{"task.masked", "task.random", "task.unchanged"},
         concat("the shares of tokens that are masked, replaced and kept add up to ", sum, ", not 1")});
  if (!has_documents && settings.text("task.masking") != "tokens")
    complaints.push_back({{"task.masking", kDataType},
                          "a file of tokens does not say where words begin; take a text, or task.masking=tokens"});
  return complaints;
}

class MaskedLanguageTask : public Task {
 public:
  explicit MaskedLanguageTask(const TaskSite& site) : site_(site) {}

  Module& model() override {
    if (!model_) {
      const ModelSpecPtr made = shape();
      model_ = made->make_encoder(masked_head());
      base_.adapt(*model_, *made);
      model_->recompute = site_.settings.flag("model.recompute");
    }
    return *model_;
  }

  Data data() override {
    Data data = examples().data(site_);
    base_.add_files(*shape(), tokenizer(), tokenizer_name(), data, masked_head());
    return data;
  }

  Beginning beginning() override { return base_.beginning(model(), *shape()); }
  HubFiles hub_files(DType dtype) override {
    return base_.hub_files(*shape(), tokenizer(), tokenizer_name(), dtype, masked_head());
  }

  Loss training_step(const Batch& batch, Forward& pass) override {
    return {model_->masked_loss(input_of(batch), batch[kLabels], pass), std::string(kTokenWeight)};
  }

  std::string why_not_recordable() const override {
    return "masked_language computes as many logits as tokens are masked, another number in each step";
  }

  void make_metrics(std::string_view /*set*/, Metrics& metrics) override { metrics_.make(metrics); }

  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    const LabelledPositions at = labelled_positions(batch);
    feed_labelled(metrics, metrics_, logits_at(*model_, input_of(batch), at.positions, pass), at, batch);
  }

  std::shared_ptr<const BatchSource> prediction_data(const std::string& path) override {
    return masked_texts(site_, path, masked_form());
  }
  void predict_step(const Batch& batch, Forward& pass, Predictions& out) override {
    fill_masks(*model_, masked_form(), batch, pass, out);
  }

  std::string_view unit() const override { return kTokenWeight; }
  std::int64_t positions() const override { return base_.positions(); }
  bool has_equal_rows() const override { return is_joined(); }

 private:
  bool is_of_tokens() const { return site_.settings.text(kDataType) == "tokens"; }
  bool is_joined() const { return is_of_tokens() || site_.settings.text("data.rows") == "joined"; }
  std::string tokenizer_name() const { return is_of_tokens() ? "" : site_.settings.text("data.tokenizer"); }
  ModelSpecPtr shape() { return base_.spec(base_.is_published() ? 0 : vocabulary()); }

  std::int64_t vocabulary() {
    if (!data_ && site_.settings.integer("model.vocabulary") > 0) return 0;
    return tokenizer() ? tokenizer()->vocabulary_size() : examples().vocabulary();
  }

  // Null for a file of tokens without one.
  const TokenizerPtr& tokenizer() {
    if (!tokenizer_ && (base_.has_run_tokenizer() || !is_of_tokens()))
      tokenizer_ = is_of_tokens() ? base_.run_tokenizer() : base_.tokenizer_of(site_.settings.text("data.tokenizer"));
    return tokenizer_ ? tokenizer_ : examples().tokenizer();
  }

  static EncoderInput input_of(const Batch& batch) { return {.tokens = batch[kInputIds], .lengths = batch[kLengths]}; }

  const LanguageData& examples() {
    if (data_) return *data_;
    const bool is_mixture = site_.settings.text(kDataType) == "mixture", has_documents = !is_of_tokens();
    LanguageDataOptions options = {.sources = {},
                                   .packing = has_documents,
                                   .run_tokenizer = has_documents ? tokenizer() : nullptr,
                                   .block = positions(),
                                   .division = division_options(site_.settings, site_.data_seed, has_documents),
                                   .last = has_documents ? last_rows(site_.settings) : LastRows::join,
                                   .progress = site_.progress};
    options.rows = [this](const TokenizerPtr& of) { return rows_of(of); };
    if (is_mixture) {
      for (const Settings& source : site_.settings.parts("data.mixture"))
        options.sources.push_back({source.text("path"), source.number("weight")});
      options.stages = mixture_stages(site_.settings, site_.steps);
    } else {
      options.sources.push_back({site_.settings.text("data.path"), 1});
    }
    return data_.emplace(std::move(options));
  }

  std::int32_t mask_token(const TokenizerPtr& of) const {
    KEEL_CHECK(of != nullptr,
               "the data are token numbers without a tokenizer, which do not say what masks; put the "
               "tokenizer.json that made them beside them");
    const std::string& name = site_.settings.text(kMaskToken);
    const auto found =
        name == kAuto ? first_token_of(*of, {"[MASK]", "<mask>", "<|mask|>"}) : first_token_of(*of, {name});
    KEEL_CHECK(found,
               name == kAuto ? std::string("the tokenizer has none of [MASK], <mask> and <|mask|>")
                             : concat("task.mask_token: the tokenizer has no token '", printable(name, 64), "'"),
               "; take one that has a token which masks (`keel tokenizer train --special`), or name it: "
               "task.mask_token");
    return *found;
  }
  static std::int32_t padding_token(const Tokenizer& of) {
    return first_token_of(of, {"[PAD]", "<pad>", "<|pad|>"}).value_or(0);
  }

  TextRows rows_of(const TokenizerPtr& of) {
    const Settings& settings = site_.settings;
    MaskingOptions masking = {.masking = parse_masking(settings.text("task.masking")),
                              .probability = settings.number("task.probability"),
                              .masked = settings.number("task.masked"),
                              .random = settings.number("task.random"),
                              .mask_token = mask_token(of),
                              .padding_token = padding_token(*of),
                              .vocabulary = of->vocabulary_size(),
                              .around = template_of(*of),
                              .is_special = special_tokens(*of)};
    const std::int64_t own = positions() - masking.around.size();
    KEEL_CHECK(own >= 1, "model.block is ", positions(), ", and the tokenizer puts ", masking.around.size(),
               " special tokens around each text; take a longer block");
    const bool joined = is_joined();
    if (joined) masking.length = positions();
    TextRows rows;
    rows.words = masking.masking != Masking::tokens;
    DocumentRowOptions cut = {.length = own, .progress = site_.progress};
    if (rows.words) cut.fields.emplace_back(kWords);
    rows.of_documents = [cut, joined](const DatasetPtr& documents) {
      return joined ? joined_documents(documents, cut) : cut_documents(documents, cut);
    };
    rows.of_tokens = [own, words = rows.words](const Tokens& tokens, const std::string& fingerprint) {
      KEEL_CHECK(!words, "a file of tokens does not say where words begin; take a text, or task.masking=tokens");
      return cut_tokens(tokens, own, fingerprint);
    };
    rows.training = masked_tokens(masking, /*by_example=*/false);
    rows.validation = masked_tokens(masking, /*by_example=*/true);
    if (!joined) rows.varying = {std::string(kInputIds), std::string(kLabels)};
    return rows;
  }

  MaskedTexts masked_form() {
    KEEL_CHECK(tokenizer(), "the model was trained on token numbers without a tokenizer, and reads no text");
    return {.tokenizer = tokenizer(),
            .mask_token = mask_token(tokenizer()),
            .padding_token = padding_token(*tokenizer()),
            .length = positions()};
  }

  TaskSite site_;
  CatalogModel base_{site_};
  MetricList metrics_{{"accuracy", "perplexity"}, MetricInput::classes, 2};
  TokenizerPtr tokenizer_;
  std::optional<LanguageData> data_;
  std::unique_ptr<EncoderModel> model_;
};

}  // namespace

TaskEntry masked_language_task() {
  TaskEntry entry = task_entry<MaskedLanguageTask>(
      "masked_language", "the tokens that were masked in a text, by an encoder", masked_language_keys());
  entry.complain = complain_of_masked_language;
  entry.example =
      "task: {type: masked_language, masking: words, probability: 0.15}\n"
      "model: {type: bert, layers: 4, heads: 4, width: 128, block: 128}\n"
      "data: {type: text, path: corpus.txt, tokenizer: tokenizer.json, validation: 0.1}\n";
  return entry;
}

}  // namespace keel
