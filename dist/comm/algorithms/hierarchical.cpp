#include <map>

#include "keel/dist/comm/algorithms/list.h"
#include "keel/dist/comm/algorithms/writer.h"

namespace keel::collectives {
namespace {

// Hierarchical: each node adds its own ranks' numbers first, so that every shard crosses between two nodes once. A
// rank's agent in another node is the one with its place there (modulo that node's size).
class Nodes {
 public:
  explicit Nodes(const CollectiveShape& shape) : node_(static_cast<std::size_t>(shape.size)) {
    std::map<int, int> numbers;  // nodes are counted in the order of their first ranks
    for (int r = 0; r < shape.size; ++r) {
      const int name = shape.node.empty() ? 0 : shape.node[static_cast<std::size_t>(r)];
      const int number = numbers.emplace(name, static_cast<int>(numbers.size())).first->second;
      if (number == static_cast<int>(members_.size())) members_.emplace_back();
      node_[static_cast<std::size_t>(r)] = number;
      place_.push_back(static_cast<int>(members_[static_cast<std::size_t>(number)].size()));
      members_[static_cast<std::size_t>(number)].push_back(r);
    }
  }
  int count() const { return static_cast<int>(members_.size()); }
  int of(int rank) const { return node_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }
  // Who in `node` adds up, and passes on, the shard of `owner`.
  int agent(int node, int owner) const {
    const auto place = static_cast<std::size_t>(place_[static_cast<std::size_t>(owner)]);
    return members(node)[place % members(node).size()];
  }

 private:
  std::vector<int> node_, place_;
  std::vector<std::vector<int>> members_;
};

void write_hierarchical_reduce(Writer& w, const Nodes& nodes, Piece result) {
  const int own = nodes.of(w.rank());
  const std::vector<int>& local = nodes.members(own);
  // Inside the node: the sums of all shards that this rank is the agent of.
  std::map<int, Piece> partial;  // by owner
  w.begin_step();
  for (int owner = 0; owner < w.size(); ++owner) {
    const int agent = nodes.agent(own, owner);
    if (agent != w.rank()) {
      w.send(agent, input(w.shard(owner)));
      continue;
    }
    std::vector<Piece> terms;
    for (const int rank : local) {
      terms.push_back(rank == w.rank() ? input(w.shard(owner)) : w.scratch(w.shard(owner).count()));
      if (rank != w.rank()) w.receive(rank, terms.back());
    }
    Piece& sum = partial[owner];
    sum = terms.front();
    if (terms.size() == 1) continue;
    sum = w.scratch(w.shard(owner).count());
    w.combine(std::move(terms), sum);
  }
  // Between nodes: each sum to its owner, who adds those of all nodes in order.
  w.begin_step();
  for (const auto& [owner, sum] : partial)
    if (nodes.of(owner) != own) w.send(owner, sum);
  std::vector<Piece> terms;
  for (int node = 0; node < nodes.count(); ++node) {
    terms.push_back(node == own ? partial.at(w.rank()) : w.scratch(w.shard(w.rank()).count()));
    if (node != own) w.receive(nodes.agent(node, w.rank()), terms.back());
  }
  w.combine(std::move(terms), result);
}

void write_hierarchical_gather(Writer& w, const Nodes& nodes) {
  const int own = nodes.of(w.rank());
  w.begin_step();
  for (int node = 0; node < nodes.count(); ++node)
    if (node != own) w.send(nodes.agent(node, w.rank()), output(w.shard(w.rank())));
  for (int owner = 0; owner < w.size(); ++owner)
    if (nodes.of(owner) != own && nodes.agent(own, owner) == w.rank()) w.receive(owner, output(w.shard(owner)));
  w.begin_step();
  for (int owner = 0; owner < w.size(); ++owner) {
    const int agent = nodes.of(owner) == own ? owner : nodes.agent(own, owner);
    if (agent != w.rank()) {
      w.receive(agent, output(w.shard(owner)));
      continue;
    }
    for (const int rank : nodes.members(own))
      if (rank != w.rank()) w.send(rank, output(w.shard(owner)));
  }
}

Schedule hierarchical_all_reduce(const CollectiveShape& shape) {
  Writer w(shape);
  const Nodes nodes(shape);
  write_hierarchical_reduce(w, nodes, output(w.shard(w.rank())));
  write_hierarchical_gather(w, nodes);
  return w.finish();
}
Schedule hierarchical_reduce_scatter(const CollectiveShape& shape) {
  Writer w(shape);
  write_hierarchical_reduce(w, Nodes(shape), output(alone(w.shard(w.rank()))));
  return w.finish();
}
Schedule hierarchical_all_gather(const CollectiveShape& shape) {
  Writer w(shape);
  write_own_shard(w);
  write_hierarchical_gather(w, Nodes(shape));
  return w.finish();
}

}  // namespace

const Algorithm kHierarchical = {"hierarchical",
                                 "by rank inside a node, then by node, rounded after each",
                                 "between nodes: 2 (m - 1) S / n for m nodes, of each rank",
                                 false,
                                 false,
                                 hierarchical_all_reduce,
                                 hierarchical_reduce_scatter,
                                 hierarchical_all_gather};

}  // namespace keel::collectives
