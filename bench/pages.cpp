// AdamW whose state lies in a file beside the same disk by itself: as many bytes read and written in blocks of 1 MiB,
// by as many threads.
//
// usage: bench_pages FOLDER [MiB of state] [threads] [seconds]; medians, and the quickest of each

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

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

void compare(const std::string& folder, std::int64_t mebibytes, int threads, double seconds) {
  RawDisk disk(folder, mebibytes, threads);
  Updates in_file(folder, mebibytes, threads, Residence::file),
      in_memory(folder, mebibytes, threads, Residence::device);
  std::vector<double> times[3];
  for (double spent = 0; spent < seconds || times[0].size() < 5;) {
    times[0].push_back(seconds_of([&] { disk(); }));
    times[1].push_back(seconds_of([&] { in_file(); }));
    times[2].push_back(seconds_of([&] { in_memory(); }));
    in_file.prepare();
    in_memory.prepare();
    for (const std::vector<double>& each : times) spent += each.back();
  }
  const auto rate = [&](double time) { return 2 * static_cast<double>(mebibytes) / 1024 / time; };
  std::printf("%lld MiB of state, %d threads, %s\n", static_cast<long long>(mebibytes), threads,
              disk.is_direct() ? "past the system's cache" : "through the system's cache");
  const char* const names[] = {"the disk by itself", "update, state in a file", "update, state in memory"};
  for (int i = 0; i < 3; ++i) {
    const double least = *std::min_element(times[i].begin(), times[i].end());
    std::printf("%-24s %9.1f ms %6.2f GiB/s   at best %9.1f ms %6.2f GiB/s\n", names[i], 1e3 * median(times[i]),
                rate(median(times[i])), 1e3 * least, rate(least));
  }
  std::printf("the update in a file has %.1f %% of the disk's rate\n", 100 * median(times[0]) / median(times[1]));
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_pages FOLDER [MiB of state] [threads] [seconds]\n");
    return 2;
  }
  keel::bench::compare(argv[1], argc > 2 ? std::atoll(argv[2]) : 512, argc > 3 ? std::atoi(argv[3]) : 2,
                       argc > 4 ? std::atof(argv[4]) : 20);
}
