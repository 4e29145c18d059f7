#include "keel/runtime/json.h"

#include "tests/fuzz/target.h"

bool keel::fuzz::json(std::string_view bytes) {
  return accepts([&] {
    const std::string written = Json::parse(bytes).dump();
    require(Json::parse(written).dump() == written, "what was written reads as what it was written from");
  });
}
