#include "keel/trainer/config.h"

#include "tests/fuzz/target.h"

bool keel::fuzz::config(std::string_view bytes) {
  return accepts([&] {
    const Config read = parse_config(bytes, "fuzz.yaml");
    require(parse_config(to_yaml(read), "resolved.yaml") == read, "the resolved file is the same configuration");
  });
}
