// What a GPU does with keel: memory-bound kernels, products, attention, training steps, each with its ceiling.
//
//   bench_gpu OUT.jsonl                  everything, on cuda:0
//   bench_gpu OUT.jsonl --only matmul    the cases whose "group/case" contains matmul
//   bench_gpu OUT.jsonl --resume         the cases of which OUT.jsonl has no line yet
//   bench_gpu OUT.jsonl --rehearse       every kind of case once, tiny and without figures, also on emulated:0
//
// OUT.jsonl gets a line of JSON for the device and one for each case, as soon as it is known; so does standard output.
// A figure without its ceiling says little: the copy, the library's entry or the peak stands in the same line.
// Exit code 1: a case failed (its line has "error"). 2: there is no such device. 3: a case has left the device
// unusable; with --resume another process goes on behind it.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>

#include "bench/gpu/bench.h"
#include "keel/runtime/device_api.h"

namespace keel::bench {
namespace {

#ifdef KEEL_EMULATED
constexpr DeviceType kBackend = DeviceType::emulated;
#else
constexpr DeviceType kBackend = DeviceType::cuda;
#endif

int run(const GpuOptions& options) {
  if (const DeviceCount found = count_devices(kBackend); found.count == 0) {
    std::cerr << "bench_gpu: there is no GPU: " << found.why_none << '\n';
    return 2;
  }
  if (kBackend == DeviceType::emulated && !options.rehearse) {
    std::cerr << "bench_gpu: this build emulates GPUs, whose times mean nothing: only --rehearse is offered\n";
    return 2;
  }
  GpuBench bench({kBackend, 0}, options);
  bench_memory(bench);
  bench_products(bench);
  bench_attention(bench);
  bench_training(bench);
  return bench.any_failed() ? 1 : 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  keel::bench::GpuOptions options;
  CLI::App app("Measures keel on a GPU: kernels, products, attention and training steps, each with its ceiling.");
  app.add_option("out", options.out, "file for the lines of JSON")->required();
  app.add_option("--only", options.only, "part of group/case: memory, matmul, attention, training/gpt2 124M, ...");
  app.add_option("--seconds-limit", options.seconds_limit, "no case begins later")->check(CLI::NonNegativeNumber);
  app.add_flag("--resume", options.resume, "keep OUT.jsonl, and leave out the cases that it names");
  app.add_flag("--quick", options.quick, "fewer cases and rounds");
  app.add_flag("--rehearse", options.rehearse, "tiny shapes, each once, no figures");
  CLI11_PARSE(app, argc, argv);
  try {
    return keel::bench::run(options);
  } catch (const keel::bench::DeviceLost& error) {
    std::cerr << "bench_gpu: " << error.what() << '\n';
    return 3;
  } catch (const std::exception& error) {
    std::cerr << "bench_gpu: " << error.what() << '\n';
    return 1;
  }
}
