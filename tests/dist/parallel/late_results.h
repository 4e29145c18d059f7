#pragma once
// A communicator whose results come as late as they may: when somebody waits for them.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "keel/dist/comm/decorators.h"
#include "keel/kernels/elementwise.h"

namespace keel::testing {

// Until a result was waited for, or told to be there, its bytes are ones, which are no number. In the processor's
// memory.
class LateCommunicator : public CommunicatorDecorator {
 public:
  explicit LateCommunicator(Communicator& inner) : CommunicatorDecorator(inner) {}
  explicit LateCommunicator(std::unique_ptr<Communicator> inner) : LateCommunicator(*inner) { own_ = std::move(inner); }

  Work begin(const Collective& collective) override {
    if (!collective.output.defined()) return inner_.begin(collective);
    Collective hidden = collective;
    hidden.output = kernels::clone(collective.output);
    if (collective.input.defined()) hidden.input = kernels::clone(collective.input);
    const bool in_place = collective.input.defined() && collective.input.raw() == collective.output.raw() &&
                          collective.input.numel() == collective.output.numel();
    if (in_place) hidden.input = hidden.output;
    std::fill_n(collective.output.raw(), collective.output.bytes(), std::byte{0xff});
    return Work(std::make_shared<Late>(inner_.begin(hidden), hidden.output, collective.output));
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<LateCommunicator>(inner_.split(color, key));
  }

 private:
  class Late : public Operation {
   public:
    Late(Work work, Tensor hidden, Tensor output)
        : work_(std::move(work)), hidden_(std::move(hidden)), output_(std::move(output)) {}
    bool advance() override {
      if (work_.has_finished()) bring();
      return brought_;
    }
    void wait() override {
      work_.wait();
      bring();
    }

   private:
    void bring() {
      if (!std::exchange(brought_, true)) std::memcpy(output_.raw(), hidden_.raw(), output_.bytes());
    }

    Work work_;
    Tensor hidden_, output_;
    bool brought_ = false;
  };

  std::unique_ptr<Communicator> own_;
};

}  // namespace keel::testing
