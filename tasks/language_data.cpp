#include "keel/tasks/language_data.h"

#include <algorithm>
#include <utility>

#include "keel/data/data_file.h"
#include "keel/data/file_list.h"
#include "keel/data/loader.h"
#include "keel/data/map.h"
#include "keel/data/mixture.h"
#include "keel/data/packing.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_documents.h"
#include "keel/data/token_file.h"
#include "keel/data/token_fingerprint.h"
#include "keel/runtime/error.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tokenizers/find_tokenizer.h"

namespace keel {
namespace {

// The texts of a document's file, for a tokenizer that is made of them.
std::string all_texts(const Dataset& documents) {
  std::string all;
  for (std::int64_t i = 0; i < documents.size(); ++i) {
    const Example example = documents.example(i);
    all += example.text("text");
  }
  return all;
}

// 1 where a token begins a word.
std::vector<std::int64_t> beginnings_of_words(const Encoding& encoded) {
  std::vector<std::int64_t> begins;
  for (std::size_t i = 0; i < encoded.size(); ++i)
    begins.push_back(i == 0 || encoded.word_ids[i] != encoded.word_ids[i - 1] ? 1 : 0);
  return begins;
}

// With the tokens of the template around them; none of a text that has none.
std::vector<std::int64_t> document_tokens(const Tokenizer& tokenizer, const std::string& text,
                                          const TextTemplate& around) {
  const std::vector<std::uint32_t> own = tokenizer.encode(text);
  if (own.empty()) return {};
  std::vector<std::int64_t> tokens(around.before.begin(), around.before.end());
  tokens.insert(tokens.end(), own.begin(), own.end());
  tokens.insert(tokens.end(), around.behind.begin(), around.behind.end());
  return tokens;
}

Example encoded_document(const Tokenizer& tokenizer, const std::string& text, const TextRows& rows) {
  if (!rows.words) {
    std::vector<std::int64_t> tokens = document_tokens(tokenizer, text, rows.around);
    const std::int64_t size = std::ssize(tokens);
    return Example().set("input_ids", Integers{{size}, std::move(tokens)});
  }
  const Encoding encoded = tokenizer.encode({text, std::nullopt}, uncut(/*specials=*/false));
  const std::int64_t size = std::ssize(encoded.ids);
  return Example()
      .set("input_ids", Integers{{size}, {encoded.ids.begin(), encoded.ids.end()}})
      .set("words", Integers{{size}, beginnings_of_words(encoded)});
}

std::string version_of_documents(const Tokenizer& tokenizer, const TextRows& rows) {
  std::string version = rows.words ? "tokens and words of " : "tokens of ";
  for (const std::int32_t token : rows.around.before) version = concat(token, " before ", version);
  for (const std::int32_t token : rows.around.behind) version = concat(token, " behind ", version);
  return version + tokenizer.fingerprint();
}

DatasetPtr tokens_of(const DatasetPtr& documents, const std::shared_ptr<const Tokenizer>& tokenizer,
                     const std::string& path, const TextRows& rows) {
  return map_numbered(
      documents,
      [documents, tokenizer, path, rows](const Example& example, std::int64_t i) {
        try {
          return encoded_document(*tokenizer, example.text("text"), rows);
        } catch (const Error& error) { throw Error(concat("'", path, "', ", documents->place(i), ": "), error); }
      },
      version_of_documents(*tokenizer, rows));
}

TextRows next_token_rows(const LanguageDataOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer) {
  const auto of_documents = [rows = PackOptions{.length = options.block, .progress = options.progress}](
                                const DatasetPtr& documents) { return pack(documents, rows); };
  const auto of_tokens = [block = options.block](const Tokens& tokens, const std::string& fingerprint) {
    return token_windows(tokens, block, fingerprint);
  };
  return {.of_documents = of_documents,
          .of_tokens = of_tokens,
          .training = next_tokens(),
          .validation = next_tokens(),
          .around = options.packing && tokenizer ? template_of(*tokenizer) : TextTemplate()};
}

std::string name_of_tokenizer(const std::shared_ptr<const Tokenizer>& of) {
  return of == nullptr ? "unknown" : std::string(of->name());
}

// Whether tokens of one mean what those of the other do; without a tokenizer that is not known, and taken for it.
bool say_alike(const std::shared_ptr<const Tokenizer>& one, const std::shared_ptr<const Tokenizer>& other) {
  return one == nullptr || other == nullptr || one == other || one->to_json() == other->to_json();
}

}  // namespace

Tokens tokens_to_validate_on(const std::string& path, const std::shared_ptr<const Tokenizer>& tokenizer,
                             std::int64_t vocabulary) {
  constexpr SplitOptions kWhole = {.validation = 0, .block = 1};
  if (kind_of_file(path) == DataKind::tokens) {
    const TextDataset opened = open_tokens(path, kWhole);
    KEEL_CHECK(opened.whole.vocabulary_size() == vocabulary && say_alike(opened.tokenizer, tokenizer), "'", path,
               "' has ", opened.whole.vocabulary_size(), " different tokens, tokenizer ",
               name_of_tokenizer(opened.tokenizer), ", and the training data ", vocabulary, ", tokenizer ",
               name_of_tokenizer(tokenizer), "; encode both by one tokenizer (keel tokenize)");
    return opened.whole;
  }
  KEEL_CHECK(tokenizer != nullptr, "'", path,
             "' is a text, and the training data are token numbers without a tokenizer; encode it as they are");
  std::vector<Tokens> texts;
  for (const std::string& file : files_at(path)) texts.push_back(open_text(file, tokenizer, kWhole).whole);
  return texts.size() == 1 ? texts.front() : Tokens::joined(std::move(texts));
}

ValidationSet windows_in_order(const TaskSite& site, const HeldOutSet& set, const Tokens& tokens, std::int64_t block) {
  return {set.name,
          std::make_shared<SequentialLoader>(
              site.host, tokens,
              WindowOptions{.rows = site.validation_rows, .block = block, .fingerprint = fingerprint_of(tokens)}),
          set.path};
}

LanguageData::LanguageData(LanguageDataOptions options) : options_(std::move(options)) {
  KEEL_CHECK(options_.sources.size() <= 1 || options_.run_tokenizer || !is_made_of_text(options_.tokenizer),
             "data.tokenizer=", options_.tokenizer, " is made of one text, and data.mixture has ",
             options_.sources.size(), "; take another one, such as byte");
  KEEL_CHECK(!options_.sources.empty(), "data.mixture has no sources; name at least one, as in [{path: a.txt}]");
  for (const LanguageSource& source : options_.sources)
    parts_.push_back(is_of_documents(source.path) ? documents_of(source) : windows_of(source));
}

bool LanguageData::is_of_documents(const std::string& path) const {
  return options_.packing && (!options_.rows || kind_of_file(path) != DataKind::tokens);
}

void LanguageData::join(const LanguageSource& source, std::int64_t vocabulary,
                        const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (parts_.empty()) {
    first_ = source.path;
    vocabulary_ = vocabulary;
    tokenizer_ = tokenizer;
    rows_ = options_.rows ? options_.rows(tokenizer) : next_token_rows(options_, tokenizer);
    return;
  }
  const bool is_same =
      vocabulary == vocabulary_ && (tokenizer == nullptr) == (tokenizer_ == nullptr) &&
      (tokenizer == nullptr || tokenizer == tokenizer_ || tokenizer->to_json() == tokenizer_->to_json());
  KEEL_CHECK(is_same, "'", source.path, "' has ", vocabulary, " different tokens, tokenizer ",
             name_of_tokenizer(tokenizer), ", and '", first_, "' ", vocabulary_, ", tokenizer ",
             name_of_tokenizer(tokenizer_),
             "; sources of a mixture have one vocabulary: encode them by one tokenizer (keel tokenize)");
}

DividedExamples LanguageData::windows_of(const LanguageSource& source) {
  const double held_out = options_.division.fraction;
  const SplitOptions split = {.validation = held_out, .block = options_.block};
  TextDataset text;
  if (kind_of_file(source.path) == DataKind::tokens) text = open_tokens(source.path, split);
  else if (options_.run_tokenizer) text = open_text(source.path, options_.run_tokenizer, split);
  else text = open_text(source.path, options_.tokenizer, split);
  join(source, text.train.vocabulary_size(), text.tokenizer);
  if (!text.note.empty()) notes_.push_back(text.note);
  const std::string whole = fingerprint_of(text.whole);
  DividedExamples part = {.trained = rows_.of_tokens(text.train, whole), .validation = {}};
  if (held_out > 0) {
    KEEL_CHECK(text.validation.size() > options_.block, "'", source.path, "' has ", text.validation.size(),
               " tokens to validate on, and a window of ", options_.block, " needs ", options_.block + 1,
               "; use a longer text, or data.validation=0");
    part.validation.push_back({"", rows_.of_tokens(text.validation, whole)});
  }
  return part;
}

DatasetPtr LanguageData::open_documents(const std::string& path) const {
  DatasetPtr documents = open_data(path, {.progress = options_.progress});
  KEEL_CHECK(documents->size() > 0, "'", path, "' has no documents");
  return documents;
}

DatasetPtr LanguageData::documents_in_tokens(const std::string& path, const TokenFile& file) const {
  KEEL_CHECK(file.why_no_end.empty(), file.why_no_end,
             "; data.packing needs one token: write all of them by one `keel tokenize --end-of-document TOKEN`");
  KEEL_CHECK(file.end_of_document, "'", path,
             "' are tokens, and do not say which of them ends a document; data.packing needs files that `keel tokenize "
             "--end-of-document TOKEN` has written, or texts");
  KEEL_CHECK(!end_ || end_->token == *file.end_of_document, "'", path, "' says that token ", *file.end_of_document,
             " ends a document, and '", end_->path, "' that token ", end_->token,
             " does; write both by one `keel tokenize --end-of-document TOKEN`");
  KEEL_CHECK(file.tokens.size() > 0, "'", path, "' has no tokens");
  return token_documents(file.tokens, *file.end_of_document, options_.progress);
}

DatasetPtr LanguageData::rows_of_file(const std::string& path) const {
  if (options_.packing && !options_.rows && kind_of_file(path) == DataKind::tokens) {
    (void)tokens_to_validate_on(path, tokenizer_, vocabulary_);  // whether they are of the same vocabulary
    return rows_.of_documents(documents_in_tokens(path, open_token_files(token_files_at(path))));
  }
  if (is_of_documents(path)) return rows_.of_documents(tokens_of(open_documents(path), tokenizer_, path, rows_));
  const Tokens tokens = tokens_to_validate_on(path, tokenizer_, vocabulary_);
  return rows_.of_tokens(tokens, fingerprint_of(tokens));
}

DividedExamples LanguageData::documents_of(const LanguageSource& source) {
  DatasetPtr documents, encoded;
  if (kind_of_file(source.path) == DataKind::tokens) {
    const std::vector<std::string> files = token_files_at(source.path);
    const TokenFile file = open_token_files(files);
    documents = encoded = documents_in_tokens(source.path, file);
    if (!end_) end_ = {source.path, *file.end_of_document};
    join(source, file.tokens.vocabulary_size(), tokenizer_of(files.front(), file));
  } else {
    documents = open_documents(source.path);
    std::shared_ptr<const Tokenizer> tokenizer = options_.run_tokenizer;
    if (!tokenizer)
      tokenizer = find_tokenizer(options_.tokenizer, is_made_of_text(options_.tokenizer) ? all_texts(*documents) : "");
    join(source, tokenizer->vocabulary_size(), tokenizer);
    encoded = tokens_of(documents, tokenizer, source.path, rows_);
  }
  DivisionOptions options = options_.division;
  std::erase_if(options.sets, [](const HeldOutSet& set) { return !set.path.empty(); });
  const double held_out = options.fraction;
  DividedExamples divided = Division(std::move(options), *documents, source.path).of(encoded, {});
  KEEL_CHECK(divided.trained->size() > 0 && (held_out == 0 || !divided.validation.empty()), "'", source.path, "' has ",
             documents->size(), " documents, too few to hold back data.validation=", held_out, " of them");
  divided.trained = rows_.of_documents(divided.trained);
  for (ExampleSet& set : divided.validation) set.examples = rows_.of_documents(set.examples);
  return divided;
}

// In the order in which the sets are named.
std::vector<ValidationSet> LanguageData::validation(const TaskSite& site) const {
  std::vector<HeldOutSet> sets = options_.division.sets;
  if (sets.empty()) sets.emplace_back();  // the fraction
  std::vector<ValidationSet> made;
  for (const HeldOutSet& set : sets) {
    if (!set.path.empty() && !options_.packing && !options_.rows) {
      made.push_back(
          windows_in_order(site, set, tokens_to_validate_on(set.path, tokenizer_, vocabulary_), options_.block));
      continue;
    }
    std::vector<DatasetPtr> rows;
    if (!set.path.empty()) rows.push_back(rows_of_file(set.path));
    for (const DividedExamples& part : parts_)
      for (const ExampleSet& held : part.validation)
        if (set.path.empty() && held.name == set.name) rows.push_back(held.examples);
    if (rows.empty()) continue;
    const DatasetPtr all = concatenated(std::move(rows));
    KEEL_CHECK(all->size() > 0, "the validation set '", set.name, "' has no tokens");
    made.push_back({set.name,
                    make_source(site.host, all, sequential(all->size(), site.validation_rows), rows_.validation,
                                {.seed = site.data_seed, .varying = rows_.varying}),
                    set.path});
  }
  return made;
}

Data LanguageData::data(const TaskSite& site) const {
  std::vector<DatasetPtr> trained;
  std::vector<std::int64_t> sizes;
  for (const DividedExamples& part : parts_) {
    trained.push_back(part.trained);
    sizes.push_back(part.trained->size());
  }
  Data data;
  std::vector<double> weights;
  for (const LanguageSource& source : options_.sources) weights.push_back(source.weight);
  const SamplerOptions sampling = {.rows = site.rows, .seed = site.data_seed, .last = options_.last};
  const SamplerPtr sampler =
      options_.stages.empty() ? mixed(sizes, weights, sampling) : mixed_in_stages(sizes, options_.stages, sampling);
  data.training = make_source(site.host, concatenated(trained), sampler, rows_.training,
                              {.seed = site.data_seed, .varying = rows_.varying});
  data.validation = validation(site);
  for (const std::string& note : notes_) data.note += concat(data.note.empty() ? "" : "\n", note);
  return data;
}

}  // namespace keel
