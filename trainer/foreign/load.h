#pragma once
// Configurations from whatever file there is: keel's own, or another trainer's.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/trainer/config.h"
#include "keel/trainer/foreign/translation.h"

namespace keel {

struct ConfigFiles {
  std::filesystem::path main;
  std::filesystem::path deepspeed = {};   // DeepSpeed's JSON beside it; empty: none
  std::filesystem::path accelerate = {};  // Accelerate's file beside it; empty: none
  int ranks = 0;                          // that train; 0: as many as the file says, or one
};

// As load_config(). A key of another trainer's that is refused is an Error with a line for each; a file of keel's own
// is read as ever.
Config load_any_config(const std::shared_ptr<const ConfigKeys>& keys, const ConfigFiles& files,
                       const std::vector<std::string>& overrides = {}, std::string_view source = "command line",
                       std::vector<std::string>* notes = nullptr);

// What becomes of the keys of a file of another trainer's, whether or not some are refused. An Error where its kind is
// not known.
ForeignTranslation translate_file(const std::shared_ptr<const ConfigKeys>& keys, const std::filesystem::path& file,
                                  const std::vector<std::string>& overrides, int ranks);
// The same as a configuration, which is checked as a whole.
Config config_of(const std::shared_ptr<const ConfigKeys>& keys, const ForeignTranslation& translation,
                 const std::filesystem::path& file, const std::vector<std::string>& overrides,
                 std::string_view source = "command line", std::vector<std::string>* notes = nullptr);
// What the file says of starting ranks; nothing where it is no file of another trainer's, or cannot be read.
ForeignLaunch launch_of(const std::filesystem::path& file);

}  // namespace keel
