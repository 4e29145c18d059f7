#pragma once
// By what a communicator sends, before it is there.

#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// Between GPUs NCCL gathers by itself whatever the algorithm, and also adds by itself where the order of a sum is free
// (ReduceOrder::fast).
struct CollectiveRoute {
  enum class Nccl : unsigned char { nothing, gathers, gathers_and_adds };
  std::string_view algorithm = "direct";  // keel/dist/comm/algorithms.h
  Nccl nccl = Nccl::nothing;
};

}  // namespace keel
