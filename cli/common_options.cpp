#include "common_options.h"

#include <iostream>

namespace keel::cli {

Option configuration(std::string* variable) { return {"CONFIG.yaml", "", variable, "The configuration.", kRequired}; }

Option overrides(Words* variable) {
  return {"KEY=VALUE", "", Value::every_word(variable), "Values that replace those of the file."};
}

Config read_configuration(const std::string& file, const Words& changes, bool speaks) {
  Words notes;
  Config config = load_config(file, changes, "command line", &notes);
  for (const std::string& note : notes)
    if (speaks) std::cerr << concat("keel: note: ", note, '\n');
  return config;
}

Option ranks_as_threads(bool* variable) {
  return {"--threads", "", variable, "Ranks as threads of one process, without MPI."};
}

}  // namespace keel::cli
