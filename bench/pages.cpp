// AdamW whose state lies in a file beside the same disk by itself: as many bytes read and written in blocks of 1 MiB,
// by as many threads, and by one as `dd` does.
//
// usage: bench_pages FOLDER [MiB of state] [threads] [seconds]; medians, the quickest of each, and what the processors
// work for it. Rates are compared within a round.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "bench/measure.h"
#include "keel/autograd/functions.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kSide = 1024, kMebibyte = 1 << 20, kStatesOfUnit = 8;  // MiB, two states in fp32

struct Units : Module {
  struct Layer : Module {
    Linear linear{kSide, kSide, false};
    Variable operator()(const Variable& x) const {
      const Scope scope(*this);
      return linear(x);
    }
    void visit(Visitor& v) override { v("linear", linear); }
    bool is_unit() const override { return true; }
  };
  explicit Units(std::int64_t count) : layers(static_cast<std::size_t>(count)) {}
  std::vector<Layer> layers;
  Variable operator()(const Tensor& x) const {
    Variable y(x);
    for (const Layer& layer : layers) y = layer(y);
    return y;
  }
  void visit(Visitor& v) override { v("layers", layers); }
};

// What the disk does: each thread reads a block and writes it again, as an update has to.
class RawDisk {
 public:
  RawDisk(const std::string& folder, std::int64_t mebibytes, int threads)
      : file_(make_scratch_file(folder)), blocks_(mebibytes), threads_(threads) {
    file_->reserve(0, static_cast<std::uint64_t>(blocks_ * kMebibyte));
    over([this](std::int64_t block, std::span<std::byte> memory) { file_->write(place(block), memory); });
  }
  void operator()() {
    over([this](std::int64_t block, std::span<std::byte> memory) {
      file_->read(place(block), memory);
      file_->write(place(block), memory);
    });
  }
  bool is_direct() const { return file_->alignment() > 1; }

 private:
  static std::uint64_t place(std::int64_t block) { return static_cast<std::uint64_t>(block * kMebibyte); }
  template <class F>
  void over(const F& f) {
    std::vector<std::thread> team;
    for (int t = 0; t < threads_; ++t)
      team.emplace_back([this, t, &f] {
        const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, kMebibyte), &std::free);
        std::memset(memory.get(), t, kMebibyte);
        for (std::int64_t block = t; block < blocks_; block += threads_)
          f(block, {static_cast<std::byte*>(memory.get()), static_cast<std::size_t>(kMebibyte)});
      });
    for (std::thread& thread : team) thread.join();
  }

  std::unique_ptr<ScratchFile> file_;
  std::int64_t blocks_;
  int threads_;
};

// Steps of which only the update counts.
class Updates {
 public:
  Updates(const std::string& folder, std::int64_t mebibytes, int threads, Residence residence)
      : context_(testing::context(1)), net_(mebibytes / kStatesOfUnit) {
    ShardedOptions options;
    options.sharding.offload_optimizer = residence;
    options.sharding.offload_folder = folder;
    options.sharding.offload_threads = threads;
    options.sharding.offload_budget = 8 * kStatesOfUnit * kMebibyte;
    engine_ = std::make_unique<Sharded>(net_, context_, make_adamw(), options);
    prepare();
  }
  void prepare() { engine_->backward(mean(net_(testing::uniform_tensor(context_, {1, kSide}, 1)))); }
  void operator()() { engine_->step(1e-3).get(); }
  PageTraffic traffic() const { return engine_->file_traffic(); }

 private:
  Context context_;
  Units net_;
  std::unique_ptr<Sharded> engine_;
};

// Of all processors, in this process.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// What is measured in each round.
struct Contestant {
  const char* name;
  std::function<void()> run;
  std::vector<double> times = {}, work = {};

  void take_turn() {
    const double before = processor_seconds();
    times.push_back(seconds_of([&] { run(); }));
    work.push_back(processor_seconds() - before);
  }
};

double median_ratio(const Contestant& disk, const Contestant& update) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < disk.times.size(); ++i) ratios.push_back(disk.times[i] / update.times[i]);
  return median(ratios);
}

void compare(const std::string& folder, std::int64_t mebibytes, int threads, double seconds) {
  RawDisk by_threads(folder, mebibytes, threads), by_one(folder, mebibytes, 1);
  Updates in_file(folder, mebibytes, threads, Residence::file),
      in_memory(folder, mebibytes, threads, Residence::device);
  Contestant all[] = {{"the disk, all threads", [&] { by_threads(); }},
                      {"the disk, one thread", [&] { by_one(); }},
                      {"update, state in a file", [&] { in_file(); }},
                      {"update, state in memory", [&] { in_memory(); }}};
  for (double spent = 0; spent < seconds || all[0].times.size() < 5;) {
    for (Contestant& each : all) each.take_turn();
    in_file.prepare();
    in_memory.prepare();
    for (const Contestant& each : all) spent += each.times.back();
  }
  const auto rate = [&](double time) { return 2 * static_cast<double>(mebibytes) / 1024 / time; };
  std::printf("%lld MiB of state, %d threads, %s\n", static_cast<long long>(mebibytes), threads,
              by_one.is_direct() ? "past the system's cache" : "through the system's cache");
  for (const Contestant& each : all) {
    const double least = *std::min_element(each.times.begin(), each.times.end());
    std::printf("%-24s %9.1f ms %6.2f GiB/s   at best %9.1f ms %6.2f GiB/s   processors %7.1f ms\n", each.name,
                1e3 * median(each.times), rate(median(each.times)), 1e3 * least, rate(least), 1e3 * median(each.work));
  }
  std::printf("the update in a file has %.1f %% of the disk's rate by all threads, %.1f %% of that by one\n",
              100 * median_ratio(all[0], all[2]), 100 * median_ratio(all[1], all[2]));
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_pages FOLDER [MiB of state] [threads] [seconds]\n");
    return 2;
  }
  keel::bench::compare(argv[1], argc > 2 ? std::atoll(argv[2]) : 512, argc > 3 ? std::atoi(argv[3]) : 4,
                       argc > 4 ? std::atof(argv[4]) : 20);
}
