#include "keel/kernels/cuda/cudnn_graph.h"

#include <algorithm>

#include "keel/runtime/error.h"

// Headers that know devices by description; see Target::described.
#if CUDNN_VERSION >= 90800
#define KEEL_CUDNN_DESCRIBES_DEVICES
#endif

namespace keel::cuda::cudnn {

namespace {

std::string last_reason() {
  char reason[256] = "";
  cudnnGetLastErrorString(reason, sizeof reason);
  return reason;
}

}  // namespace

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const bool unsupported = status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR;
  throw Error(concat("cuDNN: ", what, ": ", cudnnGetErrorString(status), ", ", last_reason()),
              unsupported ? ErrorKind::unsupported : ErrorKind::internal);
}

Extents dense(const Extents& shape) { return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}; }

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  check(cudnnBackendCreateDescriptor(type, &handle), "creating a descriptor");
  handle_.reset(handle, [](cudnnBackendDescriptor_t h) { cudnnBackendDestroyDescriptor(h); });
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
                     std::int64_t count) const {
  check(cudnnBackendSetAttribute(get(), name, type, count, values), "setting an attribute");
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) const {
  const cudnnBackendDescriptor_t handle = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &handle);
}

void Descriptor::finalize(const char* what) const { check(cudnnBackendFinalize(get()), what); }

Target Target::described([[maybe_unused]] const std::string& properties) {
#ifdef KEEL_CUDNN_DESCRIBES_DEVICES
  Target target;
  target.device = Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  target.device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, properties.data(),
                    static_cast<std::int64_t>(properties.size()));
  target.device.finalize("device properties");
  return target;
#else
  throw Error(concat("this was compiled with cuDNN ", CUDNN_VERSION, ", which plans only for devices that it has"),
              ErrorKind::unsupported);
#endif
}

Uid Graph::add(cudnnDataType_t type, const Extents& shape, const Extents& strides, bool between, bool by_value) {
  const Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const Uid uid = static_cast<Uid>(tensors_.size()) + 1;
  const std::int64_t alignment = by_value ? 4 : 16;
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &uid);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.data(), 4);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &between);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
  tensor.finalize("tensor");
  tensors_.push_back(tensor);
  return uid;
}

Uid Graph::device(cudnnDataType_t type, const Extents& shape, const Extents& strides) {
  return add(type, shape, strides, false, false);
}
Uid Graph::scalar(float value) {
  const Uid uid = add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  scalars_.push_back({uid, {.f = value}});
  return uid;
}
Uid Graph::scalar(std::int32_t value) {
  const Uid uid = add(CUDNN_DATA_INT32, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  scalars_.push_back({uid, {.i = value}});
  return uid;
}
Uid Graph::between(cudnnDataType_t type, const Extents& shape) { return between(type, shape, dense(shape)); }
Uid Graph::between(cudnnDataType_t type, const Extents& shape, const Extents& strides) {
  return add(type, shape, strides, true, false);
}

void Graph::pointwise(cudnnPointwiseMode_t mode, std::vector<Uid> inputs, Uid result, cudnnDataType_t compute) {
  const Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
  kind.finalize("pointwise");
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  constexpr cudnnBackendAttributeName_t kInputs[] = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < inputs.size(); ++i) operation.set(kInputs[i], at(inputs[i]));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(result));
  operation.finalize("pointwise operation");
  parts_.push_back(kind);
  operations_.push_back(operation);
}

void Graph::index(int axis, Uid like, Uid result, cudnnDataType_t compute) {
  const Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
  const std::int64_t wide_axis = axis;
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
  kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &wide_axis);
  kind.finalize("index");
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(like));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(result));
  operation.finalize("index operation");
  parts_.push_back(kind);
  operations_.push_back(operation);
}

void Graph::reduce(cudnnReduceTensorOp_t op, Uid x, Uid result) {
  const Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &op);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  kind.finalize("reduction");
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(result));
  operation.finalize("reduction operation");
  parts_.push_back(kind);
  operations_.push_back(operation);
}

void Graph::reshape(Uid x, Uid result) {
  const Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(result));
  operation.finalize("reshape operation");
  operations_.push_back(operation);
}

void Graph::matmul(Uid a, Uid b, Uid result, const Lengths& lengths) {
  const Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute);
  kind.finalize("matrix product");
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(result));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  if (lengths.rows) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, at(*lengths.rows));
  if (lengths.columns) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, at(*lengths.columns));
  if (lengths.inner) operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, at(*lengths.inner));
  operation.finalize("matrix product operation");
  parts_.push_back(kind);
  operations_.push_back(operation);
}

namespace {

// The results of a heuristic, best first; none, and why, where it has none for this graph.
std::vector<Descriptor> configurations([[maybe_unused]] const Target& target, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode, std::string& reasons) {
  const Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
#ifdef KEEL_CUDNN_DESCRIBES_DEVICES
  if (target.device.get() != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
#endif
  if (cudnnBackendFinalize(heuristic.get()) != CUDNN_STATUS_SUCCESS) {
    reasons += "; " + last_reason();
    return {};
  }
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &count, nullptr),
        "counting engines");
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) {
    results.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(results.back().get());
  }
  if (count > 0)
    check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                   &count, handles.data()),
          "listing engines");
  results.resize(std::min(results.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0))));
  if (results.empty()) reasons += "; " + last_reason();
  return results;
}

// Whether an engine configuration adds in an order that may change from run to run.
bool is_nondeterministic(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &count, &handle),
        "reading the engine");
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  check(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
        "reading the engine's notes");
  // cuDNN counts those that there are, and a later version than that of the headers may know more.
  auto* const end = notes + std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::find(notes, end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != end;
}

Descriptor build(const Target& target, const Descriptor& config) {
  const Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
#ifdef KEEL_CUDNN_DESCRIBES_DEVICES
  else plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device);
#endif
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  plan.finalize("plan");
  return plan;
}

}  // namespace

std::unique_ptr<Plan> Graph::plan(const Target& target) {
  const Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Descriptor& operation : operations_) operations.push_back(operation.get());
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
            static_cast<std::int64_t>(operations.size()));
  graph.finalize("graph");

  std::string reasons;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& config : configurations(target, graph, mode, reasons)) {
      if (is_nondeterministic(config)) {
        reasons += "; an engine is not deterministic";
        continue;
      }
      try {
        auto result = std::make_unique<Plan>();
        result->plan_ = build(target, config);
        result->parts_ = tensors_;
        for (const auto* more : {&parts_, &operations_})
          result->parts_.insert(result->parts_.end(), more->begin(), more->end());
        result->parts_.insert(result->parts_.end(), {graph, config});
        result->scalars_ = scalars_;
        std::int64_t count = 0;
        check(cudnnBackendGetAttribute(result->plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                       1, &count, &result->workspace_bytes_),
              "reading a plan's workspace");
        return result;
      } catch (const Error& error) { reasons += concat("; ", error.what()); }
    }
  throw Error(concat("cuDNN ", cudnnGetVersion(), " has no engine for this graph", reasons), ErrorKind::unsupported);
}

void Plan::run(cudnnHandle_t handle, const std::vector<std::pair<Uid, void*>>& tensors, void* workspace) const {
  std::vector<Uid> uids;
  std::vector<const void*> places;
  for (const auto& [uid, place] : tensors) {
    uids.push_back(uid);
    places.push_back(place);
  }
  for (const auto& [uid, value] : scalars_) {
    uids.push_back(uid);
    places.push_back(&value);
  }
  const Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(uids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, places.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
  pack.finalize("arguments");
  check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "running a plan");
}

}  // namespace keel::cuda::cudnn
