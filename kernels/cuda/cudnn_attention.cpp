#include "keel/kernels/cuda/cudnn_attention.h"

#include <map>
#include <mutex>
#include <utility>

#include "keel/kernels/cuda/attention_padding.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/stream.h"
#include "keel/kernels/cuda/workspace_limit.h"
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
// Plans that are kept; beyond it all are made anew, apart from those of graphs.
constexpr std::size_t kMostPlans = 128;
// 9.10.2: attention of 9.10.0 and 9.10.1 is known to be faulty, and masks were written otherwise before.
constexpr std::size_t kOldest = 91002;

std::string name_of_library() {
  const std::size_t version = cudnnGetVersion();
  return concat("cuDNN ", version / 10000, '.', version / 100 % 100, '.', version % 100);
}

std::string name_of(const AttentionCase& c) {
  return concat(c.backward ? "attention backward (batch " : "attention (batch ", c.batch, ", heads ", c.heads, '/',
                c.kv_heads, ", queries ", c.queries, ", keys ", c.keys, ", head size ", c.size, ')');
}

// Plans of one context. The deterministic backward pass works in 2 bytes for each pair of a query and a key of all
// heads: where workspace_limit() or the device has no room for that, keel's own kernels take its place.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    plans_.clear();
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }

  // Calls run(handle, plan, workspace) with a handle on the context's stream; false where there is no plan.
  template <class Run>
  bool with_plan(const Context& context, const AttentionCase& which, Run&& run) {
    const std::lock_guard lock(mutex_);
    context.api().make_current();
    Tensor workspace;
    Kept* const kept = find(context, which);
    if (kept == nullptr || !has_room(context, which, *kept, workspace)) return false;
    cudnn::check(cudnnSetStream(handle_, static_cast<cudaStream_t>(context.stream().native())), "choosing a stream");
    run(handle_, kept->plan, workspace.raw());
    return true;
  }

  // Why the case goes to keel's own kernels; empty where cuDNN does it.
  std::string why_not(const Context& context, const AttentionCase& which) {
    const std::lock_guard lock(mutex_);
    context.api().make_current();
    const Kept* const kept = find(context, which);
    return kept == nullptr ? "a graph is recorded, and there was no plan before" : kept->why_not;
  }

 private:
  struct Kept {
    AttentionPlan plan;
    std::string why_not;    // the plan is not used; empty where it is
    bool recorded = false;  // in a graph, which launches the plan's kernels as long as it lives
  };

  // Null where a graph is recorded and the case is new.
  Kept* find(const Context& context, const AttentionCase& which) {
    const bool recording = is_recording(context);
    auto known = plans_.find(which);
    if (known == plans_.end()) {
      if (recording) {
        context.log(LogLevel::info,
                    concat(name_of(which), ": keel's own kernels in a graph that is recorded before this ever ran"));
        return nullptr;
      }
      if (plans_.size() >= kMostPlans) forget_plans(context);
      known = plans_.emplace(which, make(context, which)).first;
    }
    known->second.recorded |= recording;
    return &known->second;
  }

  void forget_plans(const Context& context) {
    context.synchronize();  // their kernels may be under way
    std::erase_if(plans_, [](const auto& entry) { return !entry.second.recorded; });
  }

  Kept make(const Context& context, const AttentionCase& which) {
    Kept kept;
    try {
      if (cudnnGetVersion() < kOldest)
        throw Error(concat(name_of_library(), " is older than 9.10.2"), ErrorKind::unsupported);
      if (handle_ == nullptr) cudnn::check(cudnnCreate(&handle_), "creating a handle");
      kept.plan = cudnn::plan_attention(which, {.handle = handle_});
      const std::int64_t bytes = kept.plan.plan->workspace_bytes(), most = workspace_limit(context);
      if (bytes > most)
        give_up(context, which, kept, concat("its plan works in ", bytes, " bytes and may have ", most));
    } catch (const Error& error) { give_up(context, which, kept, error.what()); }
    return kept;
  }

  // Allocates what the plan works in. What does not fit once is not tried again, so that a run does not change its ways
  // more often than it must.
  bool has_room(const Context& context, const AttentionCase& which, Kept& kept, Tensor& workspace) {
    if (!kept.why_not.empty()) return false;
    try {
      workspace = empty(context, {kept.plan.plan->workspace_bytes()}, DType::u8, Purpose::workspace);
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;  // anything but a full device
      give_up(context, which, kept, error.what());
      return false;
    }
  }

  void give_up(const Context& context, const AttentionCase& which, Kept& kept, std::string why) {
    if (!kept.recorded) kept.plan = {};
    context.log(std::exchange(told_, true) ? LogLevel::info : LogLevel::warning,
                concat(name_of(which), ": keel's own kernels instead of cuDNN's; ", why));
    kept.why_not = std::move(why);
  }

  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionCase, Kept> plans_;
  bool told_ = false;
};

bool lies_aligned(const Tensor& x) {
  if (reinterpret_cast<std::uintptr_t>(x.raw()) % 16 != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (x.dim(d) > 1 && x.stride(d) % 8 != 0) return false;
  return true;
}

// The first option that cuDNN is not asked for; empty where there is none.
std::string_view option_of(const AttentionArgs& args) {
  if (args.bias.defined()) return "bias";
  if (args.starts.defined()) return "starts";
  if (args.window != 0) return "window";
  if (args.dropout.probability != 0) return "dropout";
  return {};
}

bool takes(const AttentionArgs& args) {
  if (!option_of(args).empty()) return false;
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

void attention_by_cudnn(const AttentionArgs& args) {
  const Context& context = args.q.context();
  const auto run = [&](cudnnHandle_t handle, const AttentionPlan& plan, void* workspace) {
    const Lengths lengths(args);
    std::vector<std::pair<Uid, void*>> tensors = {{plan.q, args.q.raw()},
                                                  {plan.k, args.k.raw()},
                                                  {plan.v, args.v.raw()},
                                                  {plan.out, args.out.raw()},
                                                  {plan.lse, args.lse.raw()}};
    if (args.lengths.defined())
      tensors.insert(tensors.end(),
                     {{plan.query_lengths, lengths.queries.raw()}, {plan.key_lengths, lengths.keys.raw()}});
    plan.plan->run(handle, tensors, workspace);
    if (args.lengths.defined()) clear_blind_queries(args, args.out, args.lse);
  };
  if (!takes(args) || !context.resource<State>().with_plan(context, AttentionCase(args), run)) attention(args);
}

void attention_backward_by_cudnn(const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  const Context& context = forward.q.context();
  const auto run = [&](cudnnHandle_t handle, const AttentionPlan& plan, void* workspace) {
    const Lengths lengths(forward);
    const Tensor delta = empty(context, forward.lse.shape(), DType::f32, Purpose::workspace);
    std::vector<std::pair<Uid, void*>> tensors = {
        {plan.q, forward.q.raw()},        {plan.k, forward.k.raw()},        {plan.v, forward.v.raw()},
        {plan.out, forward.out.raw()},    {plan.lse, forward.lse.raw()},    {plan.grad_out, args.grad_out.raw()},
        {plan.grad_q, args.grad_q.raw()}, {plan.grad_k, args.grad_k.raw()}, {plan.grad_v, args.grad_v.raw()},
        {plan.delta, delta.raw()}};
    if (forward.lengths.defined())
      tensors.insert(tensors.end(),
                     {{plan.query_lengths, lengths.queries.raw()}, {plan.key_lengths, lengths.keys.raw()}});
    plan.plan->run(handle, tensors, workspace);
    if (!forward.lengths.defined()) return;
    clear_blind_queries(forward, args.grad_q);
    clear_padded_keys(forward, args.grad_k);
    clear_padded_keys(forward, args.grad_v);
  };
  if (!takes(args) || !context.resource<State>().with_plan(context, AttentionCase(args), run)) attention_backward(args);
}

// `forward`: the arguments, or a part of them.
template <class Args>
std::string backend_of(const Args& args, const AttentionArgs& forward) {
  if (const std::string_view option = option_of(forward); !option.empty())
    return concat("keel: cuDNN is not asked for the option `", option, '`');
  if (!takes(args)) return "keel: cuDNN is not asked for such a dtype, head size, length or alignment";
  const Context& context = forward.q.context();
  const std::string why_not = context.resource<State>().why_not(context, AttentionCase(args));
  return why_not.empty() ? name_of_library() : concat("keel: ", why_not);
}

}  // namespace

std::string cudnn_backend(const AttentionArgs& args) { return backend_of(args, args); }
std::string cudnn_backend(const AttentionBackwardArgs& args) { return backend_of(args, args.forward); }

void add_cudnn_attention(KernelTable& table) {
  table.attention = attention_by_cudnn;
  table.attention_backward = attention_backward_by_cudnn;
}

}  // namespace keel::cuda
