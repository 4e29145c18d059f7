#include "keel/dist/comm/algorithm_names.h"

#include <string>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr AlgorithmName kNames[] = {
    {"ordered", "direct", true,
     "what training uses: one sum in the order of ranks; through shared memory where ranks have some in common"},
    {"direct", "direct", false, "the same by messages"},
    {"ring", "ring", false, "partial sums once around"},
    {"tree", "tree", false, "a binomial tree, up and down"},
    {"rhd", "halving", false, "recursive halving and doubling"},
    {"hier", "hierarchical", false, "inside each node first, then between nodes"},
    {"flat", "flat", false, "rank 0 does all the work"},
    {"backend", "", false, "the collective of the library itself: MPI's, or NCCL's between devices"},
};

}  // namespace

std::span<const AlgorithmName> algorithm_names() { return kNames; }

const AlgorithmName& find_algorithm_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const AlgorithmName& one : kNames) {
    if (one.name == name) return one;
    names.push_back(one.name);
    if (one.algorithm != one.name && !one.algorithm.empty()) names.push_back(one.algorithm);
  }
  for (const AlgorithmName& one : kNames)
    if (!one.algorithm.empty() && one.algorithm == name) return one;
  std::string list;
  for (const AlgorithmName& one : kNames) list += concat(list.empty() ? "" : ", ", one.name);
  const std::string near = nearest(name, names);
  throw Error(concat("there is no algorithm '", name.substr(0, 60), "'",
                     near.empty() ? concat("; there are ", list) : concat(", did you mean '", near, "'?")));
}

}  // namespace keel
