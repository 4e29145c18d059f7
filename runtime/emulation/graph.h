#pragma once
// Work that is recorded instead of done: what stream capture builds, and what a graph launch runs.

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "keel/runtime/emulation/machine.h"

struct CUgraph_st {
  struct Node {
    std::function<void()> run;
    std::vector<std::size_t> after;  // nodes that come before this one
  };
  std::vector<Node> nodes;  // in the order of capture
};

struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
};

namespace keel::emulation {

// From cudaStreamBeginCapture to cudaStreamEndCapture of one stream, with the streams that joined it by events.
struct Capture {
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool valid = true;
  bool active = true;
  std::vector<CUstream_st*> streams;  // the origin first
  CUgraph_st graph;
};

// Runs the nodes in an order that only `after` restricts: among the nodes that may run it takes the one captured last
// (seed 0), or one drawn by the seed. So a forgotten dependency shows.
void run_nodes(const CUgraph_st& graph, std::uint64_t seed);

}  // namespace keel::emulation
