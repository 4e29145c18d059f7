// A text encoded by one thread, on request: "step N" on standard input encodes it N times and answers with the seconds
// as JSON, as bench/peers/tokenizer.py does. bench/compare_tokenizer.py races the two.
//
// usage: bench_tokenizer TOKENIZER TEXT ids|offsets   a folder or file of a tokenizer; each line of the text is a
// document

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/find_tokenizer.h"

namespace keel::bench {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t feed = text.find('\n');
    const std::size_t end = feed == std::string_view::npos ? text.size() : feed + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

int serve(const std::string& name, const std::string& path, std::string_view what) {
  const TokenizerPtr tokenizer = find_tokenizer(name, "");
  const std::string text = read_text_file(path);
  const std::vector<std::string_view> lines = lines_of(text);
  const auto encode = [&] {
    std::size_t tokens = 0;
    for (const std::string_view line : lines)
      tokens += what == "ids" ? tokenizer->encode(line).size()
                              : tokenizer->encode(TextPair{line, {}}, {.specials = false}).size();
    return tokens;
  };
  std::string word;
  for (int steps = 0; std::cin >> word && word == "step" && std::cin >> steps;) {
    std::size_t tokens = 0;
    const double seconds = seconds_of([&] {
      for (int i = 0; i < steps; ++i) tokens = encode();
    });
    std::cout << nlohmann::json{{"steps", steps}, {"seconds", seconds}, {"tokens", tokens}, {"bytes", text.size()}}
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: bench_tokenizer TOKENIZER TEXT ids|offsets\n";
    return 2;
  }
  return keel::bench::serve(argv[1], argv[2], argv[3]);
}
