// The main program of tests by MPI processes: every process runs every test, with its part of the ranks.

#include <gtest/gtest.h>

#include <exception>
#include <iostream>

#include "keel/dist/comm/mpi_session.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/mpi/mpi_ranks.h"

namespace keel::testing {
namespace {

MPI_Comm all_processes = MPI_COMM_NULL;

// What each process of the program says.
std::vector<std::string> gather(const std::string& mine) {
  int n = 0, length = static_cast<int>(mine.size());
  MPI_Comm_size(all_processes, &n);
  std::vector<int> lengths(static_cast<std::size_t>(n)), begins(static_cast<std::size_t>(n) + 1);
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, all_processes);
  for (std::size_t r = 0; r < lengths.size(); ++r) begins[r + 1] = begins[r] + lengths[r];
  std::string text(static_cast<std::size_t>(begins.back()), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, text.data(), lengths.data(), begins.data(), MPI_CHAR, all_processes);
  std::vector<std::string> all;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    all.push_back(text.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(lengths[r])));
  return all;
}

// Failures of ranks that print nothing else.
class FailurePrinter : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  // Kept, as a failure is told under the lock that current_test_info() takes.
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = concat(test.test_suite_name(), '.', test.name());
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cout << concat("rank ", rank_, ": ", test_, ": ", result.file_name() ? result.file_name() : "", ':',
                        result.line_number(), ": ", result.message(), '\n')
              << std::flush;
  }

 private:
  int rank_;
  std::string test_;
};

}  // namespace

int process() {
  int rank = 0;
  MPI_Comm_rank(all_processes, &rank);
  return rank;
}
int processes() {
  int size = 0;
  MPI_Comm_size(all_processes, &size);
  return size;
}

// The program is started with 1, 2, 3, 4 and 8 processes; 5 and 6 ranks are a part of the 8.
bool has_ranks(int n) { return n == processes() || (processes() == 8 && (n == 5 || n == 6)); }
bool has_processes() { return true; }
std::string told_by_first_process(const std::string& mine) { return gather(mine).front(); }

void on_first_processes(int n, const std::function<void(MPI_Comm)>& f) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(all_processes, process() < n ? 0 : MPI_UNDEFINED, 0, &comm);
  std::exception_ptr failure;
  if (comm != MPI_COMM_NULL) {
    try {
      f(comm);
    } catch (...) { failure = std::current_exception(); }
    MPI_Comm_free(&comm);
  }
  MPI_Barrier(all_processes);
  if (failure) std::rethrow_exception(failure);
}

void on_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options) {
  if (!has_ranks(n)) return;
  on_first_processes(n, [&](MPI_Comm comm) {
    const auto communicator = make_mpi_communicator(comm, options);
    try {
      f(*communicator);
    } catch (const std::exception& error) {
      communicator->fail(concat("rank ", communicator->rank(), " failed: ", error.what()));
      throw;
    }
  });
}

std::vector<std::vector<double>> results(int n, const std::function<std::vector<double>(Communicator&)>& f,
                                         const CommunicatorOptions& options) {
  if (!has_ranks(n)) return {};
  std::vector<double> mine;
  on_ranks(
      n, [&](Communicator& comm) { mine = f(comm); }, options);
  std::vector<std::vector<double>> all;
  for (const std::string& bytes : gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double)})) {
    all.emplace_back(bytes.size() / sizeof(double));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(all.back().data()));
  }
  all.resize(static_cast<std::size_t>(n));
  return all;
}

std::vector<std::string> messages(int n, const std::function<void(Communicator&)>& f,
                                  const CommunicatorOptions& options) {
  if (!has_ranks(n)) return {};
  std::string mine;
  try {
    on_ranks(n, f, options);
  } catch (const std::exception& error) { mine = error.what(); }
  std::vector<std::string> all = gather(mine);
  all.resize(static_cast<std::size_t>(n));
  return all;
}

}  // namespace keel::testing

namespace {

int run_tests(int argc, char** argv) {
  using namespace keel::testing;
  const keel::MpiSession mpi;
  all_processes = mpi.all();
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (process() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(process()));
  }
  int failed = RUN_ALL_TESTS(), any = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, all_processes);
  return any;
}

}  // namespace

int main(int argc, char** argv) {
#ifdef KEEL_TEST_HOST_STARTS_MPI  // as codes do that embed keel
  int level = 0;
  PMPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const int failed = run_tests(argc, argv);
  PMPI_Finalize();
  return failed;
#else
  return run_tests(argc, argv);
#endif
}
