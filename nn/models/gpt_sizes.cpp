// Published sizes of GPT-2, and what a size costs.

#include <array>

#include "keel/nn/models/gpt.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// Radford et al. 2019, table 2.
struct GptSize {
  std::string_view name;
  int layers, heads;
  std::int64_t width;
};
constexpr std::array<GptSize, 4> kGptSizes = {
    {{"gpt2", 12, 12, 768}, {"gpt2-medium", 24, 16, 1024}, {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}}};

}  // namespace

double training_flops_of_token(const GptOptions& options, std::int64_t parameters) {
  const double attention = options.layers * static_cast<double>(options.width) * static_cast<double>(options.block);
  return 6 * (static_cast<double>(parameters) + attention);
}

GptOptions gpt_by_name(std::string_view name) {
  std::string known;
  for (const GptSize& size : kGptSizes) {
    if (size.name == name) {
      GptOptions options;
      options.layers = size.layers;
      options.heads = size.heads;
      options.width = size.width;
      return options;
    }
    known += concat(known.empty() ? "" : ", ", size.name);
  }
  throw Error(concat("unknown model '", name, "'; known are ", known));
}

}  // namespace keel
