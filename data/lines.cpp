#include "keel/data/lines.h"

#include "keel/data/line_index.h"
#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

class LinesDataset final : public Dataset {
 public:
  LinesDataset(const std::string& path, const LineFileOptions& options)
      : index_(path, {.cache_folder = options.cache_folder, .progress = options.progress}) {
    check_empty_lines(index_, options.empty_lines);
  }

  std::int64_t size() const override { return index_.size(); }
  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t i : indices) check_index(i);
    std::vector<Example> all;
    all.reserve(indices.size());
    index_.read(indices, [&](const Line& line) {
      if (const std::size_t bad = find_bad_utf8(line.text); bad != std::string_view::npos)
        throw Error(concat("'", index_.path(), "', line ", index_.line_at(line.offset), ", byte ", bad + 1,
                           ": this is not UTF-8"));
      std::vector<Example::Field> fields;
      fields.emplace_back("text", std::string(line.text));
      all.emplace_back(std::move(fields));
    });
    return all;
  }
  std::string place(std::int64_t i) const override {
    check_index(i);
    return line_of(index_, i);
  }
  std::string fingerprint() const override { return concat("lines ", index_.hash().high, ' ', index_.hash().low); }

 private:
  LineIndex index_;
};

}  // namespace

DatasetPtr open_lines(const std::string& path, const LineFileOptions& options) {
  return std::make_shared<LinesDataset>(path, options);
}

}  // namespace keel
