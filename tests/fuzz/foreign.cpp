#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/foreign/translation.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

// Whether the file, with the user's words beside it, is a configuration of the task: then what `keel config --from`
// writes of it is the same one.
bool reads(std::string_view task, std::string_view bytes, std::vector<std::string> beside) {
  const Schema& schema = keel_keys()->schema(task);
  return accepts([&] {
    const YamlNode root = read_foreign("fuzz", bytes);
    const ForeignKind* const kind = kind_of(root);
    KEEL_CHECK(kind != nullptr, "of no known kind");
    if (kind->name == "configs") beside.emplace_back("scheduler.step_size_up=2");
    ForeignRequest request = {schema, beside, 2};
    if (task != keel_keys()->tasks().standard().name) request.task = task;
    const ForeignTranslation read = translate(*kind, "fuzz", root, request);
    require(read.is_refused() != read.problems().empty(), "what is refused is told");
    const Config config = config_of(keel_keys(), read, "fuzz", beside);
    require(parse_config(read.yaml(schema, beside), "fuzz") == config, "the file that is written means the same");
  });
}

}  // namespace

// Of text, or of a table whose columns are predicted by name.
bool foreign(std::string_view bytes) {
  const bool of_text = reads("language", bytes, {"data.type=text", "data.path=x", "steps=3", "batch.micro=2"});
  return reads("supervised", bytes, {"model.trunk=none", "data.path=x", "steps=3", "batch.micro=2"}) || of_text;
}

}  // namespace keel::fuzz
