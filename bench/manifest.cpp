// How the cost of a checkpoint's manifest grows with the ranks. N ranks are simulated, one after the other by the
// threads of this process: each writes what it has of some tensors and says so, the first one makes the manifest and
// commits; then N - 1 ranks read what they own by it. Prints seconds and how many files were opened.
//
// usage: bench_manifest FOLDER [RANKS...]

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/checkpoint/extent_writer.h"
#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/comm/schedule.h"
#include "tests/dist/checkpoint/count_opens.h"

namespace keel::bench {
namespace {

constexpr int kTensors = 12;
constexpr const char* kSections[] = {"weights", "optimizer"};

// So many threads that disks flush several files at a time.
void for_each_rank(int count, const std::function<void(int, const Context&)>& work) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 32; ++t)
    threads.emplace_back([&] {
      const Context context = Context::create({.threads = 1});
      for (int rank = next++; rank < count; rank = next++) work(rank, context);
    });
}

// What a rank of n has of each tensor, as one that shards each of them. A tensor has 7 elements for each of `ranks`.
TensorParts parts_of(int rank, int n, int ranks, const Context& context) {
  const Dims shape = {ranks, 7};
  const Span span = part({0, product(shape)}, n, rank);
  TensorParts parts;
  for (int t = 0; t < kTensors; ++t)
    parts.push_back({concat("t", t), shape, span.begin, zeros(context, {span.count()})});
  return parts;
}

void print(const std::string& what, const std::function<void()>& work) {
  const std::int64_t before = testing::opened_files();
  const double seconds = seconds_of(work);
  std::cout << what << ": " << seconds << " s, " << testing::opened_files() - before << " files opened" << std::endl;
}

void write_by(int ranks, const std::string& folder) {
  const std::atomic<bool> cancelled = false;
  for_each_rank(ranks, [&](int rank, const Context& context) {
    ManifestJoin join;
    for (const char* section : kSections)
      join.add(write_section(
          folder, {section, concat(section, '-', rank, ".safetensors"), parts_of(rank, ranks, ranks, context)},
          cancelled));
    write_part(folder, rank, std::move(join).part());
  });
}

void measure(const std::string& path, int ranks) {
  AtomicFolder made(path, IfExists::replace);
  print(concat(ranks, " ranks write"), [&] { write_by(ranks, made.temporary()); });
  print("  the first one makes the manifest and commits", [&] { commit_parts(made, ranks, Json::object()); });
  Manifest manifest;
  print("  it reads the manifest", [&] { manifest = read_manifest(path); });
  print(concat("  ", ranks - 1, " ranks read what they own"), [&] {
    for_each_rank(ranks - 1, [&](int rank, const Context& context) {
      const ExtentReader reader(path, manifest);
      for (const char* section : kSections) reader.fill(section, parts_of(rank, ranks - 1, ranks, context));
    });
  });
  std::cout << "  it has " << manifest.extents.size() << " extents in " << manifest.files.size() << " files, and "
            << std::filesystem::file_size(path + "/manifest.json") << " bytes" << std::endl;
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_manifest FOLDER [RANKS...]\n";
    return 2;
  }
  std::vector<int> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(std::max(2, std::atoi(argv[i])));
  if (counts.empty()) counts = {64, 256, 1024};
  for (const int count : counts) keel::bench::measure(std::string(argv[1]) + "/many-ranks", count);
}
