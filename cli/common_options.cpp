#include "common_options.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/progress.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kFewestColumns = 40, kMostColumns = 1000;

}  // namespace

Option configuration(std::string* variable) {
  return {"CONFIG.yaml", "", variable, "The configuration, keel's own or another trainer's (docs/foreign.md).",
          kRequired};
}

Option overrides(Words* variable) {
  return {"KEY=VALUE", "", Value::every_word(variable), "Values that replace those of the file."};
}

Config read_configuration(const std::string& file, const Words& changes, bool speaks, const FilesBeside& beside) {
  Words notes;
  const ConfigFiles files = {file, beside.deepspeed, accelerate_path(beside.accelerate), beside.ranks};
  Config config = load_any_config(program_keys(), files, changes, "command line", &notes);
  for (const std::string& note : notes)
    if (speaks) std::cerr << concat("keel: note: ", printable(note), '\n');
  return config;
}

bool assume_precision(Config& config) {
  if (config.strategy.precision != Strategy::Precision::automatic) return false;
  config.strategy.precision = Strategy::Precision::bf16;
  return true;
}

Option deepspeed_file(FilesBeside* beside) {
  return {"--deepspeed-config-file", "FILE", &beside->deepspeed,
          "DeepSpeed's JSON, read beside the configuration, which it may not contradict."};
}

Option accelerate_file(FilesBeside* beside) {
  return {
      "--config-file", "FILE", &beside->accelerate,
      "Accelerate's configuration file, read beside the configuration, which it may not contradict; default: the one "
      "that `accelerate config` wrote."};
}

std::string accelerate_path(const std::string& named) {
  if (named != "default") return named;
  const auto folder = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  fs::path home = folder("HF_HOME");
  if (home.empty()) {
    const fs::path cache = folder("XDG_CACHE_HOME");
    home = (cache.empty() ? folder("HOME") / ".cache" : cache) / "huggingface";
  }
  const fs::path path = home / "accelerate" / "default_config.yaml";
  std::error_code error;
  KEEL_CHECK(fs::is_regular_file(path, error), "--config-file default: there is no file '", path.string(),
             "', which `accelerate config` writes; name one, or ./default");
  return path.string();
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

std::vector<double> numbers_of(const Words& words, std::string_view what) {
  std::vector<double> numbers;
  for (const std::string& word : words) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), numbers.emplace_back());
    KEEL_CHECK(error == std::errc{} && end == word.data() + word.size(), what,
               " takes numbers with commas between them; '", word.substr(0, 60), "' is none");
  }
  return numbers;
}

}  // namespace keel::cli
