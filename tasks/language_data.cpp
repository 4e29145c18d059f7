#include "keel/tasks/language_data.h"

#include "keel/data/data_file.h"
#include "keel/data/map.h"
#include "keel/data/mixture.h"
#include "keel/data/packing.h"
#include "keel/data/split.h"
#include "keel/data/text_dataset.h"
#include "keel/data/token_fingerprint.h"
#include "keel/runtime/error.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/plain_tokenizers.h"

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

DatasetPtr tokens_of(const DatasetPtr& documents, const std::shared_ptr<const Tokenizer>& tokenizer,
                     const std::string& path) {
  return map_each(
      documents,
      [tokenizer, path](const Example& example) {
        std::vector<std::uint32_t> tokens;
        try {
          tokens = tokenizer->encode(example.text("text"));
        } catch (const Error& error) { throw Error(concat("'", path, "': ", error.what()), error.kind()); }
        return Example().set("input_ids", Integers{{std::ssize(tokens)}, {tokens.begin(), tokens.end()}});
      },
      concat("tokens of ", tokenizer->to_json()));
}

}  // namespace

LanguageData::LanguageData(const LanguageDataOptions& options, std::uint64_t seed) {
  KEEL_CHECK(options.sources.size() == 1 || options.run_tokenizer || !is_made_of_text(options.tokenizer),
             "data.tokenizer=", options.tokenizer, " is made of one text, and data.mixture has ",
             options.sources.size(), "; take another one, such as byte");
  KEEL_CHECK(!options.sources.empty(), "data.mixture has no sources; name at least one, as in [{path: a.txt}]");
  for (const LanguageSource& source : options.sources) {
    parts_.push_back(options.packing ? documents_of(source, options, seed) : windows_of(source, options));
    weights_.push_back(source.weight);
  }
}

void LanguageData::join(const LanguageSource& source, std::int64_t vocabulary,
                        const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (parts_.empty()) {
    first_ = source.path;
    vocabulary_ = vocabulary;
    tokenizer_ = tokenizer;
    return;
  }
  const auto name_of = [](const std::shared_ptr<const Tokenizer>& of) {
    return of == nullptr ? std::string("unknown") : std::string(of->name());
  };
  const bool is_same =
      vocabulary == vocabulary_ && (tokenizer == nullptr) == (tokenizer_ == nullptr) &&
      (tokenizer == nullptr || tokenizer == tokenizer_ || tokenizer->to_json() == tokenizer_->to_json());
  KEEL_CHECK(is_same, "'", source.path, "' has ", vocabulary, " different tokens, tokenizer ", name_of(tokenizer),
             ", and '", first_, "' ", vocabulary_, ", tokenizer ", name_of(tokenizer_),
             "; sources of a mixture have one vocabulary: encode them by one tokenizer (keel tokenize)");
}

LanguageData::Part LanguageData::windows_of(const LanguageSource& source, const LanguageDataOptions& options) {
  const SplitOptions split = {.validation = options.validation, .block = options.block};
  TextDataset text;
  if (kind_of_file(source.path) == DataKind::tokens) text = open_tokens(source.path, split);
  else if (options.run_tokenizer) text = open_text(source.path, options.run_tokenizer, split);
  else text = open_text(source.path, options.tokenizer, split);
  join(source, text.train.vocabulary_size(), text.tokenizer);
  if (!text.note.empty()) notes_.push_back(text.note);
  const std::string whole = fingerprint_of(text.whole);
  Part part = {token_windows(text.train, options.block, whole), nullptr};
  if (options.validation > 0) {
    KEEL_CHECK(text.validation.size() > options.block, "'", source.path, "' has ", text.validation.size(),
               " tokens to validate on, and a window of ", options.block, " needs ", options.block + 1,
               "; use a longer text, or data.validation=0");
    part.validation = token_windows(text.validation, options.block, whole);
  }
  return part;
}

LanguageData::Part LanguageData::documents_of(const LanguageSource& source, const LanguageDataOptions& options,
                                              std::uint64_t seed) {
  KEEL_CHECK(kind_of_file(source.path) != DataKind::tokens, "'", source.path,
             "' is a file of tokens, which does not say where documents end; data.packing is for texts");
  const DatasetPtr documents = open_data(source.path);
  KEEL_CHECK(documents->size() > 0, "'", source.path, "' has no documents");
  std::shared_ptr<const Tokenizer> tokenizer = options.run_tokenizer;
  if (!tokenizer)
    tokenizer = find_tokenizer(options.tokenizer, is_made_of_text(options.tokenizer) ? all_texts(*documents) : "");
  join(source, tokenizer->vocabulary_size(), tokenizer);
  const DatasetPtr tokens = tokens_of(documents, tokenizer, source.path);
  const PackOptions rows = {.length = options.block};
  if (options.validation == 0) return {pack(tokens, rows), nullptr};
  const std::vector<DatasetPtr> halves = split(tokens, {1 - options.validation, options.validation}, seed);
  for (const DatasetPtr& half : halves)
    KEEL_CHECK(half->size() > 0, "'", source.path, "' has ", documents->size(),
               " documents, too few to hold back data.validation=", options.validation, " of them");
  return {pack(halves[0], rows), pack(halves[1], rows)};
}

Data LanguageData::data(const TaskSite& site) const {
  std::vector<DatasetPtr> trained, validated;
  std::vector<std::int64_t> sizes;
  for (const Part& part : parts_) {
    trained.push_back(part.train);
    sizes.push_back(part.train->size());
    if (part.validation) validated.push_back(part.validation);
  }
  Data data;
  data.training =
      make_source(site.host, concatenated(trained), mixed(sizes, weights_, {.rows = site.rows, .seed = site.data_seed}),
                  next_tokens(), {.seed = site.data_seed, .varying = {}});
  if (!validated.empty()) {
    const DatasetPtr all = concatenated(validated);
    data.validation.push_back(
        {"", make_source(site.host, all, sequential(all->size(), site.validation_rows), next_tokens())});
  }
  for (const std::string& note : notes_) data.note += concat(data.note.empty() ? "" : "\n", note);
  return data;
}

}  // namespace keel
