// A model that is larger than the memory of its process: it trains from files, to the bits of one that has all.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>

#include "keel/nn/tensor_parts.h"
#include "tests/dist/parallel/memory_group.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr std::int64_t kMebibyte = 1 << 20, kMemory = 56 * kMebibyte;

// Bytes of private memory that may be written, which RLIMIT_DATA counts.
std::int64_t data_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmData:") {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return 1024 * kibibytes;
    }
  return 0;
}

// Weights, gradients and AdamW's state, of 24 units of 1 MiB each, are 96 MiB.
std::uint64_t train_large(const ShardingOptions& sharding) {
  constexpr std::int64_t kSide = 512;
  UnitNet net(kSide, 24);
  ShardedOptions options;
  options.sharding = sharding;
  const Context context = testing::context(1);
  Sharded engine(net, context, make_adamw(), options);
  for (int step = 0; step < 2; ++step) {
    engine.backward(mean(square(net(uniform_tensor(context, {2, kSide}, static_cast<std::uint64_t>(step))))));
    engine.step(1e-3).get();
  }
  std::uint64_t sum = 0;
  for (const TensorPart& part : engine.weights()) sum += fingerprint({part});
  for (const TensorPart& part : engine.optimizer_state()) sum += fingerprint({part});
  return sum;
}

// With so much more than the process has when it is called.
void limit_data() {
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = static_cast<rlim_t>(data_of_process() + kMemory);
  ::setrlimit(RLIMIT_DATA, &limit);
}

// What a process of its own makes of it, which is limited first; or what stopped it.
std::string trained_in_process(const ShardingOptions& sharding, const std::function<void()>& limit) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string told;
    try {
      limit();
      told = concat(train_large(sharding));
    } catch (const std::exception& error) { told = error.what(); }
    const bool is_written = ::write(ends[1], told.data(), told.size()) == static_cast<ssize_t>(told.size());
    ::_exit(is_written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string told;
  std::array<char, 256> piece{};
  for (ssize_t count = 0; (count = ::read(ends[0], piece.data(), piece.size())) > 0;)
    told.append(piece.data(), static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? told : concat("killed by signal ", WTERMSIG(status));
}

ShardingOptions all_in_files_of(const TemporaryFolder& folder) {
  ShardingOptions files;
  files.offload_optimizer = files.offload_parameters = files.offload_gradients = Residence::file;
  files.offload_folder = folder.path();
  files.offload_budget = 12 * kMebibyte;
  files.offload_threads = 2;  // RLIMIT_DATA counts the room for their stacks, 8 MiB each
  return files;
}

TEST(LargerThanMemory, AModelTrainsFromFilesToTheBitsOfOneThatHasAll) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more memory than the limit leaves";
#endif
  const TemporaryFolder folder;
  const std::string in_memory = trained_in_process({}, limit_data);
  EXPECT_NE(in_memory.find("out of memory"), std::string::npos) << "the limit does not hold: " << in_memory;
  EXPECT_EQ(trained_in_process(all_in_files_of(folder), limit_data), concat(train_large({})));
}

// The system counts pages that were written to, of the processor's memory and of its own cache.
TEST(LargerThanMemory, AModelTrainsFromFilesInAGroupOfProcessesThatMayHaveLess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more memory than the limit leaves";
#endif
  std::string why_not;
  const std::unique_ptr<MemoryGroup> group = MemoryGroup::make(kMemory, why_not);
  if (!group) GTEST_SKIP() << why_not << "; the test above limits a process instead";
  const TemporaryFolder folder;
  const auto join = [&] { KEEL_CHECK(group->join(), "the process may not join its group"); };
  EXPECT_EQ(trained_in_process({}, join), concat("killed by signal ", SIGKILL)) << "the limit does not hold";
  EXPECT_EQ(trained_in_process(all_in_files_of(folder), join), concat(train_large({})));
}

}  // namespace
}  // namespace keel
