#include "keel/data/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "keel/data/first_fit.h"
#include "keel/data/token_batch.h"
#include "keel/data/walk.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

const Integers& sequence_of(const Example& example, const std::string& field, std::int64_t i) {
  const Value& value = example[field];
  const auto* sequence = std::get_if<Integers>(&value);
  KEEL_CHECK(sequence != nullptr && sequence->shape.size() == 1, "field '", printable(field, 64), "' of example ", i,
             " is ", kind_of(value), "; what is packed is a sequence of whole numbers");
  return *sequence;
}

// Tokens from `begin` on of an example, as many as it has or as a row holds.
struct Piece {
  std::uint32_t example = 0;  // in its window
  std::uint32_t begin = 0;
};

// A row that is being filled.
class PackedRow {
 public:
  PackedRow(std::int64_t length, std::int64_t padding)
      : ids_(make(length, padding)),
        labels_(make(length, kIgnoreTarget)),
        documents_(make(length, -1)),
        positions_(make(length, 0)) {}

  // The tokens of a piece, and those that are its targets, which go on behind it where its document does.
  void add(std::span<const std::int64_t> tokens, std::span<const std::int64_t> targets, std::size_t from) {
    const std::size_t count = std::min(tokens.size() - from, ids_.values.size());
    for (std::size_t i = 0; i < count; ++i, ++at_) {
      ids_.values[at_] = tokens[from + i];
      if (from + i + 1 < targets.size()) labels_.values[at_] = targets[from + i + 1];
      documents_.values[at_] = document_;
      positions_.values[at_] = static_cast<std::int64_t>(i);
    }
    ++document_;
  }
  Example take() {
    std::vector<Example::Field> fields;
    fields.emplace_back(kInputIds, std::move(ids_));
    fields.emplace_back(kLabels, std::move(labels_));
    fields.emplace_back(kDocuments, std::move(documents_));
    fields.emplace_back(kPositions, std::move(positions_));
    return Example(std::move(fields));
  }

 private:
  static Integers make(std::int64_t length, std::int64_t value) {
    return {{length}, std::vector<std::int64_t>(static_cast<std::size_t>(length), value)};
  }

  Integers ids_, labels_, documents_, positions_;
  std::size_t at_ = 0;
  std::int64_t document_ = 0;
};

class PackedDataset final : public Dataset {
 public:
  PackedDataset(DatasetPtr below, PackOptions options) : below_(std::move(below)), options_(std::move(options)) {
    KEEL_CHECK(below_ != nullptr, "there is no data set whose documents could be packed");
    KEEL_CHECK(options_.length >= 1 && options_.window >= 1, "rows of ", options_.length,
               " tokens cannot be packed from windows of ", options_.window, " examples; both are at least 1");
    KEEL_CHECK(options_.window <= std::int64_t{1} << 32, "a window has at most 2^32 examples, not ", options_.window);
    count_tokens();
    for (std::size_t begin = 0; begin < lengths_.size(); begin += window_size()) add_window(begin);
    pieces_.shrink_to_fit();
  }

  std::int64_t size() const override { return std::ssize(row_ends_); }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return options_.length;
  }
  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  // Asks for the documents of many rows at once, since files read what lies side by side together; for each once.
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t i : indices) check_index(i);
    std::vector<Example> rows;
    rows.reserve(indices.size());
    while (rows.size() < indices.size()) add_rows(indices.subspan(rows.size()), rows);
    return rows;
  }
  std::string fingerprint() const override {
    return concat("packed ", options_.length, ' ', options_.padding, ' ', options_.window, ' ', options_.tokens.size(),
                  ' ', options_.tokens, ' ', options_.labels.size(), ' ', options_.labels, " of ",
                  below_->fingerprint());
  }

 private:
  // Tokens of documents in memory beyond which no row adds others.
  static constexpr std::int64_t kAtOnce = 1 << 20;

  std::int64_t document_of(std::int64_t row, const Piece& piece) const {
    const auto window = std::ranges::upper_bound(rows_before_, row) - rows_before_.begin() - 1;
    return window * options_.window + piece.example;
  }

  // The first of these rows, up to one whose documents are too many.
  void add_rows(std::span<const std::int64_t> indices, std::vector<Example>& rows) const {
    std::map<std::int64_t, std::size_t> places;  // by document
    std::int64_t tokens = 0;
    std::size_t count = 0;
    for (; count < indices.size(); ++count) {
      const std::int64_t row = indices[count];
      const auto is_there = [&](const Piece& piece) { return places.contains(document_of(row, piece)); };
      if (tokens >= kAtOnce && !std::ranges::all_of(pieces_of(row), is_there)) break;
      for (const Piece& piece : pieces_of(row)) {
        const std::int64_t number = document_of(row, piece);
        if (places.emplace(number, 0).second) tokens += lengths_[static_cast<std::size_t>(number)];
      }
    }
    std::vector<std::int64_t> numbers;
    for (auto& [number, place] : places) {
      place = numbers.size();
      numbers.push_back(number);
    }
    const std::vector<Example> documents = below_->examples(numbers);
    for (const std::int64_t i : indices.first(count)) {
      PackedRow row(options_.length, options_.padding);
      for (const Piece& piece : pieces_of(i)) {
        const std::int64_t number = document_of(i, piece);
        add_document(row, piece, documents[places.at(number)], number);
      }
      rows.push_back(row.take());
    }
  }

  std::size_t window_size() const { return static_cast<std::size_t>(options_.window); }

  std::span<const Piece> pieces_of(std::int64_t row) const {
    const auto number = static_cast<std::size_t>(row);
    const std::size_t first = number == 0 ? 0 : row_ends_[number - 1];
    return std::span(pieces_).subspan(first, row_ends_[number] - first);
  }

  void add_document(PackedRow& row, const Piece& piece, const Example& document, std::int64_t number) const {
    const Integers& tokens = sequence_of(document, options_.tokens, number);
    const Integers& targets = options_.labels.empty() ? tokens : sequence_of(document, options_.labels, number);
    KEEL_CHECK(targets.values.size() == tokens.values.size(), "field '", printable(options_.labels, 64),
               "' of example ", number, " has ", targets.values.size(), " elements, and '",
               printable(options_.tokens, 64), "' has ", tokens.values.size());
    const std::uint32_t counted = lengths_[static_cast<std::size_t>(number)];
    KEEL_CHECK(tokens.values.size() == counted, "example ", number, " has ", tokens.values.size(), " tokens, and had ",
               counted, " when the rows were counted; a data set must not change");
    row.add(tokens.values, targets.values, piece.begin);
  }

  void count_tokens() {
    const std::int64_t size = below_->size();
    lengths_.resize(static_cast<std::size_t>(size));
    walk(
        *below_,
        [&](std::int64_t first, const std::vector<Example>& examples) {
          for (std::size_t i = 0; i < examples.size(); ++i) {
            const std::int64_t number = first + static_cast<std::int64_t>(i);
            const std::size_t tokens = sequence_of(examples[i], options_.tokens, number).values.size();
            KEEL_CHECK(tokens <= std::numeric_limits<std::uint32_t>::max(), "example ", number, " has ", tokens,
                       " tokens; split it into documents of fewer");
            lengths_[static_cast<std::size_t>(number)] = static_cast<std::uint32_t>(tokens);
          }
        },
        [&](std::int64_t /*begin*/, std::int64_t end) {
          if (options_.progress) options_.progress(static_cast<std::uint64_t>(end), static_cast<std::uint64_t>(size));
        });
  }

  // The rows of the window that begins with this example.
  void add_window(std::size_t begin) {
    rows_before_.push_back(size());
    const std::size_t end = std::min(begin + window_size(), lengths_.size());
    std::vector<Piece> pieces;
    std::vector<std::int64_t> lengths;
    for (std::size_t i = begin; i < end; ++i) {
      for (std::int64_t at = 0; at < lengths_[i]; at += options_.length) {
        lengths.push_back(std::min(options_.length, lengths_[i] - at));
        pieces.push_back({static_cast<std::uint32_t>(i - begin), static_cast<std::uint32_t>(at)});
      }
    }
    const std::vector<std::int64_t> rows = first_fit(lengths, options_.length);
    std::vector<std::size_t> order(pieces.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return rows[i]; });
    for (std::size_t place = 0; place < order.size(); ++place) {
      pieces_.push_back(pieces[order[place]]);
      const bool ends = place + 1 == order.size() || rows[order[place + 1]] != rows[order[place]];
      if (ends) row_ends_.push_back(pieces_.size());
    }
  }

  DatasetPtr below_;
  PackOptions options_;
  std::vector<std::uint32_t> lengths_;     // tokens of each example below
  std::vector<Piece> pieces_;              // row by row
  std::vector<std::size_t> row_ends_;      // of each row, in `pieces_`
  std::vector<std::int64_t> rows_before_;  // of each window
};

}  // namespace

DatasetPtr pack(DatasetPtr below, const PackOptions& options) {
  return std::make_shared<PackedDataset>(std::move(below), options);
}

Collator next_tokens() {
  return [stacked = stack()](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    stacked(rows, info, batch);
    if (batch.has(kDocuments)) batch.keep_on_host(kDocuments);
    const Tensor& labels = batch[kLabels];
    const std::span<const std::int32_t> values(labels.data<std::int32_t>(), static_cast<std::size_t>(labels.numel()));
    batch.set_weight(std::string(kTokenWeight),
                     static_cast<double>(std::ssize(values) - std::ranges::count(values, kIgnoreTarget)));
  };
}

}  // namespace keel
