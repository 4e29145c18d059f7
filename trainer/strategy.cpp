#include "keel/trainer/strategy.h"

#include <cstddef>
#include <iterator>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::string_view kStages[] = {"", "ddp-", "zero1-", "zero2-", "zero3-"};
constexpr std::string_view kPrecisions[] = {"auto", "fp32", "bf16", "fp16"};

}  // namespace

Strategy parse_strategy(std::string_view text) {
  for (std::size_t stage = 0; stage < std::size(kStages); ++stage)
    for (std::size_t precision = 0; precision < std::size(kPrecisions); ++precision)
      if (text == concat(kStages[stage], kPrecisions[precision]))
        return {static_cast<Strategy::Stage>(stage), static_cast<Strategy::Precision>(precision)};
  throw Error(
      concat("expects fp32, bf16, fp16 or auto, alone or after ddp-, zero1-, zero2- or zero3-, as in zero2-bf16; got '",
             text.substr(0, 60), "'"));
}

std::string to_string(const Strategy& strategy) {
  return concat(kStages[static_cast<std::size_t>(strategy.stage)],
                kPrecisions[static_cast<std::size_t>(strategy.precision)]);
}

std::string single_process_note(const Strategy& strategy) {
  if (strategy.stage == Strategy::Stage::none) return "";
  return concat("strategy ", to_string(strategy), ": one process has nothing to share out, so it trains as ",
                kPrecisions[static_cast<std::size_t>(strategy.precision)], ", with the same result");
}

}  // namespace keel
