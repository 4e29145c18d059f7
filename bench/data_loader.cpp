// How fast batches come, beside the step that eats them: the smallest example model (examples/addition.yaml: 2 layers,
// width 128, 32 rows of 12 tokens), its forward and backward pass without an update, so that the ratio is rather too
// small. Batches are loaded ahead by PrefetchLoader, by one worker and by several: windows of tokens, sums that are
// made up, and documents of JSON lines and of a columnar file, packed into rows.
//
// usage: bench_data_loader FOLDER [WORKERS] [ROUNDS]   files are made in FOLDER and removed

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <numeric>

#include "bench/measure.h"
#include "keel/autograd/backward.h"
#include "keel/data/addition.h"
#include "keel/data/columns.h"
#include "keel/data/jsonl.h"
#include "keel/data/loader.h"
#include "keel/data/packing.h"
#include "keel/data/prefetch.h"
#include "keel/data/token_batch.h"
#include "keel/models/gpt.h"
#include "keel/nn/flat_buffer.h"
#include "keel/runtime/file.h"
#include "keel/runtime/random.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kRows = 32, kBlock = 12, kVocabulary = 14;
constexpr int kBatches = 400, kSteps = 20;
using SourcePtr = std::shared_ptr<const BatchSource>;

double seconds_of_a_step(const Context& context, const Batch& batch) {
  GptOptions options;
  options.layers = 2;
  options.heads = 4;
  options.width = 128;
  options.block = kBlock;
  options.vocabulary = kVocabulary;
  Gpt model(options);
  std::vector<FlatBuffer> buffers = materialize(model, context, {});
  const auto step = [&] {
    Forward pass;
    pass.training = true;
    backward(model.loss(batch[kInputIds], batch[kLabels], pass).loss);
    for (FlatBuffer& buffer : buffers) buffer.zero_grad();
  };
  step();
  return seconds_of([&] {
           for (int i = 0; i < kSteps; ++i) step();
         }) /
         kSteps;
}

double seconds_of_a_batch(const SourcePtr& source, int workers) {
  PrefetchLoader loader(source, 0, {}, 2 * workers, {}, workers);
  loader.next();
  return seconds_of([&] {
           for (int i = 0; i < kBatches; ++i) loader.next();
         }) /
         kBatches;
}

// Documents of 2 to 11 tokens.
std::string write_documents(const std::string& folder) {
  const std::string path = folder + "/bench_data_loader.jsonl";
  AtomicFile file(path);
  std::string line;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    line = "{\"input_ids\": [";
    const std::uint64_t length = 2 + mix64(i) % 10;
    for (std::uint64_t t = 0; t < length; ++t)
      line += (t == 0 ? "" : ", ") + std::to_string(mix64(100 * i + t) % kVocabulary);
    file.write(line + "]}\n");
  }
  file.commit();
  return path;
}

SourcePtr packed(const Context& context, const DatasetPtr& documents) {
  const DatasetPtr rows = pack(documents, {.length = kBlock});
  return make_source(context, rows, shuffled(rows->size(), {.rows = kRows, .last = LastRows::join}), next_tokens());
}

int run(const std::string& folder, int workers, int rounds) {
  const Context context = Context::create();
  std::vector<std::uint32_t> tokens(1 << 20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint32_t>(mix64(i) % kVocabulary);
  const std::string lines = write_documents(folder), columns = folder + "/bench_data_loader.keel";
  const DatasetPtr jsonl = open_jsonl(lines);
  write_columns(columns, *jsonl);
  const std::pair<const char*, SourcePtr> sources[] = {
      {"windows of tokens", std::make_shared<RandomWindowLoader>(context, Tokens(tokens, kVocabulary, "made up"),
                                                                 WindowOptions{.rows = kRows, .block = kBlock})},
      {"sums", std::make_shared<ExampleLoader>(AdditionTask(3).training_loader(context, kRows, 1))},
      {"packed JSON lines", packed(context, jsonl)},
      {"packed columns", packed(context, open_columns(columns))}};
  std::filesystem::remove(lines);
  std::filesystem::remove(columns);
  for (const auto& [name, source] : sources) {
    std::vector<double> step, one, several;
    for (int round = 0; round < rounds; ++round) {
      step.push_back(seconds_of_a_step(context, source->load_all(0)));
      one.push_back(seconds_of_a_batch(source, 1));
      several.push_back(seconds_of_a_batch(source, workers));
    }
    std::printf("%-18s step %7.3f ms; a batch %7.4f ms by one worker (%6.1f times as fast), %7.4f by %d (%6.1f)\n",
                name, 1e3 * median(step), 1e3 * median(one), median(step) / median(one), 1e3 * median(several), workers,
                median(step) / median(several));
  }
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: bench_data_loader FOLDER [WORKERS] [ROUNDS]\n";
    return 2;
  }
  try {
    return keel::bench::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 2, argc > 3 ? std::atoi(argv[3]) : 5);
  } catch (const std::exception& error) {
    std::cerr << "bench_data_loader: " << error.what() << '\n';
    return 1;
  }
}
