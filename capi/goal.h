#pragma once
// Losses of a model that a host trains: keel's own, and a function of the host's.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "keel/autograd/variable.h"
#include "keel/capi/keel.h"
#include "keel/capi/samples.h"
#include "keel/dist/comm/communicator.h"

namespace keel::capi {

// A loss, and how much it is the mean over on this rank.
struct SampleLoss {
  Variable value;
  double weight = 0;
  double number() const { return weight == 0 ? 0 : said ? *said : value.value().item(); }
  std::optional<double> said = {};  // by the host, in full precision
};

// What outputs should be.
class Goal {
 public:
  virtual ~Goal() = default;
  // Throws an Error where the samples' targets do not fit the outputs; called before anything is computed.
  virtual void check(const Network& network, const Samples& samples) const = 0;
  // Of outputs (samples..., width). Collective.
  virtual SampleLoss loss(std::span<const Variable> outputs, const Samples& samples) const = 0;
};

// "mse" or "cross_entropy"; of several outputs the sum over them.
std::unique_ptr<Goal> make_goal(const std::string& name);
// A function of the host's. Where it fails on one rank, every rank gets an AgreedError.
std::unique_ptr<Goal> make_host_goal(keel_loss_function function, void* user, Communicator& ranks);

}  // namespace keel::capi
