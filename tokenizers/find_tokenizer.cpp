#include "keel/tokenizers/find_tokenizer.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/hub_cache.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/tokenizers/tokenizer_files.h"

namespace keel {

std::string known_tokenizers() {
  std::string known;
  for (const std::string_view name : plain_tokenizer_names()) known += concat(name, ", ");
  return known +
         "the folder of a model, a file of its tokenizer (tokenizer.json), or the name of a model in the local cache";
}

bool is_made_of_text(std::string_view name) { return name == "character"; }

bool has_tokenizer(std::string_view name) {
  return is_plain_tokenizer(name) || std::filesystem::exists(with_home_folder(name)) || !hub_folder(name).empty();
}

TokenizerPtr find_tokenizer(std::string_view name, std::string_view text) {
  if (is_plain_tokenizer(name)) return make_plain_tokenizer(name, text);
  const std::string path = with_home_folder(name);
  if (std::filesystem::exists(path)) return load_tokenizer(path);
  if (const std::string folder = hub_folder(name); !folder.empty()) return load_tokenizer(folder);
  const std::string cache = hub_cache();
  const std::string meant = nearest(name, plain_tokenizer_names());
  throw Error(concat("unknown tokenizer '", name, "'", meant.empty() ? "" : concat(" (did you mean ", meant, "?)"),
                     "; known are ", known_tokenizers(), cache.empty() ? "" : concat(" (", cache, ")")));
}

void save_tokenizer(const std::string& path, const Tokenizer& tokenizer) { write_text_file(path, tokenizer.to_json()); }

}  // namespace keel
