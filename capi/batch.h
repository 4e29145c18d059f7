#pragma once
// Arrays for a model with several inputs and outputs, by name or in order.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/capi/samples.h"

namespace keel::capi {

// What a keel_batch is.
struct HostBatch {
  using Named = std::vector<std::pair<std::string, std::shared_ptr<Array>>>;  // "": the next one

  std::shared_ptr<Site> site;
  Named inputs = {}, targets = {};
  std::shared_ptr<Array> weights = {};

  // In the network's order. An Error for a name that it does not have, and for one that is given twice.
  Arrays arrays_for(const Network& network) const;
};

}  // namespace keel::capi
