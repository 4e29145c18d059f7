#pragma once
// A folder to train in: a text, configurations that take moments, and the program started there.

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/cli/program.h"

namespace keel::testing {

class Sandbox {
 public:
  // text.yaml and addition.yaml leave their runs in the folders text and addition.
  Sandbox() {
    std::string text;
    for (int i = 0; i < 30; ++i) text += concat("The quick brown fox ", i, " jumps over the lazy dog.\n");
    write("corpus.txt", text);
    write("text.yaml",
          "steps: 12\n"
          "model: {layers: 1, heads: 2, width: 32, block: 16}\n"
          "data: {type: text, path: corpus.txt}\n"
          "batch: {global: 4, micro: 2}\n"
          "optimizer: {lr: 3e-3}\n"
          "scheduler: {type: constant, warmup: 4}\n"
          "eval: {every: 6}\n"
          "checkpoint: {every: 6, keep: 2}\n"
          "log: {every: 1}\n"
          "threads: 1\n");
    write("addition.yaml",
          "steps: 8\n"
          "model: {layers: 1, heads: 2, width: 32, block: 9}\n"
          "data: {type: addition, digits: 2}\n"
          "batch: {global: 8}\n"
          "eval: {samples: 20}\n"
          "threads: 1\n");
  }

  std::string operator/(std::string_view name) const { return folder_ / name; }
  Outcome keel(const std::string& arguments, const std::string& before = "true") const {
    return run_keel(arguments, folder_.path(), before);
  }
  RunningProgram start(const std::string& arguments) const { return RunningProgram(arguments, folder_.path()); }

  void write(std::string_view name, std::string_view text) const {
    // Closed in what another thread starts meanwhile ("e"): a script that somebody has open to write cannot be run.
    const std::string path = *this / name;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wbe"), &std::fclose);
    KEEL_CHECK(file != nullptr && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size(), "cannot write ",
               path);
  }
  std::string read(std::string_view name) const { return read_text_file(*this / name); }
  bool has(std::string_view name) const { return std::filesystem::exists(*this / name); }

  // Every file with its bytes, and every folder as "name/".
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      const std::string name = std::filesystem::relative(entry.path(), folder_.path()).string();
      if (entry.is_directory()) found[name + "/"] = "";
      else found[name] = read(name);
    }
    return found;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace keel::testing
