#include "keel/dist/lab/contestant.h"

#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/staged_communicator.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

bool has_algorithms(const Exercise& exercise) { return exercise.adds() || exercise.kind == CollectiveKind::all_gather; }

}  // namespace

std::string_view name_of(Path path) {
  switch (path) {
    case Path::processors: return "processors";
    case Path::staged: return "devices through their processors";
    case Path::nccl: return "devices by NCCL";
  }
  return "";
}

std::string why_not(const Contestant& contestant, const Exercise& exercise, Path path) {
  const bool is_own = contestant.name == "ordered", is_library = contestant.algorithm.empty();
  if (is_library || is_own) return {};
  if (path == Path::nccl) {
    if (contestant.name == "direct") return "between devices `ordered` is `direct` by messages";
    if (!exercise.adds())
      return concat(exercise.name, " between devices is done in one way: `ordered` and `backend` show it");
    return {};
  }
  if (has_algorithms(exercise) || contestant.name == "direct") return {};
  if (exercise.kind == CollectiveKind::broadcast)
    return "broadcast chooses by size itself, a tree or parts that ranks exchange: `direct` shows it";
  return concat(exercise.name, " has no algorithm but messages between each two: `direct` shows it");
}

std::unique_ptr<Communicator> enter(const Contestant& contestant, const Fabric& fabric, std::string& why_not) {
  const bool is_library = contestant.algorithm.empty();
  if (fabric.path == Path::nccl) {
    NcclOptions options;
    if (is_library) options.order = ReduceOrder::fast;
    else options.algorithm = contestant.algorithm;
    return make_nccl_communicator(fabric.context, fabric.ranks.regroup({.nodes = fabric.nodes}), options);
  }
  std::unique_ptr<Communicator> made;
  if (!is_library) {
    made = fabric.ranks.regroup({.algorithm = std::string(contestant.algorithm),
                                 .shared_memory = contestant.shared_memory,
                                 .nodes = fabric.nodes,
                                 .network = {.link = fabric.link}});
  } else if (fabric.link.is_slow()) {
    why_not = "a slower network is made of keel's own messages";
  } else {
    why_not = "no library below these ranks has collectives";
    if (fabric.library) made = fabric.library(why_not);
  }
  if (made != nullptr && fabric.path == Path::staged) return make_staged_communicator(std::move(made));
  return made;
}

}  // namespace keel::lab
