#include "keel/data/csv.h"

#include <numeric>
#include <vector>

#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

void read_table(const std::string& path, CsvOptions options) {
  options.lines.cache_folder = scratch().path();  // of what looks as if gzip had compressed it
  const DatasetPtr data = open_csv(path, options);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(data->size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<Example> all = data->examples(numbers);
  require(std::ssize(all) == data->size(), "as many examples come as were asked for");
  for (std::size_t i = 0; i < all.size(); ++i) {
    require(all[i] == data->example(numbers[i]), "an example alone is the one among others");
    require(all[i].fields().size() == all.front().fields().size(), "all examples have the same fields");
  }
}

}  // namespace

bool csv(std::string_view bytes) {
  const bool commas = accepts([&] { read_table(write_scratch("table.csv", bytes), {}); });
  const bool tabs = accepts([&] { read_table(write_scratch("table.tsv", bytes), {.header = false}); });
  const bool named = accepts([&] {
    read_table(write_scratch("table.csv", bytes),
               {.fields = {{"x", "a,p0..p1"}, {"label", "#label"}, {"text", "$text"}}});
  });
  return commas || tabs || named;
}

}  // namespace keel::fuzz
