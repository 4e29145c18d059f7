// cuBLASLt behind the matmul entry.
//
// The first product of a shape asks the library for its best algorithms and times them, beside keel's own kernel; the
// fastest is kept for the life of the context, so that two runs may differ in the last bits. Environment variables:
// KEEL_TUNE_MATMUL=0 takes the library's first algorithm untimed, and every run has the same bits; KEEL_TF32=1 lets f32
// be multiplied as TF32.
//
// The library thinks in columns. A row-major out (m, n) is a column-major out^T (n, m) = b^T a^T: its left operand is
// our b, its right one our a, and its bias for each row is ours for each column.

#include <cublasLt.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/cublaslt_problem.h"
#include "keel/kernels/cuda/matmul_plan.h"
#include "keel/kernels/cuda/stream.h"
#include "keel/kernels/functors.h"

namespace keel::cuda {
namespace {

using cublaslt::Lines;
using cublaslt::Problem;

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;  // bytes
constexpr int kCandidates = 8;                                 // algorithms that are timed
constexpr int kTimedRuns = 3;

bool says(const char* variable, std::string_view value) {
  const char* text = std::getenv(variable);
  return text != nullptr && text == value;
}
bool tunes() { return !says("KEEL_TUNE_MATMUL", "0"); }
bool uses_tf32() {
  static const bool yes = says("KEEL_TF32", "1");
  return yes;
}

void expect(cublasStatus_t status, const MatmulArgs& args) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(concat("matmul: cuBLASLt failed on ", args.a, " times ", args.b, " into ", args.out, ": ",
                       cublasLtGetStatusString(status), "; kernels=plain avoids it"),
                ErrorKind::internal);
}

cudaDataType_t type_of(std::int64_t dtype) {
  switch (static_cast<DType>(dtype)) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

// A product as the library runs it. `gelu_after`: it ends with the bias, and keel's kernel applies GELU.
struct Call {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, out;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
  bool gelu_after;
};

// What is kept for a problem; without a call, keel's own kernel does it.
struct Plan {
  std::optional<Call> call;
};

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value,
         const MatmulArgs& args) {
  expect(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), args);
}

cublasLtMatrixLayoutOpaque_t layout_of(const Problem& p, const Lines& lines, std::int64_t rows, std::int64_t cols,
                                       std::int64_t dtype, const MatmulArgs& args) {
  cublasLtMatrixLayoutOpaque_t layout;
  const auto length = static_cast<std::uint64_t>(lines.turned ? rows : cols);
  const auto count = static_cast<std::uint64_t>(lines.turned ? cols : rows);
  expect(cublasLtMatrixLayoutInit(&layout, type_of(dtype), length, count, lines.pitch), args);
  const auto batches = static_cast<std::int32_t>(p.batches);
  expect(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches), args);
  expect(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &lines.batch_stride,
                                          sizeof lines.batch_stride),
         args);
  return layout;
}

// Before the run: the pointers that are part of an operation.
void set_pointers(Call& call, const MatmulArgs& args) {
  if (args.epilogue == Epilogue::none) return;
  const void* bias = args.bias.raw();
  set(call.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, args);
  if (call.gelu_after || !args.pre_activation.defined()) return;
  void* pre_activation = args.pre_activation.raw();
  set(call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pre_activation, args);
}

Call describe(const Problem& p, const MatmulArgs& args, bool gelu_after) {
  Call call = {};
  call.gelu_after = gelu_after;
  const bool wide = static_cast<DType>(p.dtype) == DType::f32;
  expect(cublasLtMatmulDescInit(&call.operation,
                                wide && uses_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
         args);
  set(call.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N, args);
  set(call.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N, args);
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (args.epilogue == Epilogue::bias || gelu_after) epilogue = CUBLASLT_EPILOGUE_BIAS;
  else if (args.epilogue == Epilogue::bias_gelu)
    epilogue = p.pre_activation_pitch != 0 ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
  set(call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, args);
  if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    set(call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.pre_activation_pitch, args);
  set_pointers(call, args);
  call.left = layout_of(p, p.b, p.k, p.n, p.dtype, args);
  call.right = layout_of(p, p.a, p.m, p.k, p.dtype, args);
  Lines out = p.out;
  if (gelu_after && p.pre_activation_pitch != 0) out.pitch = p.pre_activation_pitch;
  call.out = layout_of(p, out, p.m, p.n, p.out_dtype, args);
  return call;
}

// What a log says of a product.
template <class... Parts>
void tell(const MatmulArgs& args, LogLevel level, const Parts&... parts) {
  args.a.context().log(level, concat("matmul: ", args.a, " times ", args.b, " into ", args.out, ": ", parts...));
}

// The library's best algorithms, fastest by its own guess first; none where it cannot do the problem or fails to
// choose. Sums of parts of k stay in fp32 and in a fixed order.
std::vector<Call> candidates(cublasLtHandle_t handle, const Problem& p, const MatmulArgs& args, bool gelu_after) {
  if (!gelu_after && p.pre_activation_pitch != 0 && (p.pre_activation_pitch % 8 != 0 || p.alignments[3] < 16))
    return {};
  Call call = describe(p, args, gelu_after);
  cublasLtMatmulPreferenceOpaque_t preference;
  expect(cublasLtMatmulPreferenceInit(&preference), args);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    expect(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value), args);
  };
  const auto alignment = [&](int operand) { return static_cast<std::uint32_t>(p.alignments[operand]); };
  const std::uint32_t out = alignment(gelu_after && p.pre_activation_pitch != 0 ? 3 : 2);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMostWorkspace});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, &call.operation, &call.left, &call.right, &call.out, &call.out,
                                     &preference, tunes() ? kCandidates : 1, results, &count);
  if (status != CUBLAS_STATUS_SUCCESS) {
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
      tell(args, LogLevel::warning, "cuBLASLt's choice of algorithms failed: ", cublasLtGetStatusString(status),
           "; without it, keel's own kernel");
    return {};
  }
  std::vector<Call> calls;
  for (int i = 0; i < count; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    call.algorithm = results[i].algo;
    call.workspace = results[i].workspaceSize;
    calls.push_back(call);
  }
  return calls;
}

// Queues the product. A refusal of the library is returned, not thrown.
cublasStatus_t run(cublasLtHandle_t handle, Call call, const MatmulArgs& args) {
  set_pointers(call, args);
  const Context& context = args.a.context();
  const auto bytes = static_cast<std::int64_t>(call.workspace);
  const Tensor workspace = empty(context, {bytes}, DType::u8, Purpose::workspace);
  const Tensor& out = call.gelu_after && args.pre_activation.defined() ? args.pre_activation : args.out;
  const float beta = args.accumulate ? 1.0f : 0.0f;
  const cublasStatus_t status = cublasLtMatmul(
      handle, &call.operation, &args.alpha, args.b.raw(), &call.left, args.a.raw(), &call.right, &beta, out.raw(),
      &call.out, out.raw(), &call.out, &call.algorithm, workspace.raw(), call.workspace, stream_of(args.a));
  if (status == CUBLAS_STATUS_SUCCESS && call.gelu_after)
    run_kernel(context, "gelu_tanh", kernel_table(context).unary[index_of<GeluTanh, UnaryOps>].forward, out, args.out,
               0.0);
  return status;
}

class TimingEvent {
 public:
  TimingEvent() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Milliseconds of one run of f; infinity where it answers false.
template <class F>
float time_of(cudaStream_t stream, F&& f) {
  const TimingEvent begin, end;
  if (!f()) return INFINITY;  // and the first run is slower
  check(cudaEventRecord(begin.get(), stream), "cudaEventRecord");
  for (int i = 0; i < kTimedRuns; ++i) f();
  check(cudaEventRecord(end.get(), stream), "cudaEventRecord");
  check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
  float time = 0;
  check(cudaEventElapsedTime(&time, begin.get(), end.get()), "cudaEventElapsedTime");
  return time / kTimedRuns;
}

// Uninitialised memory of the same layout.
Tensor scratch_like(const Tensor& x) {
  std::int64_t extent = 1;
  for (int d = 0; d < x.rank(); ++d) extent += (x.dim(d) - 1) * x.stride(d);
  const Tensor memory = empty(x.context(), {extent}, x.dtype(), Purpose::workspace);
  return Tensor(memory.storage(), x.shape(), x.strides(), 0, x.dtype());
}

// The fastest way, by running all of them. What a product writes it may write often, unless it adds.
Plan choose(cublasLtHandle_t handle, const std::vector<Call>& calls, const MatmulArgs& args) {
  MatmulArgs trial = args;
  if (args.accumulate) {
    try {
      trial.out = scratch_like(args.out);
    } catch (const Error&) {
      return {calls.front()};  // there is no memory to try in
    }
  }
  const cudaStream_t stream = stream_of(args.a);
  Plan best;
  float shortest = time_of(stream, [&] { return multiply_own(trial), true; });
  const float own = shortest;
  for (const Call& call : calls) {
    const float time = time_of(stream, [&] { return run(handle, call, trial) == CUBLAS_STATUS_SUCCESS; });
    if (time >= shortest) continue;
    shortest = time;
    best.call = call;
  }
  const char* way = !best.call ? "keel's own kernel" : best.call->gelu_after ? "cuBLASLt, then GELU" : "cuBLASLt";
  tell(args, LogLevel::info, way, ", ", shortest, " ms (", calls.size(), " algorithms tried; keel's own kernel ", own,
       " ms)");
  return best;
}

// The library in one context.
class Library {
 public:
  Library() = default;
  ~Library() {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // There since the first plan with a call.
  cublasLtHandle_t handle() const { return handle_; }

  // The current device is the context's.
  Plan plan(const Problem& problem, const MatmulArgs& args) {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(problem); found != plans_.end()) return found->second;
    if (is_recording(args.a.context())) {
      tell(args, LogLevel::info, "keel's own kernel in a graph that is recorded before this product ever ran");
      return {};  // for this time
    }
    if (plans_.size() >= kMost) plans_.clear();
    return plans_[problem] = make(problem, args);
  }

 private:
  static constexpr std::size_t kMost = 1024;  // a training run never comes near

  // Not while a graph is recorded, since the library may allocate.
  void start() {
    const cublasStatus_t status = cublasLtCreate(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error(concat("cuBLASLt does not start: ", cublasLtGetStatusString(status), "; kernels=plain avoids it"),
                  ErrorKind::internal);
  }

  Plan make(const Problem& problem, const MatmulArgs& args) {
    if (handle_ == nullptr) start();
    const bool gelu = args.epilogue == Epilogue::bias_gelu;
    std::vector<Call> calls;
    // The library may take the hardware's tanh for its GELU, which is too coarse for f32.
    if (!gelu || args.out.dtype() != DType::f32) calls = candidates(handle_, problem, args, false);
    if (gelu)
      for (const Call& call : candidates(handle_, problem, args, true)) calls.push_back(call);
    if (calls.empty()) return {};
    return tunes() ? choose(handle_, calls, args) : Plan{calls.front()};
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  std::unordered_map<Problem, Plan, cublaslt::ProblemHash> plans_;
};

void multiply_cublaslt(const MatmulArgs& args) {
  if (args.a.dtype() == DType::f64) return multiply_own(args);  // which says that it cannot
  if (args.same_bits) return multiply_own(args);
  const std::optional<Problem> problem = cublaslt::problem_of(args);
  if (!problem) return multiply_own(args);
  const Context& context = args.a.context();
  context.api().make_current();  // for the library, which may start here
  auto& library = context.resource<Library>();
  const Plan plan = library.plan(*problem, args);
  if (!plan.call) return multiply_own(args);
  expect(run(library.handle(), *plan.call, args), args);
}

}  // namespace

std::string cublaslt_backend(DType dtype) {
  const std::size_t version = cublasLtGetVersion();
  const std::string name = concat("cuBLASLt ", version / 10000, '.', version / 100 % 100, '.', version % 100);
  const char* units = dtype != DType::f32 ? "tensor cores" : uses_tf32() ? "TF32" : "fp32 units";
  return concat(name, " (", units, ")",
                tunes() ? " or keel's own kernel, whichever is faster for a shape" : ", untimed: KEEL_TUNE_MATMUL=0");
}

void add_cublaslt(KernelTable& table) { table.matmul = multiply_cublaslt; }

}  // namespace keel::cuda
