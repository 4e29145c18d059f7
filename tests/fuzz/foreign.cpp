#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/foreign/translation.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {

// Another trainer's file that is taken is a configuration, and what `keel config --from` writes of it is the same one.
bool foreign(std::string_view bytes) {
  std::vector<std::string> beside = {"data.type=text", "data.path=x", "steps=3", "batch.micro=2"};
  const Schema& schema = keel_keys()->schema(keel_keys()->tasks().standard().name);
  return accepts([&] {
    const YamlNode root = read_foreign("fuzz", bytes);
    const ForeignKind* const kind = kind_of(root);
    KEEL_CHECK(kind != nullptr, "of no known kind");
    if (kind->name == "configs") beside.emplace_back("scheduler.step_size_up=2");
    const ForeignTranslation read = translate(*kind, "fuzz", root, {schema, beside, 2});
    require(read.is_refused() != read.problems().empty(), "what is refused is told");
    const Config config = config_of(keel_keys(), read, "fuzz", beside);
    require(parse_config(read.yaml(schema, beside), "fuzz") == config, "the file that is written means the same");
  });
}

}  // namespace keel::fuzz
