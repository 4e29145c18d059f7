#include "step_trace.h"

#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

// Numbers of Chakra's CollectiveCommType.
int comm_type(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return 0;
    case CollectiveKind::all_gather: return 2;
    case CollectiveKind::all_to_all: return 6;
    case CollectiveKind::reduce_scatter: return 7;
    default: throw Error(concat("a step has no ", name_of(kind)), ErrorKind::internal);
  }
}

Json whole_number(const char* name, std::int64_t value) { return {{"name", name}, {"int64_val", value}}; }
Json text(const char* name, const std::string& value) { return {{"name", name}, {"string_val", value}}; }

Json to_chakra(const TraceNode& node, std::size_t id) {
  const bool is_collective = node.kind == TraceNode::Kind::collective;
  Json attributes =
      Json::array({{{"name", "is_cpu_op"}, {"bool_val", false}}, whole_number("micro_batch", node.micro_batch)});
  if (is_collective) {
    attributes.push_back(whole_number("comm_type", comm_type(node.collective.kind)));
    attributes.push_back(whole_number("comm_size", node.collective.count * node.collective.width));
    attributes.push_back(text("pg_name", std::string(name_of(node.collective.axis))));
    attributes.push_back(text("carries", node.collective.of_parameters ? "parameters"
                                         : node.collective.of_matrices ? "matrices"
                                                                       : "gradients"));
  } else {
    attributes.push_back(whole_number("num_ops", node.operations));
    attributes.push_back(whole_number("tensor_size", node.bytes));
  }
  return {{"id", id},
          {"name", node.name},
          {"type", is_collective ? "COMM_COLL_NODE" : "COMP_NODE"},
          {"ctrl_deps", node.follows},
          {"data_deps", node.needs},
          {"attr", attributes}};
}

}  // namespace

Json to_chakra(const std::vector<TraceNode>& trace, int ranks, int rank) {
  Json nodes = Json::array();
  for (const TraceNode& node : trace) nodes.push_back(to_chakra(node, nodes.items().size()));
  return {{"format", "keel step trace"}, {"version", 1}, {"ranks", ranks}, {"rank", rank}, {"nodes", nodes}};
}

}  // namespace keel::cli
