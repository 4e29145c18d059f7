#include "keel/dist/checkpoint/manifest.h"

#include "keel/dist/checkpoint/sealed_text.h"
#include "tests/fuzz/manifest_laws.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

// Nobody guesses a hash of 128 bits: what lacks one gets its own, so that readers see what is before it.
std::string sealed(std::string_view bytes) {
  std::string text(bytes);
  return text.ends_with("\n}\n") && !check_seal(text, "made up") ? with_seal(std::move(text)) : text;
}

// One rank's part, which other readers trust once it was joined.
void read_part(const std::string& text) {
  accepts([&] {
    const Manifest part = parse_part(text, "made up");
    require(part_text(parse_part(part_text(part), "written")) == part_text(part), "a part is read as it was written");
    ManifestJoin join;
    join.add(part);
    require_sound(std::move(join).finish());
  });
}

}  // namespace

bool manifest(std::string_view bytes) {
  return accepts([&] {
    const std::string text = sealed(bytes);
    read_part(text);
    const Manifest read = parse_manifest(text, "made up");
    require_sound(read);
    const Manifest again = parse_manifest(manifest_text(read), "written");
    require(again.state.dump() == read.state.dump() && again.files == read.files && again.tensors == read.tensors &&
                again.extents == read.extents && again.has_hashes == read.has_hashes,
            "a manifest is read as it was written");
  });
}

}  // namespace keel::fuzz
