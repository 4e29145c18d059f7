// The micro-benchmarks: one kernel, product, codec, update, collective or allocation at a time, by Google Benchmark.
// Each runs in turn with its ceiling, so that a busy machine slows down both; the ratios are counters.
//
//   of_copy        a copy's time (memcpy by the same threads, as many bytes) over the kernel's
//   of_peak        the product's multiply-adds over those that a loop in registers does in the same time
//   over_onednn    oneDNN's time over that of keel's own product
//   of_watched     the time of allocations that a log records over that of those that none does
//
// Above 1 keel is faster than what it is compared with. Ratios are medians over the iterations of a run.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bench/micro/micro.h"

namespace keel::bench {
namespace {

void print_help() {
  std::printf(
      "bench_micro [--threads=N] [--megabytes=N] and the options of Google Benchmark:\n"
      "  --threads=N       of kernels past the cache and of products; all processors unless said otherwise\n"
      "  --megabytes=N     what a kernel past the cache reads and writes, 192 unless said otherwise\n");
  benchmark::PrintDefaultHelp();
}

// What Google Benchmark has left of the command line.
bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    int number = 0, length = 0;
    const auto is = [&](const char* format) {
      return std::sscanf(argv[i], format, &number, &length) == 1 && argv[i][length] == '\0' && number > 0;
    };
    if (is("--threads=%d%n")) {
      options.threads = number;
    } else if (is("--megabytes=%d%n")) {
      options.bytes = static_cast<std::int64_t>(number) << 20;
    } else {
      std::fprintf(stderr, "bench_micro: '%s' is no option of it; --help lists them\n", argv[i]);
      return false;
    }
  }
  return true;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv, print_help);
  Options options{default_threads(), std::int64_t{192} << 20};
  if (!read_options(argc, argv, options)) return 2;
  benchmark::AddCustomContext("threads", std::to_string(options.threads));
  add_elementwise(options);
  add_rows(options);
  add_updates(options);
  add_codecs(options);
  add_matmul(options);
  add_collectives();
  add_allocator();
  // Google Benchmark prints what is wrong with a filter.
  return benchmark::RunSpecifiedBenchmarks() == 0 ? 1 : 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  // OpenMP's idle threads, which are oneDNN's, would spin on the processors that the other contestants need. The
  // library reads this when it is loaded, so the program starts again.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
  }
  try {
    return keel::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_micro: %s\n", error.what());
    return 1;
  }
}
