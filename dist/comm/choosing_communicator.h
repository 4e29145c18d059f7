#pragma once
// A communicator that can go over to another algorithm between two collectives.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel {

// A communicator of the same ranks, and the name of how it does collectives.
struct CommunicatorWay {
  std::string name;
  std::unique_ptr<Communicator> ranks;
};

// Has one of `ways` do each collective: the first, until use_way() names another one. Every rank makes it of the same
// ways and names them between the same two collectives; what is under way ends as it has begun. What is split off goes
// over with it. All ways advance together (Communicator::regroup()), and there is one at least.
std::unique_ptr<Communicator> make_choosing_communicator(std::vector<CommunicatorWay> ways);

// One for each algorithm that adds by rank in one sum (Algorithm::adds_at_once), so that none changes a bit: `first`
// is the one to begin with, which is such an algorithm. Every rank calls it. `ranks` must be made of messages.
std::unique_ptr<Communicator> make_choosing_communicator(Communicator& ranks, std::string_view first);

}  // namespace keel
