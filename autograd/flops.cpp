#include "keel/autograd/flops.h"

namespace keel {
namespace {

thread_local FlopCount* innermost_count = nullptr;

}  // namespace

FlopCount::FlopCount() : outer_(innermost_count) { innermost_count = this; }

FlopCount::~FlopCount() { innermost_count = outer_; }

void count_flops(double flops) {
  if (innermost_count != nullptr) innermost_count->flops_ += flops;
}

}  // namespace keel
