#include "keel/data/jsonl.h"

#include "keel/data/json_line.h"
#include "keel/data/line_index.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

class JsonlDataset final : public Dataset {
 public:
  JsonlDataset(const std::string& path, const LineFileOptions& options)
      : index_(path, {.cache_folder = options.cache_folder, .progress = options.progress}) {
    check_empty_lines(index_, options.empty_lines);
  }

  std::int64_t size() const override { return index_.size(); }

  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t i : indices) check_index(i);
    std::vector<Example> all;
    all.reserve(indices.size());
    JsonLineReader reader;
    index_.read(indices, [&](const Line& line) {
      try {
        all.push_back(reader.read(line.text));
      } catch (const JsonFault& fault) {
        throw Error(concat("'", index_.path(), "', line ", index_.line_at(line.offset), ", column ", fault.at + 1, ": ",
                           fault.what));
      }
    });
    return all;
  }

  std::string place(std::int64_t i) const override {
    check_index(i);
    return line_of(index_, i);
  }

  std::string fingerprint() const override { return concat("jsonl ", index_.hash().high, ' ', index_.hash().low); }

 private:
  LineIndex index_;
};

}  // namespace

DatasetPtr open_jsonl(const std::string& path, const LineFileOptions& options) {
  return std::make_shared<JsonlDataset>(path, options);
}

}  // namespace keel
