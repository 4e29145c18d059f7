#include "ranks.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "exit_guard.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/tcp_transport.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "launched.h"
#include "rank_report.h"
#include "report.h"
#include "started_ranks.h"
#include "timeout.h"

#ifdef KEEL_HAVE_MPI
#include "keel/dist/comm/mpi_call.h"
#include "keel/dist/comm/mpi_collectives.h"
#include "keel/dist/comm/mpi_session.h"
#endif

namespace keel::cli {
namespace {

int run_alone(const std::function<int(Communicator&)>& work) {
  return work(*make_communicator(ThreadHub(1).connect(0)));
}

// "rank 2: ", before what a rank says.
std::string prefix_of(int rank) { return rank == 0 ? "" : concat("rank ", rank, ": "); }

void tell_why_it_does_not_end(const RankHooks& hooks, int rank, const std::string& line) {
  const std::string text = concat("this run was asked to end, but ", line);
  std::cerr << concat("keel: ", printable(text), '\n') << std::flush;
  if (hooks.log) hooks.log(rank, text);
}

CommunicatorOptions options_of(const RankHooks& hooks) {
  CommunicatorOptions options;
  if (const char* text = std::getenv(kTimeoutVariable)) options.timeout = parse_timeout(text, kTimeoutVariable);
  options.is_worried = hooks.is_worried;
  options.tell = [hooks](int rank, const std::string& line) { tell_why_it_does_not_end(hooks, rank, line); };
  return options;
}

// Says so where this rank is asked to end while it waits for others to come.
class MeetingWatch {
 public:
  MeetingWatch(const Launched& launched, const RankHooks& hooks)
      : thread_([&launched, &hooks](const std::stop_token& is_over) {
          while (hooks.is_worried && !is_over.stop_requested() && !hooks.is_worried()) wait_a_moment(is_over);
          wait_a_moment(is_over);  // they may be about to come
          if (hooks.is_worried && !is_over.stop_requested())
            tell_why_it_does_not_end(
                hooks, launched.rank,
                concat("rank ", launched.rank, " waits for the others of ", launched.size, " at ", launched.address));
        }) {}

 private:
  static void wait_a_moment(const std::stop_token& is_over) {
    std::mutex mutex;
    std::condition_variable_any ends;
    std::unique_lock lock(mutex);
    ends.wait_for(lock, is_over, std::chrono::milliseconds(200), [] { return false; });
  }

  std::jthread thread_;
};

// What the rank cannot say later goes to its log, and to the others. Called while its exception is handled.
Failure tell_failure(Communicator& group, const RankHooks& hooks) {
  const Failure failure = current_failure();
  if (hooks.log) hooks.log(group.rank(), "error: " + failure.message);
  return failure;
}
void tell_others(Communicator& group, const Failure& failure) {
  group.fail(concat("rank ", group.rank(), " failed: ", failure.message));
}

// What a launcher hears that watches over the ranks.
void tell_launcher(int rank, const Failure& failure) {
  const auto what = failure.is_from_peer ? RankReport::What::heard : RankReport::What::failed;
  tell_launcher(
      RankReport{what, rank, failure.code, concat(failure.is_from_peer ? "says: " : "failed: ", failure.message)});
}

const Failure kExited = {kInternalError, "the process was about to exit in the midst of the run", false};

// Ends the process without what exit() does, of which it may be a part.
[[noreturn]] void end_at_once(int code) {
  std::cout << std::flush;
  ::_exit(code);
}

int run_threads(int n, const std::function<int(Communicator&)>& work, const RankHooks& hooks) {
  thread_local int own_rank = 0;
  const ExitGuard guard([&] {
    if (hooks.log) hooks.log(own_rank, "error: " + kExited.message);
    end_at_once(report(kExited.message, kExited.code, prefix_of(own_rank)));
  });
  std::mutex mutex;
  std::optional<Failure> first;
  int first_rank = 0, code = 0;
  const auto run = [&](Communicator& group) {
    own_rank = group.rank();
    try {
      const int mine = work(group);
      if (group.rank() == 0) code = mine;
    } catch (const AgreedError&) {
      tell_failure(group, hooks);
      throw;
    } catch (const std::exception&) {
      const Failure failure = tell_failure(group, hooks);
      tell_others(group, failure);
      const std::lock_guard lock(mutex);
      if (!failure.is_from_peer && !first) {
        first = failure;
        first_rank = group.rank();
      }
      throw;
    }
  };
  try {
    run_ranks(n, run, options_of(hooks));
  } catch (const std::exception&) {
    if (!first) throw;
    return report(first->message, first->code, prefix_of(first_rank));
  }
  return code;
}

// Which rank says what went wrong, and the exit code of all.
struct Verdict {
  int rank;
  int code;
};

// Throws where some rank does not come in time: it may have died, or be about something else.
Verdict find_verdict(Communicator& farewell, const Failure& failure) {
  struct Blame {
    bool is_mine;
    int code;
  };
  const std::vector<Blame> told = gather_values(farewell, Blame{!failure.is_from_peer, failure.code});
  for (std::size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank].is_mine) return {static_cast<int>(rank), told[rank].code};
  return {0, told[0].code};  // each has only heard of it
}

// Says what went wrong, once; returns the exit code of all.
int say_goodbye(const Failure& failure, Communicator& farewell) {
  const int rank = farewell.rank();
  tell_launcher(rank, failure);
  const std::string who = prefix_of(rank);
  int code = failure.code;
  try {
    const Verdict verdict = find_verdict(farewell, failure);
    code = verdict.code;
    if (verdict.rank == rank) report(failure.message, code, who);
    farewell.barrier();  // who ends first ends all
  } catch (const std::exception&) { report(failure.message, code, who); }
  return code;
}

// One of several processes. `make_group` finds the others; `farewell` serves when the group has failed, and `end_all`
// ends all with a code then, where somebody can.
int run_among(const std::function<std::unique_ptr<Communicator>()>& make_group, Communicator& farewell,
              const std::function<void(int)>& end_all, const std::function<int(Communicator&)>& work,
              const RankHooks& hooks) {
  const auto end_with = [&](const Failure& failure) {
    const int code = say_goodbye(failure, farewell);
    std::cout << std::flush;
    end_all(code);
    end_at_once(code);
  };
  try {
    const std::unique_ptr<Communicator> group = make_group();
    const std::thread::id own_thread = std::this_thread::get_id();
    const ExitGuard guard([&] {
      if (hooks.log) hooks.log(group->rank(), "error: " + kExited.message);
      if (std::this_thread::get_id() != own_thread)  // the group is for that one alone; the launcher ends the others
        end_at_once(report(kExited.message, kExited.code, prefix_of(group->rank())));
      tell_others(*group, kExited);
      end_with(kExited);
    });
    try {
      return work(*group);
    } catch (const AgreedError&) {
      const Failure failure = tell_failure(*group, hooks);
      tell_launcher(group->rank(), failure);
      return group->rank() == 0 ? report(failure.message, failure.code) : failure.code;
    } catch (const std::exception&) {
      tell_others(*group, tell_failure(*group, hooks));
      throw;
    }
  } catch (const std::exception&) { end_with(current_failure()); }
  return 0;  // end_with() does not come back
}

// Ranks that find each other by an address. Nobody watches over them, so each just ends.
int run_at_address(const Launched& launched, const std::function<int(Communicator&)>& work, const RankHooks& hooks) {
  const CommunicatorOptions options = options_of(hooks);
  std::optional<MeetingWatch> watch(std::in_place, launched, hooks);
  auto transports = make_tcp_transports(
      {.rank = launched.rank,
       .size = launched.size,
       .address = launched.address,
       .timeout = options.timeout,
       .token = launched.token,
       .tell =
           [](const std::string& line) { std::cerr << concat("keel: rank 0 ", printable(line), '\n') << std::flush; }},
      2);
  watch.reset();
  std::unique_ptr<Communicator> farewell =
      make_communicator(std::move(transports[1]), {.shared_memory = false, .timeout = std::chrono::seconds(2)});
  // Who ends without a goodbye is gone for those who still listen.
  const auto part = [&](int) { farewell.reset(); };
  return run_among([&] { return make_communicator(std::move(transports[0]), options); }, *farewell, part, work, hooks);
}

// Where processes do not find each other, the first one says why. The others end without an error: with one, the
// launcher might end the first before it has spoken.
int refuse(const Launched& launched, const std::string& reason) {
  if (launched.rank == 0) throw Error(reason, ErrorKind::unsupported);
  return 0;
}

#ifdef KEEL_HAVE_MPI

int run_in_mpi(const Launched& launched, const std::function<int(Communicator&)>& work, const RankHooks& hooks) {
  CommunicatorOptions options;
  try {
    options = options_of(hooks);
  } catch (const Error& error) { return refuse(launched, error.what()); }
  // Where MPI sends through a socket whose other end is gone, this rank would die of it, and seem to be the cause.
  ::signal(SIGPIPE, SIG_IGN);
  MpiSession session;
  const std::unique_ptr<Communicator> farewell =
      make_mpi_communicator(session.all(), {.timeout = std::chrono::seconds(2)});
  if (farewell->size() != launched.size)
    return refuse(launched, concat("this is rank ", launched.rank, " of ", launched.size, " for the launcher, of ",
                                   launched.by, ", and rank ", farewell->rank(), " of ", farewell->size(),
                                   " for the MPI of this build, ", name_of(mpi_of_this_build()),
                                   "; `keel launch` finds a launcher that fits, under srun --mpi=pmix may help"));
  return run_among([&] { return make_mpi_communicator(session.all(), options); }, *farewell,
                   [&](int code) {
                     // The launcher ends all by SIGTERM then, as it does when somebody ends the launcher.
                     StartedRank self;
                     self.tell_that_it_started();
                     self.tell_that_it_failed();
                     session.end_all(code);
                   },
                   work, hooks);
}

#else

int run_in_mpi(const Launched& launched, const std::function<int(Communicator&)>&, const RankHooks&) {
  return refuse(
      launched,
      concat("this is rank ", launched.rank, " of ", launched.size, ", started by a launcher of ", launched.by,
             ", and this build of keel has no MPI: the ranks would be runs of their own; `keel launch --threads` "
             "runs ranks as threads"));
}

#endif

}  // namespace

int on_ranks(int threads, const std::function<int(Communicator&)>& work, const RankHooks& hooks) {
  if (threads > 0) return run_threads(threads, work, hooks);
  const std::optional<Launched> launched = find_launched();
  if (!launched || launched->size == 1) return run_alone(work);
  return launched->address.empty() ? run_in_mpi(*launched, work, hooks) : run_at_address(*launched, work, hooks);
}

std::unique_ptr<Communicator> mpi_collectives_of([[maybe_unused]] Communicator& ranks, std::string& why_not) {
  const std::optional<Launched> launched = find_launched();
#ifdef KEEL_HAVE_MPI
  if (launched && launched->address.empty() && mpi_runs()) {
    MpiCollectiveOptions options;
    options.timeout = ranks.timeout();
    options.stuck = [who = prefix_of(ranks.rank())](const std::string& what) {
      end_at_once(report(what, kInternalError, who));
    };
    return make_mpi_collectives(MpiSession().all(), options, ranks.nodes());
  }
#endif
  why_not = launched && !launched->address.empty() ? "these ranks find each other by an address, without MPI"
            : mpi_of_this_build() == Launcher::Kind::none
                ? "this build of keel has no MPI"
                : "no MPI runs below these ranks; `keel comm -N 4` without --threads starts some";
  return nullptr;
}

std::string mpi_version() {
#ifdef KEEL_HAVE_MPI
  if (mpi_runs()) return mpi_library_version();
#endif
  return "none";
}

std::string ranks_by(bool threads) {
  const std::optional<Launched> launched = find_launched();
  if (threads || !launched) return "threads of one process";
  return launched->address.empty() ? "processes of MPI" : "processes over TCP";
}

Launcher::Kind mpi_of_this_build() {
#if defined(KEEL_HAVE_MPI) && defined(OPEN_MPI)
  return Launcher::Kind::open_mpi;
#elif defined(KEEL_HAVE_MPI) && (defined(MPICH_VERSION) || defined(MPICH))
  return Launcher::Kind::hydra;
#elif defined(KEEL_HAVE_MPI)
  return Launcher::Kind::other;
#else
  return Launcher::Kind::none;
#endif
}

}  // namespace keel::cli
