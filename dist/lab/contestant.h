#pragma once
// Who is measured: keel's algorithms, and the collectives of the library below (MPI's or NCCL's own).

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/link.h"
#include "keel/dist/lab/exercise.h"

namespace keel::lab {

// One whose `algorithm` is empty is the library's own.
using Contestant = AlgorithmName;

// How the numbers of one rank reach another.
enum class Path : unsigned char {
  processors,  // messages or shared memory between processors
  staged,      // the same, for devices, through the memory of their processors
  nccl,        // from device to device
};
std::string_view name_of(Path path);

// What a communicator is made of.
struct Fabric {
  Communicator& ranks;
  Context context;  // of the tensors
  Path path = Path::processors;
  std::vector<int> nodes = {};  // the node that each rank counts as; empty: the one it is on
  // Makes a communicator of the ranks by the library's own collectives, on processors; null, and the reason, where
  // there is none.
  std::function<std::unique_ptr<Communicator>(std::string& why_not)> library = {};
  Link link = {};  // a slower network to measure on; the library's own collectives know nothing of it
};

// Why the exercise is not measured with this contestant; empty where it is.
std::string why_not(const Contestant& contestant, const Exercise& exercise, Path path);
// Every rank calls it. Null, and the reason, where there is no such communicator here.
std::unique_ptr<Communicator> enter(const Contestant& contestant, const Fabric& fabric, std::string& why_not);

}  // namespace keel::lab
