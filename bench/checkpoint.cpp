// What a checkpoint costs, beside what it could cost at least, in the same run: the stall of an asynchronous save and
// copies in the memory of hosts beside a memcpy of their bytes; writing, and making a checkpoint of such a copy, beside
// plain writes and fsync of as many; loading by other ranks beside plain reads of the same files. Files are read from
// the disk: the system is told to forget them before. The rank that saves has one thread, and then one for each
// processor.
//
// usage: bench_checkpoint FOLDER [MIB] [ROUNDS]

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/checkpoint/load.h"
#include "keel/dist/checkpoint/memory_copies.h"
#include "keel/dist/checkpoint/memory_promotion.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/nn/layers.h"
#include "keel/optim/elementwise.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::size_t kPiece = std::size_t{16} << 20;

struct Layer : Module {
  Linear linear{kWidth, kWidth};
  void visit(Visitor& v) override { v("linear", linear); }
  bool is_unit() const override { return true; }
};
struct Net : Module {
  explicit Net(std::size_t count) : layers(count) {}
  std::vector<Layer> layers;
  void visit(Visitor& v) override { v("layers", layers); }
};

ShardedOptions stage(int number) {
  ShardedOptions options;
  options.sharding.stage = number;
  return options;
}

std::size_t bytes_in(const std::string& folder) {
  std::size_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) sum += entry.file_size();
  return sum;
}

void forget(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

// As dd bs=16M conv=fsync does.
void write_plainly(const std::string& path, const std::vector<std::byte>& piece, std::size_t bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = ::write(file, piece.data(), std::min(piece.size(), bytes - done));
    if (count <= 0) std::abort();
    done += static_cast<std::size_t>(count);
  }
  if (::fsync(file) != 0) std::abort();
  ::close(file);
}

void read_plainly(const std::string& folder, std::vector<std::byte>& piece) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    while (::read(file, piece.data(), piece.size()) > 0) {}
    ::close(file);
  }
}

std::int64_t peak_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

void report(const char* what, double seconds, double floor, std::size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  std::cout << what << ": " << 1e3 * seconds << " ms, " << gigabytes / seconds << " GB/s; at least " << 1e3 * floor
            << " ms, " << gigabytes / floor << " GB/s; ratio " << seconds / floor << std::endl;
}

void copy_plainly(const std::vector<Section>& sections, const std::vector<Section>& to) {
  for (std::size_t s = 0; s < sections.size(); ++s)
    for (std::size_t p = 0; p < sections[s].parts.size(); ++p) {
      const Tensor& from = sections[s].parts[p].values;
      if (from.defined() && from.bytes() > 0) std::memcpy(to[s].parts[p].values.raw(), from.raw(), from.bytes());
    }
}

// So many hosts of one rank each; each has a folder of its own in /dev/shm.
void race_memory(int hosts, const std::string& folder, std::size_t layers, int rounds) {
  const std::string memory = concat("/dev/shm/keel-bench-", ::getpid()), path = folder + "/promoted",
                    plain = folder + "/plain";
  std::vector<int> nodes;
  for (int host = 0; host < hosts; ++host) nodes.push_back(host);
  for (const int host : nodes) std::filesystem::create_directories(concat(memory, '/', host));
  std::vector<double> copy, take, promote, plain_write;
  std::size_t bytes = 0;
  run_ranks(hosts,
            [&](Communicator& ranks) {
              const bool is_first = ranks.rank() == 0;
              Net net(layers);
              Sharded engine(net, Context::create({.threads = 1}), ranks, make_adamw({}), stage(2));
              const MemoryFolder place(concat(memory, '/', ranks.rank()), folder, MemoryFolder::new_session());
              MemoryCopies copies(engine, ranks, place);
              const std::vector<Section> sections = sections_of(engine, number_files(engine, ranks));
              const Snapshot target(sections);
              if (is_first) bytes = static_cast<std::size_t>(bytes_of(sections));
              std::vector<std::byte> piece(kPiece, std::byte{1});
              for (int round = 0; round < rounds; ++round) {
                ranks.barrier();
                const double copied = seconds_of([&] { copy_plainly(sections, target.sections()); });
                ranks.barrier();
                const double taken = seconds_of([&] {
                  if (const std::string failure = copies.take(round + 1, {}); !failure.empty()) throw Error(failure);
                });
                double written = 0;
                if (is_first) {
                  written = seconds_of([&] { write_plainly(plain, piece, bytes * static_cast<std::size_t>(hosts)); });
                  std::filesystem::remove(plain);
                }
                ranks.barrier();
                const double promoted = seconds_of([&] {
                  promote_copy(
                      place, ranks, -1, rounds + 1, [&](std::int64_t) { return path; }, [](std::string_view) {});
                });
                if (!is_first) continue;
                copy.push_back(copied);
                take.push_back(taken);
                plain_write.push_back(written);
                promote.push_back(promoted);
              }
              copies.remove();
            },
            {.nodes = nodes});
  std::filesystem::remove_all(memory);
  std::filesystem::remove_all(path);
  const std::string by = hosts == 1 ? " of one host" : concat(" of ", hosts, " hosts, by a rank on each");
  report(("a copy in the memory" + by).c_str(), median(take), median(copy), bytes);
  report(("a checkpoint made of the copy" + by).c_str(), median(promote), median(plain_write),
         bytes * static_cast<std::size_t>(hosts));
}

// By one rank with so many threads; 0: one for each processor. Leaves a folder "at-once". Returns the bytes of a save.
std::size_t race_saves(int threads, const std::string& folder, std::size_t layers, int rounds) {
  const std::string at_once = folder + "/at-once", beside = folder + "/beside", plain = folder + "/plain";
  const std::vector<std::byte> piece(kPiece, std::byte{1});
  std::vector<double> stall, copy, write, plain_write;
  std::size_t bytes = 0;
  run_ranks(1, [&](Communicator& ranks) {
    Net net(layers);
    const Context context = Context::create({.threads = threads});
    threads = context.threads();
    Sharded engine(net, context, ranks, make_adamw({}), stage(0));
    AsyncSave save(engine, ranks);
    const std::vector<Section> sections = sections_of(engine, number_files(engine, ranks));
    const Snapshot target(sections);
    bytes = static_cast<std::size_t>(bytes_of(sections));
    for (int round = 0; round < rounds; ++round) {
      copy.push_back(seconds_of([&] { copy_plainly(sections, target.sections()); }));
      stall.push_back(seconds_of([&] { save.begin(beside, {}); }));
      save.finish();
      plain_write.push_back(seconds_of([&] { write_plainly(plain, piece, bytes); }));
      std::filesystem::remove(plain);
      write.push_back(seconds_of([&] { save_checkpoint(at_once, engine, ranks, {}); }));
    }
  });
  std::filesystem::remove_all(beside);
  std::cout << threads << (threads == 1 ? " thread\n" : " threads\n");
  report("  stall of an asynchronous save", median(stall), median(copy), bytes);
  report("  a save", median(write), median(plain_write), bytes);
  std::cout << "  the stall is " << 100 * median(stall) / median(write) << " % of a save" << std::endl;
  return bytes;
}

int run(const std::string& folder, std::size_t mebibytes, int rounds) {
  const std::size_t layers = std::max<std::size_t>(1, (mebibytes << 20) / (12 * kWidth * (kWidth + 1)));
  const std::string at_once = folder + "/at-once";
  std::vector<std::byte> piece(kPiece, std::byte{1});
  std::vector<double> load, plain_read;
  race_saves(1, folder, layers, rounds);
  const std::size_t bytes = race_saves(0, folder, layers, rounds);
  run_ranks(4, [&](Communicator& ranks) {
    Net net(layers);
    Sharded engine(net, Context::create({.threads = 1}), ranks, make_adamw({}), stage(3));
    save_checkpoint(at_once, engine, ranks, {});
  });
  run_ranks(3, [&](Communicator& ranks) {
    Net net(layers);
    Sharded engine(net, Context::create({.threads = 1}), ranks, make_adamw({}), stage(3));
    const bool is_first = ranks.rank() == 0;
    for (int round = 0; round < rounds; ++round) {
      if (is_first) {
        forget(at_once);
        plain_read.push_back(seconds_of([&] { read_plainly(at_once, piece); }));
        forget(at_once);
      }
      ranks.barrier();
      const double seconds = seconds_of([&] {
        load_checkpoint(at_once, broadcast_manifest(is_first ? read_manifest(at_once) : Manifest(), ranks), engine,
                        ranks);
      });
      if (is_first) load.push_back(seconds);
    }
  });
  report("loading a checkpoint of 4 ranks by 3", median(load), median(plain_read), bytes_in(at_once));
  for (const int hosts : {1, 2}) race_memory(hosts, folder, layers, rounds);
  std::cout << "peak resident: " << static_cast<double>(peak_resident()) / (1 << 20)
            << " MiB, of which a checkpoint has " << static_cast<double>(bytes) / (1 << 20) << std::endl;
  std::filesystem::remove_all(at_once);
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_checkpoint FOLDER [MIB] [ROUNDS]\n";
    return 2;
  }
  return keel::bench::run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024,
                          argc > 3 ? std::atoi(argv[3]) : 5);
}
