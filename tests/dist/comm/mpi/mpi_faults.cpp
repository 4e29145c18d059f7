// Programs in which one of four ranks does something bad: what the others say, and whether all end.
// usage: mpi_faults throws | dies | stops | stops_inside | leaves | outlives. Every process prints its process id
// first.

#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "keel/dist/comm/mpi_session.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// One write a line, so that lines of several processes stay whole.
void say(const std::string& line) { std::cout << line + '\n' << std::flush; }

void train(Communicator& comm, const std::string& fault) {
  const Context context = Context::create({.threads = 1});
  const Tensor gradient = zeros(context, {300'000});  // larger than what is shown to others at a time
  for (int step = 0; step < 1'000'000; ++step) {
    comm.set_activity(concat("step ", step));
    if (step == 20 && comm.rank() == 2) {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      say(concat("at ", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
      if (fault == "throws") throw Error("the disk is full", ErrorKind::io);
      if (fault == "dies") raise(SIGKILL);
      if (fault == "stops") raise(SIGSTOP);
      // Somewhere in the middle of a collective, most likely.
      if (fault == "stops_inside") {
        signal(SIGALRM, [](int) { raise(SIGSTOP); });
        ualarm(20'500, 0);
      }
      if (fault == "leaves") return;
    }
    comm.all_reduce(gradient).wait();
  }
}

int run(MpiSession& session, const std::string& fault) {
  const bool stops = fault.starts_with("stops");
  const auto comm = make_mpi_communicator(session.all(), {.timeout = std::chrono::seconds(stops ? 2 : 300)});
  const int rank = comm->rank();
  say(concat("rank ", rank, " pid ", getpid()));
  comm->barrier();
  try {
    train(*comm, fault);
  } catch (const std::exception& error) {
    comm->fail(concat("rank ", rank, " failed: ", error.what()));
    say(concat("rank ", rank, " says: ", error.what()));
    // Ranks that stand still would keep the others from ending MPI.
    if (stops) session.end_all(3);
    return 3;
  }
  say(concat("rank ", rank, " is done"));
  return 0;
}

// A transport that goes after MPI has ended, with a message under way.
int outlive() {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Message> message;
  std::unique_ptr<Communicator> communicator;
  {
    MpiSession session;
    transport = make_mpi_transport(session.all());
    communicator = make_mpi_communicator(session.all());
    communicator->barrier();
    static char byte = 0;
    message = transport->receive((transport->rank() + 1) % transport->size(), 1, &byte, 1);
  }
  try {
    transport->check();
  } catch (const Error& error) { say(concat("rank ", transport->rank(), " says: ", error.what())); }
  communicator->fail("too late");
  return 0;
}

}  // namespace
}  // namespace keel

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "";
  if (fault == "outlives") return keel::outlive();
  keel::MpiSession session;
  return keel::run(session, fault);
}
