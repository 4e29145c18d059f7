#include "keel/dist/checkpoint/memory_hosts.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>

#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"
#include "keel/runtime/host_name.h"

namespace keel {
namespace {

// A folder that is not there yet is nobody else's.
std::string place_of_memory(const std::string& root) {
  struct ::stat found = {};
  if (::stat(root.c_str(), &found) != 0) return concat("no ", root);
  return concat(found.st_dev, ':', found.st_ino);
}

std::string name_of_host(const std::string& root) {
  return root == MemoryFolder::kUsualRoot ? host_name() : concat(host_name(), ':', root);
}

// The next host on another node, or else the next one; -1: there is no other.
int host_after(int host, const std::vector<int>& node_of_host) {
  const auto count = static_cast<int>(node_of_host.size());
  const auto node = [&](int h) { return node_of_host[static_cast<std::size_t>(h)]; };
  for (int i = 1; i < count; ++i)
    if (node((host + i) % count) != node(host)) return (host + i) % count;
  return count > 1 ? (host + 1) % count : -1;
}

}  // namespace

std::vector<int> MemoryHosts::ranks_of(int host) const {
  std::vector<int> found;
  for (std::size_t r = 0; r < of.size(); ++r)
    if (of[r] == host) found.push_back(static_cast<int>(r));
  return found;
}

bool MemoryHosts::is_first(int rank) const {
  const int host = of[static_cast<std::size_t>(rank)];
  return std::find(of.begin(), of.end(), host) - of.begin() == rank;
}

MemoryHosts pair_hosts(std::span<const int> node, std::span<const std::string> place,
                       std::span<const std::string> name) {
  MemoryHosts hosts;
  std::map<std::pair<int, std::string>, int> numbers;
  std::vector<int> nodes;  // of hosts
  for (std::size_t r = 0; r < node.size(); ++r) {
    const auto [found, is_new] = numbers.try_emplace({node[r], place[r]}, hosts.count());
    if (is_new) hosts.names.push_back(name[r]);
    if (is_new) nodes.push_back(node[r]);
    hosts.of.push_back(found->second);
  }
  hosts.partner.assign(node.size(), -1);
  for (int h = 0; h < hosts.count(); ++h) {
    const int next = host_after(h, nodes);
    if (next < 0) continue;
    const std::vector<int> own = hosts.ranks_of(h), others = hosts.ranks_of(next);
    for (std::size_t i = 0; i < own.size(); ++i)
      hosts.partner[static_cast<std::size_t>(own[i])] = others[i % others.size()];
  }
  return hosts;
}

MemoryHosts meet_in_memory(Communicator& ranks, const std::string& root) {
  return pair_hosts(ranks.nodes(), gather_texts(ranks, place_of_memory(root)), gather_texts(ranks, name_of_host(root)));
}

}  // namespace keel
