#include "keel/data/document_rows.h"

#include <algorithm>
#include <map>

#include "keel/data/map.h"
#include "keel/data/walk.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

std::span<const std::int64_t> numbers_of_field(const Example& example, const std::string& field) {
  const Value& value = example[field];
  const auto* sequence = std::get_if<Integers>(&value);
  KEEL_CHECK(sequence != nullptr && sequence->shape.size() == 1, "field '", printable(field, 64), "' is ",
             kind_of(value), "; rows are cut from sequences of whole numbers");
  return sequence->values;
}

// Tokens of an example, all of whose fields have as many.
std::int64_t length_of(const Example& example, const std::vector<std::string>& fields) {
  const auto length = std::ssize(numbers_of_field(example, fields.front()));
  for (const std::string& field : fields)
    KEEL_CHECK(std::ssize(numbers_of_field(example, field)) == length, "field '", printable(field, 64), "' has ",
               numbers_of_field(example, field).size(), " elements, and '", printable(fields.front(), 64), "' has ",
               length);
  return length;
}

void check_row_options(const DatasetPtr& below, const DocumentRowOptions& options) {
  KEEL_CHECK(below != nullptr && !options.fields.empty(), "rows are cut from fields of a data set");
  KEEL_CHECK(options.length >= 1, "a row has at least 1 token, not ", options.length);
}

std::string described_rows(const DocumentRowOptions& options) {
  std::string text = concat(options.length, " of");
  for (const std::string& field : options.fields) text += concat(' ', field.size(), ' ', field);
  return text;
}

class JoinedDocuments final : public Dataset {
 public:
  JoinedDocuments(DatasetPtr below, DocumentRowOptions options)
      : below_(std::move(below)), options_(std::move(options)) {
    check_row_options(below_, options_);
    ends_.resize(static_cast<std::size_t>(below_->size()));
    walk(
        *below_,
        [&](std::int64_t first, const std::vector<Example>& examples) {
          for (std::size_t i = 0; i < examples.size(); ++i)
            ends_[static_cast<std::size_t>(first) + i] = length_of(examples[i], options_.fields);
        },
        [&](std::int64_t /*begin*/, std::int64_t end) {
          if (options_.progress)
            options_.progress(static_cast<std::uint64_t>(end), static_cast<std::uint64_t>(below_->size()));
        });
    std::int64_t tokens = 0;
    for (std::int64_t& end : ends_) end = tokens += end;
  }

  std::int64_t size() const override { return (tokens() + options_.length - 1) / options_.length; }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return std::min(options_.length, tokens() - i * options_.length);
  }
  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }
  std::string fingerprint() const override {
    return concat("joined ", described_rows(options_), " of ", below_->fingerprint());
  }

  // Asks for the documents of all rows at once, and for each once.
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::map<std::int64_t, std::size_t> places;  // by document
    for (const std::int64_t i : indices) {
      const std::int64_t begin = i * options_.length, end = begin + length(i);
      for (std::int64_t document = document_at(begin); begin_of(document) < end; ++document) {
        places.emplace(document, 0);
        if (document + 1 == below_->size()) break;
      }
    }
    std::vector<std::int64_t> numbers;
    for (auto& [number, place] : places) {
      place = numbers.size();
      numbers.push_back(number);
    }
    const std::vector<Example> documents = below_->examples(numbers);
    std::vector<Example> rows;
    for (const std::int64_t i : indices) {
      Example row;
      for (const std::string& field : options_.fields) row.set(field, row_of(i, field, documents, places));
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  std::int64_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  std::int64_t begin_of(std::int64_t document) const {
    return document == 0 ? 0 : ends_[static_cast<std::size_t>(document) - 1];
  }
  std::int64_t document_at(std::int64_t token) const { return std::ranges::upper_bound(ends_, token) - ends_.begin(); }

  Integers row_of(std::int64_t i, const std::string& field, const std::vector<Example>& documents,
                  const std::map<std::int64_t, std::size_t>& places) const {
    const std::int64_t begin = i * options_.length, end = begin + length(i);
    Integers row{{end - begin}, {}};
    for (std::int64_t at = begin, document = document_at(begin); at < end; ++document) {
      const std::span<const std::int64_t> values = numbers_of_field(documents[places.at(document)], field);
      KEEL_CHECK(std::ssize(values) == ends_[static_cast<std::size_t>(document)] - begin_of(document), "example ",
                 document, " has ", values.size(), " tokens, and had ",
                 ends_[static_cast<std::size_t>(document)] - begin_of(document),
                 " when the rows were counted; a data set must not change");
      const std::int64_t from = at - begin_of(document), count = std::min(std::ssize(values) - from, end - at);
      const auto part = values.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count));
      row.values.insert(row.values.end(), part.begin(), part.end());
      at += count;
    }
    return row;
  }

  DatasetPtr below_;
  DocumentRowOptions options_;
  std::vector<std::int64_t> ends_;  // tokens up to the end of each example below
};

class CutTokens final : public Dataset {
 public:
  CutTokens(Tokens tokens, std::int64_t length, std::string fingerprint)
      : tokens_(std::move(tokens)), length_(length), fingerprint_(std::move(fingerprint)) {
    KEEL_CHECK(length_ >= 1, "a row has at least 1 token, not ", length_);
  }
  std::int64_t size() const override { return (tokens_.size() + length_ - 1) / length_; }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return std::min(length_, tokens_.size() - i * length_);
  }
  Example example(std::int64_t i) const override {
    std::vector<std::int32_t> row(static_cast<std::size_t>(length(i)));
    tokens_.copy(i * length_, row);
    return Example().set("input_ids", Integers{{std::ssize(row)}, {row.begin(), row.end()}});
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  Tokens tokens_;
  std::int64_t length_;
  std::string fingerprint_;
};

}  // namespace

DatasetPtr cut_documents(DatasetPtr below, const DocumentRowOptions& options) {
  check_row_options(below, options);
  const MapFunction cut = [options](const Example& example, std::int64_t /*i*/) {
    std::vector<Example> rows;
    const std::int64_t tokens = length_of(example, options.fields);
    for (std::int64_t begin = 0; begin < tokens; begin += options.length) {
      const std::int64_t count = std::min(options.length, tokens - begin);
      Example row;
      for (const std::string& field : options.fields) {
        const auto part =
            numbers_of_field(example, field).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
        row.set(field, Integers{{count}, {part.begin(), part.end()}});
      }
      rows.push_back(std::move(row));
    }
    return rows;
  };
  return map(std::move(below), cut, concat("cut ", described_rows(options)));
}

DatasetPtr joined_documents(DatasetPtr below, const DocumentRowOptions& options) {
  return std::make_shared<JoinedDocuments>(std::move(below), options);
}

DatasetPtr cut_tokens(Tokens tokens, std::int64_t length, const std::string& fingerprint) {
  std::string own = concat("rows of ", length, " from ", tokens.size(), " of ", fingerprint);
  return std::make_shared<CutTokens>(std::move(tokens), length, std::move(own));
}

}  // namespace keel
