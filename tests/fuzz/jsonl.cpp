#include "keel/data/jsonl.h"

#include "keel/data/json_line.h"
#include "keel/runtime/json.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace keel::fuzz {
namespace {

// The whole text as one line: what this reader takes, another one takes, too.
void compare(std::string_view text) {
  JsonLineReader reader;
  try {
    reader.read(text);
  } catch (const JsonFault& fault) {
    require(fault.at <= text.size(), "what is wrong lies inside the text");
    return;
  }
  require(accepts([&] { require(Json::parse(text).is_object(), "a line is an object"); }),
          "what is read as a line is JSON");
}

}  // namespace

bool jsonl(std::string_view bytes) {
  compare(bytes);
  return accepts([&] {
    const DatasetPtr data = open_jsonl(write_scratch("lines.jsonl", bytes), {.cache_folder = scratch().path()});
    for (std::int64_t i = 0; i < data->size(); ++i) (void)data->example(i);
  });
}

}  // namespace keel::fuzz
