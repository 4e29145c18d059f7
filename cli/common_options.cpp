#include "common_options.h"

namespace keel::cli {

Option configuration(std::string* variable) { return {"CONFIG.yaml", "", variable, "The configuration.", kRequired}; }

Option overrides(Words* variable) {
  return {"KEY=VALUE", "", Value::every_word(variable), "Values that replace those of the file."};
}

Option ranks_as_threads(bool* variable) {
  return {"--threads", "", variable, "Ranks as threads of one process, without MPI."};
}

}  // namespace keel::cli
