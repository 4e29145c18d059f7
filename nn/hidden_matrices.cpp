#include "keel/nn/hidden_matrices.h"

#include <set>

#include "keel/nn/layers.h"

namespace keel {

std::map<const Parameter::State*, std::vector<std::int64_t>> hidden_matrices(Module& model) {
  std::map<const Parameter::State*, std::vector<std::int64_t>> matrices;
  std::set<const Parameter::State*> others;
  const auto add_whole = [&](const Parameter& weight) { matrices[weight.state().get()] = {weight.shape()[0]}; };
  for_each_module(model, [&](const std::string&, Module& module) {
    if (const auto* const embedding = dynamic_cast<const Embedding*>(&module))
      others.insert(embedding->weight.state().get());
    const auto* const linear = dynamic_cast<const Linear*>(&module);
    if (linear == nullptr) return;
    if (linear->is_head) others.insert(linear->weight.state().get());
    add_whole(linear->weight);
    if (!linear->parts.empty()) {
      std::vector<std::int64_t>& rows = matrices[linear->weight.state().get()];
      rows.clear();
      for (const LinearPart& part : linear->parts) rows.push_back(part.rows);
    }
    for (const LowRankAdapter& adapter : linear->adapters) {
      add_whole(adapter.a);
      add_whole(adapter.b);
    }
  });
  for (const Parameter::State* const other : others) matrices.erase(other);
  return matrices;
}

}  // namespace keel
