#include "comm_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "build_info.h"
#include "comm_table.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/lab/plot.h"
#include "keel/dist/lab/sizes.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/file.h"
#include "keel/trainer/device.h"
#include "launched.h"
#include "machine.h"
#include "ranks.h"

namespace keel::cli {
namespace {

using lab::Record;
using lab::Report;
using Clock = std::chrono::steady_clock;

// How much of a run a signal that kills may cost.
constexpr auto kBetweenFiles = std::chrono::seconds(1);
constexpr int kSignalExit = 128;

// Said before anything is measured.
void check_folder_of(const std::string& path, const char* option) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    throw Error(concat(option, ' ', path, ": the folder ", folder, " is not there, or cannot be written"),
                ErrorKind::io);
}

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

class CommRun {
 public:
  CommRun(Communicator& ranks, const CommArguments& arguments, const std::function<int()>& signal)
      : ranks_(ranks), arguments_(arguments), signal_(signal) {
    together(ranks_, [&] { prepare(); });
    choose_path();
    report_.nodes = nodes_.empty() ? ranks_.nodes() : nodes_;
    describe_machine();
    clocks_ = lab::clock_offsets(ranks_);
    enter_contestants();
  }

  int run() {
    for (const lab::Exercise* exercise : wish_.exercises) {
      if (stopped_ != 0) break;
      measure_collective(*exercise);
    }
    report_.complete = stopped_ == 0;
    save();
    conclude();
    if (stopped_ != 0) return kSignalExit + stopped_;
    return wrong_ == 0 ? 0 : 1;
  }

 private:
  struct Entered {
    const lab::Contestant* contestant;
    std::unique_ptr<Communicator> own;
    std::unique_ptr<Communicator> corrupted;  // around it
    Communicator& communicator() const { return corrupted ? *corrupted : *own; }
  };

  void prepare() {
    wish_ = read_wish(arguments_);
    const int n = ranks_.size();
    if (ranks_.rank() == 0) {
      check_folder_of(arguments_.json, "--json");
      check_folder_of(arguments_.csv, "--csv");
      check_folder_of(arguments_.plot, "--plot");
    }
    for (const int rank : {wish_.late_rank, wish_.corrupted_rank, wish_.root})
      KEEL_CHECK(rank < n, "there is no rank ", rank, " among ", n);
    for (int r = 0; arguments_.ranks_per_node > 0 && r < n; ++r) nodes_.push_back(r / arguments_.ranks_per_node);
    const std::vector<int>& nodes = ranks_.nodes();
    const auto local =
        std::count(nodes.begin(), nodes.begin() + ranks_.rank(), nodes[static_cast<std::size_t>(ranks_.rank())]);
    ContextOptions options;
    options.device = choose_device(arguments_.device, static_cast<int>(local));
    if (is_one_process()) options.threads = std::max(1, usable_processors() / n);
    context_ = Context::create(options);
  }

  // NCCL wants a device for each rank.
  void choose_path() {
    const Device device = context_.device();
    if (device.type == DeviceType::cpu) return;
    path_ = lab::Path::staged;
    if (arguments_.through_host || wish_.link.is_slow()) return;
    std::string why_not = why_no_nccl();
    const std::vector<int>& nodes = ranks_.nodes();
    const auto beside = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(ranks_.rank())]);
    if (why_not.empty() && device.type == DeviceType::emulated && !is_one_process())
      why_not = "the emulator connects devices of one process, as --threads runs them";
    if (why_not.empty() && beside > count_devices(device.type).count) why_not = "there are fewer devices than ranks";
    for (const std::string& theirs : gather_texts(ranks_, why_not))
      if (why_not.empty()) why_not = theirs;
    if (why_not.empty()) path_ = lab::Path::nccl;
    else skip(concat("no NCCL: ", why_not, "; devices exchange through the memory of their processors"));
  }
  bool is_one_process() const { return arguments_.threads || !find_launched(); }

  void describe_machine() {
    const std::string processor = value_of(file_text("/proc/cpuinfo"), "model name");
    const std::string own =
        concat(host_name(), ": ", processor.empty() ? "unknown processor" : processor, ", ", usable_processors(),
               " processors; ", to_string(context_.device()),
               context_.device().type == DeviceType::cpu ? "" : concat(" (", describe_device(context_.device()), ')'));
    const std::vector<std::string> all = gather_texts(ranks_, own);
    for (std::size_t r = 0; r < all.size(); ++r) report_.machine.emplace_back(fmt::format("rank {}", r), all[r]);
    where_ = concat(ranks_.size() == 1 ? "alone" : ranks_by(arguments_.threads), ", ", name_of(path_));
    report_.machine.emplace_back("ranks", ranks_by(arguments_.threads));
    report_.machine.emplace_back("path", name_of(path_));
    const BuildInfo& build = build_info();
    report_.software = {{"keel", std::string(build.version)},
                        {"commit", std::string(build.commit)},
                        {"compiler", concat(build.compiler, ", ", build.flags)},
                        {"cuda", std::string(build_part("CUDA")->state)},
                        {"mpi", mpi_version()}};
    report_.options = texts_of(arguments_);
    report_.environment = lab::read_environment();
    report_.started = now_in_utc();
  }

  void enter_contestants() {
    const lab::Fabric fabric{
        ranks_, context_, path_, nodes_, [&](std::string& why) { return mpi_collectives_of(ranks_, why); }, wish_.link};
    for (const lab::Contestant* contestant : wish_.contestants) {
      std::string why_not;
      auto own = lab::enter(*contestant, fabric, why_not);
      if (own == nullptr) {
        skip(concat(contestant->name, ": ", why_not));
        continue;
      }
      std::unique_ptr<Communicator> corrupted;
      if (wish_.corrupted_rank >= 0)
        corrupted = std::make_unique<CorruptedCommunicator>(*own, wish_.corrupted_rank, wish_.corrupted_element);
      entered_.push_back({contestant, std::move(own), std::move(corrupted)});
    }
  }

  // What is asked for and not there is said once.
  void skip(const std::string& line) {
    if (!said_.insert(line).second) return;
    report_.skipped.push_back(line);
    if (ranks_.rank() == 0) std::cout << "# " << line << '\n' << std::flush;
  }

  // Those that measure it, apart from dtypes.
  std::vector<const Entered*> those_for(const lab::Exercise& exercise) {
    std::vector<const Entered*> found;
    std::map<std::string, std::string> left_out;  // names, by the reason
    for (const Entered& entered : entered_) {
      const std::string why = lab::why_not(*entered.contestant, exercise, path_);
      if (why.empty()) found.push_back(&entered);
      else left_out[why] += concat(left_out[why].empty() ? "" : ", ", entered.contestant->name);
    }
    for (const auto& [why, names] : left_out) skip(concat(names, ": ", why));
    return found;
  }

  void measure_collective(const lab::Exercise& exercise) {
    if (exercise.kind == CollectiveKind::send && ranks_.size() == 1)
      return skip("sendrecv needs two ranks: none sends to itself");
    const std::vector<const Entered*> entered = those_for(exercise);
    if (entered.empty()) return;
    for (const CombineOp op : exercise.adds() ? wish_.ops : std::vector{CombineOp::sum})
      for (const int root : roots_of(exercise))
        if (!measure_sizes(exercise, entered, {op, root})) return;
  }
  std::vector<int> roots_of(const lab::Exercise& exercise) const {
    if (!exercise.has_root()) return {0};
    if (wish_.root >= 0) return {wish_.root};
    std::vector<int> all(static_cast<std::size_t>(ranks_.size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // False where the run is to end.
  bool measure_sizes(const lab::Exercise& exercise, const std::vector<const Entered*>& entered,
                     const lab::CallOptions& options) {
    const std::string asked = asked_of(new_record(exercise, options));
    if (ranks_.rank() == 0) std::cout << table_.header(asked, ranks_.size(), where_) << std::flush;
    for (const DType dtype : wish_.dtypes) {
      const std::int64_t most = arguments_.at_once * count_in(exercise, wish_.sizes.back(), dtype, ranks_.size());
      const Tensor first = zeros(context_, {most}, dtype), second = zeros(context_, {most}, dtype);
      std::int64_t last = -1;
      for (const std::int64_t bytes : wish_.sizes) {
        const std::int64_t count = count_in(exercise, bytes, dtype, ranks_.size());
        if (count == 0 && bytes != 0 && exercise.kind != CollectiveKind::barrier) {
          skip(concat(exercise.name, " of ", dtype, ": of less than ",
                      static_cast<std::int64_t>(size_of(dtype)) *
                          (exercise.kind == CollectiveKind::all_to_all && !exercise.by_counts ? ranks_.size() : 1),
                      " bytes a rank has no element"));
          continue;
        }
        if (std::exchange(last, count) == count) continue;
        for (const Entered* one : entered)
          if (!measure_size(exercise, *one, options, dtype, count, first, second)) return false;
      }
    }
    return true;
  }
  Record new_record(const lab::Exercise& exercise, const lab::CallOptions& options) const {
    Record record;
    record.collective = exercise.name;
    record.ranks = ranks_.size();
    if (exercise.adds()) record.op = name_of(options.op);
    if (exercise.has_root()) record.root = options.root;
    record.at_once = arguments_.at_once;
    return record;
  }

  // False where the run is to end.
  bool measure_size(const lab::Exercise& exercise, const Entered& entered, const lab::CallOptions& call_options,
                    DType dtype, std::int64_t count, const Tensor& first, const Tensor& second) {
    for (const int signal : gather_values(ranks_, signal_()))
      if (signal != 0) stopped_ = signal;
    if (stopped_ != 0) return false;
    if (const std::string why = why_no_dtype(exercise, entered, call_options.op, dtype); !why.empty()) {
      skip(concat(entered.contestant->name, ": ", why));
      return true;
    }
    lab::MeasureOptions options{.calls = arguments_.calls, .warmup = arguments_.warmup, .check = arguments_.check};
    if (arguments_.calls != 0) options.seconds = 0;
    options.barrier = arguments_.barrier;
    if (arguments_.polls != CommArguments::kNoOverlap) options.polls = arguments_.polls;
    if (wish_.late_rank == ranks_.rank())
      options.before_call = [this] {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(wish_.late_ms));
      };
    Record record = new_record(exercise, call_options);
    record.algorithm = entered.contestant->name;
    record.dtype = name_of(dtype);
    record.count = count;
    record.bytes = count * static_cast<std::int64_t>(size_of(dtype));
    for (const lab::Variant& variant : lab::variants()) {
      const bool in_place = variant.place == &Record::in_place;
      if (!(in_place ? exercise.in_place : exercise.out_of_place)) continue;
      options.salt = ++salt_;
      std::vector<lab::Call> calls;
      for (std::int64_t begin = 0; static_cast<int>(calls.size()) < arguments_.at_once; begin += count)
        calls.push_back(make_call(exercise, ranks_, count, in_place, first.slice(0, begin, begin + count),
                                  second.slice(0, begin, begin + count), call_options));
      record.*variant.place = lab::measure(entered.communicator(), ranks_, calls, options, clocks_);
      wrong_ += (record.*variant.place)->wrong.value_or(0);
      if (!record.wire_total_bytes && tells_wire(entered)) {
        const lab::Wire wire = lab::count_wire(*entered.own, ranks_, calls.front());
        record.wire_inside_bytes = wire.inside;
        record.wire_between_bytes = wire.between;
        record.wire_total_bytes = wire.total;
      }
    }
    report_.records.push_back(record);
    if (ranks_.rank() == 0) std::cout << table_.row(record) << std::flush;
    const int is_due = Clock::now() - saved_ > kBetweenFiles ? 1 : 0;
    if (gather_values(ranks_, is_due)[0] != 0) save();
    return true;
  }

  bool tells_wire(const Entered& entered) const {
    return !entered.contestant->algorithm.empty() || path_ == lab::Path::nccl;
  }
  // Why a contestant does not combine numbers so.
  std::string why_no_dtype(const lab::Exercise& exercise, const Entered& entered, CombineOp op, DType dtype) const {
    const bool is_half = dtype == DType::bf16 || dtype == DType::f16;
    const std::string_view algorithm = entered.contestant->algorithm;
    if (exercise.adds() && op == CombineOp::pairwise_sum &&
        (algorithm.empty() || !adds_pairwise(find_algorithm(algorithm))))
      return "it adds in another order than pairs of ranks";
    const bool is_mpi = algorithm.empty() && path_ != lab::Path::nccl;
    if (is_mpi && is_half && exercise.adds()) return concat("MPI has no sum of ", dtype);
    if (is_mpi && exercise.adds() && op == CombineOp::mean && !is_floating(dtype))
      return concat("MPI has no mean of ", dtype);
    return {};
  }

  // Whole files, by rank 0; what goes wrong there ends all.
  void save() {
    saved_ = Clock::now();
    together(ranks_, [&] {
      if (ranks_.rank() == 0) save_report(report_, arguments_);
    });
  }

  void conclude() {
    if (ranks_.rank() != 0) return;
    if (report_.records.empty()) std::cout << "# nothing was measured\n";
    if (stopped_ != 0) std::cout << "# stopped by a signal; what was measured stands above\n";
    if (arguments_.check && !report_.records.empty())
      std::cout << fmt::format("# wrong elements: {}{}\n", wrong_, wrong_ == 0 ? " (OK)" : "");
    std::cout << std::flush;
  }

  Communicator& ranks_;
  const CommArguments& arguments_;
  const std::function<int()>& signal_;
  CommWish wish_;
  Context context_;
  lab::Path path_ = lab::Path::processors;
  std::vector<int> nodes_;
  std::vector<double> clocks_;
  std::vector<Entered> entered_;
  std::set<std::string> said_;
  std::string where_;
  CommTable table_{arguments_.width(), arguments_.polls != CommArguments::kNoOverlap};
  Report report_;
  Clock::time_point saved_ = Clock::now();
  std::uint32_t salt_ = 0;
  std::int64_t wrong_ = 0;
  int stopped_ = 0;
};

}  // namespace

int measure_ranks(Communicator& ranks, const CommArguments& arguments, const std::function<int()>& signal) {
  return CommRun(ranks, arguments, signal).run();
}

void save_report(const Report& report, const CommArguments& arguments) {
  if (!arguments.json.empty()) write_text_file(arguments.json, to_json(report));
  if (!arguments.csv.empty()) write_text_file(arguments.csv, to_csv(report));
  if (!arguments.plot.empty() && report.complete && !report.records.empty())
    write_text_file(arguments.plot, lab::plot(report));
}

}  // namespace keel::cli
