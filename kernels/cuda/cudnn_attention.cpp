#include "keel/kernels/cuda/cudnn_attention.h"

#include <map>
#include <mutex>
#include <utility>

#include "keel/kernels/cuda/attention_padding.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/stream.h"
#include "keel/runtime/device_api.h"

// Attention by cuDNN: plans are made once for each shape and layout and kept with the context. What cuDNN does not
// take, or has no plan for, goes to keel's own kernels.
namespace keel::cuda {
namespace {

using cudnn::AttentionCase;
using cudnn::AttentionPlan;
using cudnn::Uid;

// Generation asks for one more key in each step: a plan for each would cost more than it saves.
constexpr std::int64_t kFewestQueries = 64;
// Plans that are kept; beyond it all are made anew.
constexpr std::size_t kMostPlans = 128;
// The deterministic backward pass holds one 16-bit number for each pair of a query and a key.
constexpr std::int64_t kMostWorkspace = std::int64_t{2} << 30;
// 9.10.2: attention of 9.10.0 and 9.10.1 is known to be faulty, and masks were written otherwise before.
constexpr std::size_t kOldest = 91002;

class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    plans_.clear();
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }

  // Calls run(handle, plan) with a handle on the context's stream; false where there is no plan.
  template <class Run>
  bool with_plan(const Context& context, const AttentionCase& which, Run&& run) {
    const std::lock_guard lock(mutex_);
    context.api().make_current();
    const AttentionPlan* plan = find(context, which);
    if (plan == nullptr) return false;
    cudnn::check(cudnnSetStream(handle_, static_cast<cudaStream_t>(context.stream().native())), "choosing a stream");
    run(handle_, *plan);
    return true;
  }

 private:
  // Null where there is none.
  const AttentionPlan* find(const Context& context, const AttentionCase& which) {
    auto known = plans_.find(which);
    if (known == plans_.end()) {
      if (is_recording(context)) return nullptr;
      if (plans_.size() >= kMostPlans) plans_.clear();
      known = plans_.emplace(which, make(context, which)).first;
    }
    return known->second.plan ? &known->second : nullptr;
  }

  AttentionPlan make(const Context& context, const AttentionCase& which) {
    try {
      const std::size_t version = cudnnGetVersion();
      if (version < kOldest) throw Error(concat("cuDNN ", version, " is older than ", kOldest), ErrorKind::unsupported);
      if (handle_ == nullptr) cudnn::check(cudnnCreate(&handle_), "creating a handle");
      AttentionPlan plan = cudnn::plan_attention(which, {.handle = handle_});
      if (plan.plan->workspace_bytes() > kMostWorkspace)
        throw Error(concat("cuDNN asks for a workspace of ", plan.plan->workspace_bytes(), " bytes"),
                    ErrorKind::unsupported);
      return plan;
    } catch (const Error& error) {
      context.log(std::exchange(told_, true) ? LogLevel::info : LogLevel::warning,
                  concat("attention: keel's own kernels instead of cuDNN's; ", error.what()));
      return {};
    }
  }

  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionCase, AttentionPlan> plans_;
  bool told_ = false;
};

bool lies_aligned(const Tensor& x) {
  if (reinterpret_cast<std::uintptr_t>(x.raw()) % 16 != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (x.dim(d) > 1 && x.stride(d) % 8 != 0) return false;
  return true;
}

bool takes(const AttentionArgs& args) {
  const DType dtype = args.q.dtype();
  if (dtype != DType::bf16 && dtype != DType::f16) return false;
  if (args.q.dim(3) % 8 != 0 || args.q.dim(3) > 128 || args.q.numel() == 0 || args.k.numel() == 0) return false;
  if (args.q.dim(2) < kFewestQueries || args.k.dim(2) < kFewestQueries) return false;
  for (const Tensor& x : {args.q, args.k, args.v, args.out})
    if (!lies_aligned(x)) return false;
  return reinterpret_cast<std::uintptr_t>(args.lse.raw()) % 16 == 0;
}

bool takes(const AttentionBackwardArgs& args) {
  for (const Tensor& x : {args.grad_out, args.grad_q, args.grad_k, args.grad_v})
    if (!lies_aligned(x)) return false;
  // Without a padding mask, kernels of several versions let what lies behind the last key into their sums where the
  // keys do not fill tiles of 128.
  const bool whole = args.forward.k.dim(2) % 128 == 0 || args.forward.lengths.defined();
  return takes(args.forward) && whole;
}

// The tensors that stand for lengths; empty where nothing is padded.
struct Lengths {
  Tensor queries, keys;
  explicit Lengths(const AttentionArgs& args) {
    if (!args.lengths.defined()) return;
    const Dims shape = {args.q.dim(0)};
    queries = empty(args.q.context(), shape, DType::i32, Purpose::workspace);
    keys = empty(args.q.context(), shape, DType::i32, Purpose::workspace);
    write_sequence_lengths(args, queries, keys);
  }
};

Tensor workspace_of(const Context& context, const AttentionPlan& plan) {
  return empty(context, {plan.plan->workspace_bytes()}, DType::u8, Purpose::workspace);
}

void attention_by_cudnn(const AttentionArgs& args) {
  const Context& context = args.q.context();
  const auto run = [&](cudnnHandle_t handle, const AttentionPlan& plan) {
    const Lengths lengths(args);
    const Tensor workspace = workspace_of(context, plan);
    std::vector<std::pair<Uid, void*>> tensors = {{plan.q, args.q.raw()},
                                                  {plan.k, args.k.raw()},
                                                  {plan.v, args.v.raw()},
                                                  {plan.out, args.out.raw()},
                                                  {plan.lse, args.lse.raw()}};
    if (args.lengths.defined())
      tensors.insert(tensors.end(),
                     {{plan.query_lengths, lengths.queries.raw()}, {plan.key_lengths, lengths.keys.raw()}});
    plan.plan->run(handle, tensors, workspace.raw());
    if (args.lengths.defined()) clear_blind_queries(args, args.out, args.lse);
  };
  if (!takes(args) || !context.resource<State>().with_plan(context, AttentionCase(args), run)) attention(args);
}

void attention_backward_by_cudnn(const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const Context& context = forward.q.context();
  const auto run = [&](cudnnHandle_t handle, const AttentionPlan& plan) {
    const Lengths lengths(forward);
    const Tensor workspace = workspace_of(context, plan);
    const Tensor delta = empty(context, forward.lse.shape(), DType::f32, Purpose::workspace);
    std::vector<std::pair<Uid, void*>> tensors = {
        {plan.q, forward.q.raw()},        {plan.k, forward.k.raw()},        {plan.v, forward.v.raw()},
        {plan.out, forward.out.raw()},    {plan.lse, forward.lse.raw()},    {plan.grad_out, args.grad_out.raw()},
        {plan.grad_q, args.grad_q.raw()}, {plan.grad_k, args.grad_k.raw()}, {plan.grad_v, args.grad_v.raw()},
        {plan.delta, delta.raw()}};
    if (forward.lengths.defined())
      tensors.insert(tensors.end(),
                     {{plan.query_lengths, lengths.queries.raw()}, {plan.key_lengths, lengths.keys.raw()}});
    plan.plan->run(handle, tensors, workspace.raw());
    if (!forward.lengths.defined()) return;
    clear_blind_queries(forward, args.grad_q);
    clear_padded_keys(forward, args.grad_k);
    clear_padded_keys(forward, args.grad_v);
  };
  if (!takes(args) || !context.resource<State>().with_plan(context, AttentionCase(args), run)) attention_backward(args);
}

}  // namespace

void add_cudnn_attention(KernelTable& table) {
  table.attention = attention_by_cudnn;
  table.attention_backward = attention_backward_by_cudnn;
}

}  // namespace keel::cuda
