#include "common_options.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

constexpr int kFewestColumns = 40, kMostColumns = 1000;

}  // namespace

Option configuration(std::string* variable) { return {"CONFIG.yaml", "", variable, "The configuration.", kRequired}; }

Option overrides(Words* variable) {
  return {"KEY=VALUE", "", Value::every_word(variable), "Values that replace those of the file."};
}

Config read_configuration(const std::string& file, const Words& changes, bool speaks) {
  Words notes;
  Config config = load_config(program_keys(), file, changes, "command line", &notes);
  for (const std::string& note : notes)
    if (speaks) std::cerr << concat("keel: note: ", note, '\n');
  return config;
}

Option columns_option(int* variable) {
  return {"--columns",
          "N",
          {variable, kFewestColumns, kMostColumns},
          "Width of what is printed; the terminal's without it, or 80."};
}

int columns_of_output() { return console_options(STDOUT_FILENO).width(); }

Words with_columns(Words words, int asked) {
  if (asked == 0)
    words.insert(words.end(),
                 {"--columns", std::to_string(std::clamp(columns_of_output(), kFewestColumns, kMostColumns))});
  return words;
}

Option ranks_as_threads(bool* variable) {
  return {"--threads", "", variable, "Ranks as threads of one process, without MPI."};
}

}  // namespace keel::cli
