#pragma once
// cuDNN's graph API (the C interface of cudnn_graph.h) as values: a graph of operations on tensors, and the plan that
// an engine of cuDNN has for it.
//
// The C interface belongs to cuDNN itself; the header library cudnn_frontend, which many programs use instead, is a
// package of its own that a user would have to fetch.

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace keel::cuda::cudnn {

using Extents = std::array<std::int64_t, 4>;

// A finalised descriptor of the backend; copies share it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  // Throws an Error, of kind unsupported where cuDNN says so.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           std::int64_t count = 1) const;
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) const;
  void finalize(const char* what) const;

 private:
  std::shared_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>> handle_;
};

// What plans are made for: the device of a handle, or one that is only described (and need not be there).
struct Target {
  cudnnHandle_t handle = nullptr;
  Descriptor device = {};
  // Properties in cuDNN's JSON. cuDNN 9.11 is the first that plans by them; an Error of kind unsupported where this was
  // compiled with headers that do not know such devices (before 9.8).
  static Target described(const std::string& properties);
};

// A tensor of a graph by its number.
using Uid = std::int64_t;

// An engine's plan and what it needs to run. Not for two threads at once.
class Plan {
 public:
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  // Queues the plan on the handle's stream. `tensors`: where the device tensors of the graph lie.
  void run(cudnnHandle_t handle, const std::vector<std::pair<Uid, void*>>& tensors, void* workspace) const;

 private:
  friend class Graph;
  union Scalar {
    float f;
    std::int32_t i;
  };
  Descriptor plan_;
  std::vector<Descriptor> parts_;                // what the plan was made of
  std::vector<std::pair<Uid, Scalar>> scalars_;  // by value
  std::int64_t workspace_bytes_ = 0;
};

class Graph {
 public:
  // Tensors: in the device's memory, a number given by value, or nowhere (what only passes between operations).
  Uid device(cudnnDataType_t type, const Extents& shape, const Extents& strides);
  Uid scalar(float value);
  Uid scalar(std::int32_t value);
  Uid between(cudnnDataType_t type, const Extents& shape);
  Uid between(cudnnDataType_t type, const Extents& shape, const Extents& strides);

  // Operations: the last argument is the result. `compute` is the type that they count in.
  void pointwise(cudnnPointwiseMode_t mode, std::vector<Uid> inputs, Uid result,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void index(int axis, Uid like, Uid result, cudnnDataType_t compute);  // the place of each element along the axis
  void reduce(cudnnReduceTensorOp_t op, Uid x, Uid result);
  void reshape(Uid x, Uid result);
  // Rows, columns or summands past the lengths (of each sequence) do not count.
  struct Lengths {
    std::optional<Uid> rows = {}, columns = {}, inner = {};
  };
  void matmul(Uid a, Uid b, Uid result, const Lengths& lengths);

  // The first plan that cuDNN proposes and can build, without engines that add in no fixed order. Throws an Error of
  // kind unsupported where there is none.
  std::unique_ptr<Plan> plan(const Target& target);

 private:
  Uid add(cudnnDataType_t type, const Extents& shape, const Extents& strides, bool between, bool by_value);
  const Descriptor& at(Uid uid) const { return tensors_.at(static_cast<std::size_t>(uid - 1)); }

  std::vector<Descriptor> tensors_, parts_, operations_;
  std::vector<std::pair<Uid, Plan::Scalar>> scalars_;
};

// The strides of a dense tensor.
Extents dense(const Extents& shape);

// Throws an Error that names `what`, of kind unsupported where cuDNN does not support it, unless the call succeeded.
void check(cudnnStatus_t status, const char* what);

}  // namespace keel::cuda::cudnn
