// All-reduce among the ranks of one machine: keel over MPI, in memory that the ranks share (as gradients are), in
// memory of their own, and by messages; MPI_Allreduce; keel over threads. Interleaved.
//
// usage: MPI launcher -n N bench_comm [--seconds S] [--sizes BYTES,...] [--json]
//
// Every row is one size and dtype; the time of a call is the slowest rank's mean over a batch of calls, its median over
// batches. MPI knows no bf16, so MPI_Allreduce adds as many 16-bit integers: the same bytes, cheaper sums. The floor is
// what moving the bytes takes that no all-reduce in place can avoid, each rank reading and writing its tensor once, at
// the bandwidth that memcpy has on all ranks at a time in the same run. A ratio above 1: keel is faster.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/measure.h"
#include "keel/dist/comm/mpi_session.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "keel/runtime/error.h"

namespace keel::bench {
namespace {

struct Options {
  double seconds = 0.5;  // for each contestant, size and dtype
  std::vector<std::int64_t> sizes = {24, 1'000, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20};
  bool threads = true, json = false;
};

double seconds_of_calls(int calls, const Contestant& call) {
  return seconds_of([&] {
           for (int i = 0; i < calls; ++i) call();
         }) /
         calls;
}

// One process of the benchmark.
class Bench {
 public:
  Bench(MPI_Comm all, Options options) : all_(all), options_(std::move(options)) {
    MPI_Comm_rank(all, &rank_);
    MPI_Comm_size(all, &size_);
  }

  void run() {
    if (rank_ == 0 && !options_.json)
      std::printf("%-6s %9s %12s %12s %12s %12s %12s %12s %9s %9s\n", "dtype", "bytes", "keel us", "own us",
                  "messages us", "MPI us", "threads us", "floor us", "MPI/keel", "floor/keel");
    const auto shared = make_mpi_communicator(all_), messages = make_mpi_communicator(all_, {.shared_memory = false});
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t bytes : options_.sizes) row(*shared, *messages, dtype, bytes);
  }

 private:
  // Collective: the slowest rank's.
  double slowest(double mine) const {
    double all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, all_);
    return all;
  }
  double timed(int calls, const Contestant& call) const {
    MPI_Barrier(all_);
    return slowest(seconds_of_calls(calls, call));
  }

  void row(Communicator& shared, Communicator& messages, DType dtype, std::int64_t bytes) {
    const Context context = Context::create({.threads = 1});
    const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype));
    const Tensor x = zeros(context, {count}, dtype), from = zeros(context, {count}, dtype);
    const Tensor seen = shared.allocate(context, count, dtype, Purpose::workspace);
    kernels::fill(seen, 0);
    const MPI_Datatype type = dtype == DType::f32 ? MPI_FLOAT : MPI_UINT16_T;
    const std::map<std::string, Contestant> contestants = {
        {"keel", [&] { shared.all_reduce(seen).wait(); }},
        {"own", [&] { shared.all_reduce(x).wait(); }},
        {"messages", [&] { messages.all_reduce(x).wait(); }},
        {"mpi", [&] { MPI_Allreduce(MPI_IN_PLACE, x.raw(), static_cast<int>(count), type, MPI_SUM, all_); }},
        {"copy", [&] { std::memcpy(x.raw(), from.raw(), x.bytes()); }},
    };
    std::map<std::string, std::vector<double>> samples;
    std::map<std::string, int> calls;
    for (const auto& [name, call] : contestants) {
      timed(2, call);
      calls[name] = std::max(1, static_cast<int>(0.01 / timed(2, call)));
    }
    // Each round begins with the next contestant: after threads, which leave the ranks unevenly on the cores, the first
    // of a round is slow.
    std::vector<std::string> order;
    for (const auto& [name, call] : contestants) order.push_back(name);
    double spent = 0;
    for (int round = 0; round < 5 || spent < options_.seconds * static_cast<double>(contestants.size()); ++round) {
      for (const std::string& name : order) {
        samples[name].push_back(timed(calls[name], contestants.at(name)));
        spent += samples[name].back() * calls[name];
      }
      std::rotate(order.begin(), order.begin() + 1, order.end());
      if (options_.threads) samples["threads"].push_back(among_threads(dtype, count, calls["keel"]));
    }
    report(dtype, bytes, samples);
  }

  // In the first process, while the others sleep.
  double among_threads(DType dtype, std::int64_t count, int calls) {
    double seconds = 0;
    if (rank_ == 0) {
      std::vector<double> taken(static_cast<std::size_t>(size_));
      run_ranks(size_, [&](Communicator& comm) {
        const Context context = Context::create({.threads = 1});
        const Tensor x = zeros(context, {count}, dtype);
        const Contestant call = [&] { comm.all_reduce(x).wait(); };
        call();
        comm.barrier();
        taken[static_cast<std::size_t>(comm.rank())] = seconds_of_calls(calls, call);
      });
      seconds = *std::max_element(taken.begin(), taken.end());
    }
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(&seconds, 1, MPI_DOUBLE, 0, all_, &request);
    for (int done = 0; !done;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (!done) std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    return seconds;
  }

  void report(DType dtype, std::int64_t bytes, const std::map<std::string, std::vector<double>>& samples) const {
    if (rank_ != 0) return;
    std::map<std::string, double> us;
    for (const auto& [name, taken] : samples) us[name] = median(taken) * 1e6;
    const std::string type(name_of(dtype));
    if (options_.json) {
      const nlohmann::json line = {{"ranks", size_},         {"dtype", type},
                                   {"bytes", bytes},         {"keel_us", us["keel"]},
                                   {"own_us", us["own"]},    {"messages_us", us["messages"]},
                                   {"mpi_us", us["mpi"]},    {"threads_us", us["threads"]},
                                   {"floor_us", us["copy"]}, {"rounds", samples.at("keel").size()}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-6s %9lld %12.1f %12.1f %12.1f %12.1f %12.1f %12.1f %9.2f %9.2f\n", type.c_str(),
                  static_cast<long long>(bytes), us["keel"], us["own"], us["messages"], us["mpi"], us["threads"],
                  us["copy"], us["mpi"] / us["keel"], us["copy"] / us["keel"]);
    }
    std::fflush(stdout);
  }

  MPI_Comm all_;
  Options options_;
  int rank_ = 0, size_ = 1;
};

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  keel::bench::Options options;
  CLI::App app("All-reduce among the ranks of one machine: keel, MPI and threads, interleaved.");
  app.add_option("--seconds", options.seconds, "for each contestant, size and dtype");
  app.add_option("--sizes", options.sizes, "bytes")->delimiter(',');
  app.add_flag("!--no-threads", options.threads, "leave ranks as threads out");
  app.add_flag("--json", options.json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  keel::MpiSession session;
  try {
    keel::bench::Bench(session.all(), options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_comm: %s\n", error.what());
    session.end_all(1);
  }
}
