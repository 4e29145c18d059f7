#pragma once
// Data of the task `language` that has examples: documents packed into rows, and mixtures of several sources.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/tasks/task.h"
#include "keel/tokenizers/tokenizer.h"

namespace keel {

struct LanguageSource {
  std::string path;
  double weight = 1;
};

struct LanguageDataOptions {
  std::vector<LanguageSource> sources;  // one or more
  // Documents of texts are packed into rows (keel/data/packing.h): objects of .jsonl, rows of tables and examples of
  // columnar files with a field `text`, files of a folder, lines of other texts. Else sources are cut into windows.
  bool packing = false;
  std::string tokenizer = "byte";                       // of texts: byte, or for one source character
  std::shared_ptr<const Tokenizer> run_tokenizer = {};  // of a run that is asked or goes on; stands for the texts' own
  std::int64_t block = 1;
  double validation = 0;  // of the tokens at each source's end, or of the documents
};

// Opened files. Rows of training come by the sources' weights (mixed(), in keel/data/mixture.h), those of validation in
// order. Batches have the fields of next_tokens().
class LanguageData {
 public:
  // A source that is missing, too short or malformed is an Error, and so are tokens of different vocabularies.
  explicit LanguageData(const LanguageDataOptions& options, std::uint64_t seed);
  Data data(const TaskSite& site) const;
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }  // null: not known
  std::int64_t vocabulary() const { return vocabulary_; }

 private:
  struct Part {
    DatasetPtr train, validation;  // the latter null where nothing is held out
  };
  Part windows_of(const LanguageSource& source, const LanguageDataOptions& options);
  Part documents_of(const LanguageSource& source, const LanguageDataOptions& options, std::uint64_t seed);
  void join(const LanguageSource& source, std::int64_t vocabulary, const std::shared_ptr<const Tokenizer>& tokenizer);

  std::vector<Part> parts_;
  std::vector<double> weights_;
  std::vector<std::string> notes_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string first_;  // the source whose vocabulary holds for all
  std::int64_t vocabulary_ = 0;
};

}  // namespace keel
