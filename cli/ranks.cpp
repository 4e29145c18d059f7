#include "ranks.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/tcp_transport.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/error.h"
#include "launched.h"
#include "report.h"

#ifdef KEEL_HAVE_MPI
#include "keel/dist/comm/mpi_session.h"
#endif

namespace keel::cli {
namespace {

int run_alone(const std::function<int(Communicator&)>& work) {
  return work(*make_communicator(ThreadHub(1).connect(0)));
}

int run_threads(int n, const std::function<int(Communicator&)>& work) {
  int code = 0;
  run_ranks(n, [&](Communicator& group) {
    const int mine = work(group);
    if (group.rank() == 0) code = mine;
  });
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
  const std::string who = rank == 0 ? "" : concat("rank ", rank, ": ");
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
              const std::function<void(int)>& end_all, const std::function<int(Communicator&)>& work) {
  try {
    const std::unique_ptr<Communicator> group = make_group();
    try {
      return work(*group);
    } catch (const AgreedError&) {
      const Failure failure = current_failure();
      return group->rank() == 0 ? report(failure.message, failure.code) : failure.code;
    } catch (const std::exception& error) {
      group->fail(concat("rank ", group->rank(), " failed: ", error.what()));
      throw;
    }
  } catch (const std::exception&) {
    const int code = say_goodbye(current_failure(), farewell);
    end_all(code);
    return code;
  }
}

// Ranks that find each other by an address. Nobody watches over them, so each just ends.
int run_at_address(const Launched& launched, const std::function<int(Communicator&)>& work) {
  auto transports = make_tcp_transports(
      {.rank = launched.rank, .size = launched.size, .address = launched.address, .token = launched.token}, 2);
  const std::unique_ptr<Communicator> farewell =
      make_communicator(std::move(transports[1]), {.shared_memory = false, .timeout = std::chrono::seconds(2)});
  return run_among([&] { return make_communicator(std::move(transports[0]), CommunicatorOptions{}); }, *farewell,
                   [](int) {}, work);
}

// Of processes that do not find each other the first says why. A launcher would end it before that, if another one
// ended with an error.
int refuse(const Launched& launched, const std::string& reason) {
  if (launched.rank == 0) throw Error(reason, ErrorKind::unsupported);
  return 0;
}

#ifdef KEEL_HAVE_MPI

int run_in_mpi(const Launched& launched, const std::function<int(Communicator&)>& work) {
  MpiSession session;
  const std::unique_ptr<Communicator> farewell =
      make_mpi_communicator(session.all(), {.timeout = std::chrono::seconds(2)});
  if (farewell->size() != launched.size)
    return refuse(launched, concat("this is rank ", launched.rank, " of ", launched.size, " for the launcher, of ",
                                   launched.by, ", and rank ", farewell->rank(), " of ", farewell->size(),
                                   " for the MPI of this build, ", name_of(mpi_of_this_build()),
                                   "; `keel launch` finds a launcher that fits, under srun --mpi=pmix may help"));
  const auto end_all = [&](int code) {
    session.end_all(code);
    std::exit(code);
  };
  return run_among([&] { return make_mpi_communicator(session.all()); }, *farewell, end_all, work);
}

#else

int run_in_mpi(const Launched& launched, const std::function<int(Communicator&)>&) {
  return refuse(
      launched,
      concat("this is rank ", launched.rank, " of ", launched.size, ", started by a launcher of ", launched.by,
             ", and this build of keel has no MPI: the ranks would be runs of their own; `keel launch --threads` "
             "runs ranks as threads"));
}

#endif

}  // namespace

int on_ranks(int threads, const std::function<int(Communicator&)>& work) {
  if (threads > 0) return run_threads(threads, work);
  const std::optional<Launched> launched = find_launched();
  if (!launched || launched->size == 1) return run_alone(work);
  return launched->address.empty() ? run_in_mpi(*launched, work) : run_at_address(*launched, work);
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
