#include "keel/data/safetensors.h"

#include "keel/nn/tensor_parts.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

bool keel::fuzz::safetensors(std::string_view bytes) {
  static const Context context = Context::create({.threads = 1});
  const std::string path = write_scratch("weights.safetensors", bytes);
  return accepts([&] {
    const SafetensorsFile file(path);
    std::size_t data = 0;
    for (const auto& [name, view] : file.views(context)) {
      require(file.contains(name) && file.entry(name).bytes == view.bytes(), "an entry has the bytes of its tensor");
      for (std::size_t i = 0; i < view.bytes(); ++i) data += static_cast<std::size_t>(view.raw()[i]);
    }
    require(data <= 255 * bytes.size(), "no number lies outside the file");
    parse_parts(file.views(context));
  });
}
