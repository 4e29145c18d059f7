#include "keel/dist/checkpoint/old_formats.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/sealed_text.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

constexpr std::int64_t kSealedFormat = 3, kUnsealedFormat = 2;

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& item : list.items()) texts.push_back(item.string());
  return texts;
}

}  // namespace

Manifest read_old_format(const std::string& folder) {
  const std::string path = concat(folder, '/', kOldStateFile);
  const std::string text = read_text_file(path);
  const bool is_sealed = check_seal(text, path);
  try {
    const Json json = Json::parse(text);
    const std::int64_t format = json.at("format").integer();
    KEEL_CHECK(format == kUnsealedFormat || format == kSealedFormat, "'", path, "' has format ", format,
               ", and a state.json has ", kUnsealedFormat, " or ", kSealedFormat);
    KEEL_CHECK(is_sealed || format == kUnsealedFormat, "'", path, "' is malformed: it does not end with its own hash");
    ManifestJoin join;
    const auto add = [&](const std::string& section, const std::vector<std::string>& names) {
      for (const std::string& name : names) check_file_name(name);
      join.add(describe_files(folder, section, names));
    };
    add("weights", texts_of(json.at("weights")));
    add("optimizer", texts_of(json.at("state")));
    if (const Json* files = json.find("compression"))
      for (std::size_t rank = 0; rank < files->items().size(); ++rank)
        add(concat("compression.", rank), {files->items()[rank].string()});
    Manifest manifest = std::move(join).finish();
    KEEL_CHECK(!manifest.files.empty(), "'", path, "' is malformed: it names no files");
    for (StoredFile& file : manifest.files) {
      const Json& described = json.at("files").at(file.name);
      file.bytes = file.head = static_cast<std::uint64_t>(described.at("bytes").integer());
      file.hash = parse_hash(described.at("xxh3").string());
    }
    for (const auto& [name, value] : json.members())
      if (name != "format" && name != "weights" && name != "state" && name != "compression" && name != "files" &&
          name != "xxh3")
        manifest.state[name] = value;
    return manifest;
  } catch (const JsonError&) { throw Error(concat("'", path, "' is malformed: it is not what keel writes")); }
}

}  // namespace keel
