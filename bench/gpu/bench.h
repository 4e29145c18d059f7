#pragma once
// What the groups of bench_gpu share: device and contexts, random operands, timing in turn, and the lines of the
// report.

#include <cstdint>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/tensor.h"

namespace keel::bench {

using Json = nlohmann::ordered_json;

struct GpuOptions {
  std::string out;           // JSON lines go here
  std::string only;          // part of "group/case"
  double seconds_limit = 0;  // no case begins later than this; 0: no limit
  bool quick = false;        // fewer cases and rounds
  bool rehearse = false;     // tiny shapes, each case once, and no figures: proves that everything runs
  bool resume = false;       // `out` stays, and the cases that it names are left out
};

// A case has left the device unusable: only another process can go on.
class DeviceLost : public Error {
  using Error::Error;
};

// Work that a case queues on a context's stream.
struct Contestant {
  Context context;
  std::function<void()> run;
};

class GpuBench {
 public:
  GpuBench(Device device, const GpuOptions& options);

  const GpuOptions& options() const { return options_; }
  const Context& plain() const { return plain_; }          // keel's own kernels
  const Context& automatic() const { return automatic_; }  // and the libraries' where there are some
  // Dense arithmetic of the card in bf16 as its maker states it, in FLOP/s; 0 where the name is not in the table.
  double peak() const { return peak_; }

  // Runs a case, unless it is not wanted, is done or the time is over. Writes a line when it begins, so that one that
  // ends the program is known, and then its line: what `measure` returns, or the error that it throws; and what the
  // libraries' entries had to say, such as that keel's own kernel took their place. Throws DeviceLost.
  void run(std::string_view group, const std::string& name, const std::function<Json()>& measure);
  bool any_failed() const { return failed_; }

  // Median seconds of one run of each contestant. They run in turn, in groups of at least `shortest` seconds, after a
  // warm-up.
  std::vector<double> race(const std::vector<Contestant>& contestants, double shortest = 0.05) const;

  // Uniform in [low, high). Large tensors repeat a block of 4 Mi random numbers.
  Tensor random(const Context& context, const Dims& shape, DType dtype, double low = -1, double high = 1);
  // i32, in [0, limit). Small numbers are much more frequent than large ones, as tokens of a text are.
  Tensor random_tokens(const Context& context, const Dims& shape, std::int64_t limit);
  // The same memory for another context of the device. `tensor` must live as long as the result.
  static Tensor shared_with(const Context& context, const Tensor& tensor);

 private:
  void write(const Json& line);
  double seconds_since_start() const;

  GpuOptions options_;
  std::vector<std::string> log_;  // of automatic_, since the running case began: which entry the work really went to
  Context host_, plain_, automatic_;
  double peak_ = 0;
  std::set<std::string> done_;  // "group/case"
  std::ofstream file_;
  double start_;
  std::uint64_t seed_ = 0;
  bool failed_ = false;
};

// Kernels that the memory should limit, as a share of the bandwidth of a copy that runs in turn with them.
void bench_memory(GpuBench& bench);
// Matrix products and attention: keel's own kernels and the libraries' entries.
void bench_products(GpuBench& bench);
void bench_attention(GpuBench& bench);
// Whole training steps.
void bench_training(GpuBench& bench);

}  // namespace keel::bench
