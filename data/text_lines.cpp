#include "keel/data/text_lines.h"

#include "keel/data/line_index.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

class TextLines final : public Dataset {
 public:
  explicit TextLines(const std::string& path) : index_(path) {}

  std::int64_t size() const override { return index_.size(); }

  Example example(std::int64_t i) const override { return std::move(examples(std::span(&i, 1)).front()); }

  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    for (const std::int64_t i : indices) check_index(i);
    std::vector<Example> all;
    index_.read(indices, [&](const Line& line) { all.emplace_back().set("text", std::string(line.text)); });
    return all;
  }

  std::string fingerprint() const override { return concat("lines ", index_.hash().high, ' ', index_.hash().low); }

 private:
  LineIndex index_;
};

}  // namespace

DatasetPtr open_text_lines(const std::string& path) { return std::make_shared<TextLines>(path); }

}  // namespace keel
