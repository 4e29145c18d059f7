#pragma once
// Data of tasks that learn language by examples: documents or windows of tokens as rows, and mixtures of several
// sources.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/data/collator.h"
#include "keel/data/mixture.h"
#include "keel/data/tokens.h"
#include "keel/tasks/data_keys.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

struct TokenFile;

struct LanguageSource {
  std::string path;
  double weight = 1;
};

// What becomes of documents and of files of tokens.
struct TextRows {
  // Documents have the field input_ids and, where `words` is true, one `words` of as many numbers: 1 where a token
  // begins a word of the tokenizer.
  std::function<DatasetPtr(const DatasetPtr& documents)> of_documents;
  std::function<DatasetPtr(const Tokens& tokens, const std::string& fingerprint)> of_tokens;
  Collator training, validation;
  std::vector<std::string> varying = {};  // as SourceOptions::varying
  bool words = false;
  TextTemplate around = {};  // where `words` is false: what stands around each document's own tokens
};
// `tokenizer`: null of files of tokens without one.
using MakeTextRows = std::function<TextRows(const std::shared_ptr<const Tokenizer>& tokenizer)>;

struct LanguageDataOptions {
  std::vector<LanguageSource> sources;    // one or more
  std::vector<MixtureStage> stages = {};  // whose weights stand for those of the sources; none: these count
  // Documents of texts are packed into rows (keel/data/packing.h): objects of .jsonl, rows of tables and examples of
  // columnar files with a field `text`, files of a folder, lines of other texts; and those of files of tokens that say
  // which token ends one, where `rows` is none. Else sources are cut into windows.
  bool packing = false;
  std::string tokenizer = "byte";                       // of texts: byte, or for one source character
  std::shared_ptr<const Tokenizer> run_tokenizer = {};  // of a run that is asked or goes on; stands for the texts' own
  std::int64_t block = 1;
  // What is validated on: a fraction of the tokens at each source's end, or of the documents; or sets. A column and
  // values are of documents.
  DivisionOptions division = {};
  LastRows last = LastRows::join;  // of documents of one source; a mixture's steps join rounds
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};  // as TaskSite::progress
  // None: next tokens. Else texts are documents (`packing`), and files of tokens may stand beside them.
  MakeTextRows rows = {};
};

// All tokens of a file of text, which this tokenizer encodes, or of tokens, which are those of the vocabulary; and of
// the files of a folder, one behind the other. An Error where they do not belong to what is trained on.
Tokens tokens_to_validate_on(const std::string& path, const std::shared_ptr<const Tokenizer>& tokenizer,
                             std::int64_t vocabulary);
// A validation set of windows: each token but the first is a target once. `set`: its name, and the file, if any.
ValidationSet windows_in_order(const TaskSite& site, const HeldOutSet& set, const Tokens& tokens, std::int64_t block);

// Opened files. Rows of training come by the sources' weights (mixed(), in keel/data/mixture.h), those of validation in
// order. Batches have the fields of next_tokens(), or those that options.rows gives them.
class LanguageData {
 public:
  // A source that is missing, too short or malformed is an Error, and so are tokens of different vocabularies, and
  // documents that different tokens end; validation files are held to that by data().
  explicit LanguageData(LanguageDataOptions options);
  Data data(const TaskSite& site) const;
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }  // null: not known
  std::int64_t vocabulary() const { return vocabulary_; }

 private:
  DividedExamples windows_of(const LanguageSource& source);
  DividedExamples documents_of(const LanguageSource& source);
  // `path`: of the file, or of the shards.
  DatasetPtr documents_in_tokens(const std::string& path, const TokenFile& file) const;
  DatasetPtr open_documents(const std::string& path) const;
  DatasetPtr rows_of_file(const std::string& path) const;
  bool is_of_documents(const std::string& path) const;
  std::vector<ValidationSet> validation(const TaskSite& site) const;
  void join(const LanguageSource& source, std::int64_t vocabulary, const std::shared_ptr<const Tokenizer>& tokenizer);

  LanguageDataOptions options_;
  std::vector<DividedExamples> parts_;  // of each source; sets of a file of their own are not among them
  std::vector<std::string> notes_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TextRows rows_;
  std::string first_;  // the source whose vocabulary holds for all
  struct DocumentEnd {
    std::string path;
    std::uint32_t token = 0;
  };
  std::optional<DocumentEnd> end_;  // of the first source of tokens, by which all of them end documents
  std::int64_t vocabulary_ = 0;
};

}  // namespace keel
