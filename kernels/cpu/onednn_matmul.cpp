#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/kernels/functors.h"
#include "keel/runtime/parallel.h"

// oneDNN (2.6 and later) behind the matmul entry. Where both use the same instructions keel's own kernels
// are as fast (bench/matmul.cpp: within 3 % on the products of a GPT, faster where GELU is fused), give
// the same bits at any thread count and need no warm-up, so oneDNN is preferred only where it has
// instructions that keel was not compiled for: AMX, or AVX-512 in a portable build.
namespace keel::cpu {
namespace {

using dnnl::memory;

// Whether the processor has at least these instructions, asked once; ONEDNN_MAX_CPU_ISA may take some away.
// The values of cpu_isa are sets of bits, each containing those of the older processors.
bool has(dnnl::cpu_isa isa) {
  static const auto all = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (all & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

// Whether oneDNN multiplies this dtype without imitating it (f16 and f64 it refuses).
bool multiplies(DType dtype) {
  return dtype == DType::f32 || (dtype == DType::bf16 && has(dnnl::cpu_isa::avx512_core_bf16));
}

// Whether its instructions are better than those that keel's kernels were compiled for.
bool preferred(DType dtype) {
  if (dtype == DType::f32) return kVectorBytes < 64 && has(dnnl::cpu_isa::avx512_core);
  if (dtype != DType::bf16) return false;
  return has(Product<bf16>::kDepth == 2 ? dnnl::cpu_isa::avx512_core_amx : dnnl::cpu_isa::avx512_core_bf16);
}

// Everything that a primitive is made for. Two equal problems share one primitive.
struct Problem {
  std::int64_t m, n, k;
  std::int64_t a_row, a_col, b_row, b_col, ldc;  // strides
  std::int64_t dtype, out_dtype, accumulate, bias, threads;
  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const {
    std::array<std::int64_t, sizeof(Problem) / sizeof(std::int64_t)> words;
    std::memcpy(words.data(), &problem, sizeof problem);
    std::uint64_t hash = 1469598103934665603u;  // FNV-1a
    for (const std::int64_t word : words) hash = (hash ^ static_cast<std::uint64_t>(word)) * 1099511628211u;
    return hash;
  }
};

memory::data_type type_of(DType dtype) {
  return dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

struct Plan {
  Plan(const Problem& problem, const dnnl::engine& engine) {
    const auto in = type_of(static_cast<DType>(problem.dtype)), out = type_of(static_cast<DType>(problem.out_dtype));
    const memory::desc a({problem.m, problem.k}, in, {problem.a_row, problem.a_col});
    const memory::desc b({problem.k, problem.n}, in, {problem.b_row, problem.b_col});
    const memory::desc c({problem.m, problem.n}, out, {problem.ldc, 1});
    const memory::desc bias({1, problem.n}, in, {problem.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // so that it is counted as workspace
    if (problem.accumulate) {
      dnnl::post_ops after;
      after.append_sum();
      attributes.set_post_ops(after);
    }
#if DNNL_VERSION_MAJOR >= 3
    const auto chosen = problem.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                                     : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    const auto description = problem.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine);
#endif
    product = dnnl::matmul(chosen);
    descriptions = {a, b, c, bias, chosen.scratchpad_desc()};
  }
  dnnl::matmul product;
  std::array<memory::desc, 5> descriptions;  // a, b, c, bias, scratchpad
};

// The primitives of one context.
class Plans {
 public:
  std::shared_ptr<const Plan> find(const Problem& problem) {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(problem); found != plans_.end()) return found->second;
    // Generation meets a new length at every step; a training run never comes near this.
    if (plans_.size() >= kMost) plans_.clear();
    return plans_[problem] = std::make_shared<Plan>(problem, engine_);
  }
  const dnnl::engine& engine() const { return engine_; }

 private:
  static constexpr std::size_t kMost = 512;
  std::mutex mutex_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  std::unordered_map<Problem, std::shared_ptr<const Plan>, ProblemHash> plans_;
};

void execute(const Context& context, Plans& plans, const Plan& plan, const MatmulArgs& args) {
  const dnnl::engine& engine = plans.engine();
  const Workspace<std::byte> scratchpad(context, static_cast<std::int64_t>(plan.descriptions[4].get_size()));
  std::unordered_map<int, memory> operands = {
      {DNNL_ARG_SRC, memory(plan.descriptions[0], engine, args.a.raw())},
      {DNNL_ARG_WEIGHTS, memory(plan.descriptions[1], engine, args.b.raw())},
      {DNNL_ARG_DST, memory(plan.descriptions[2], engine, args.out.raw())},
      {DNNL_ARG_SCRATCHPAD, memory(plan.descriptions[4], engine, scratchpad.data())}};
  if (args.bias.defined()) operands.emplace(DNNL_ARG_BIAS, memory(plan.descriptions[3], engine, args.bias.raw()));
  dnnl::stream stream(engine);
  plan.product.execute(stream, operands);
  stream.wait();
}

// A stride that oneDNN accepts where the extent is 1 and the stride has no meaning.
Problem problem_of(const MatmulArgs& args) {
  const auto stride = [](const Tensor& x, int dim, std::int64_t otherwise) {
    return x.dim(dim) == 1 ? otherwise : x.stride(dim);
  };
  Problem p = {};
  p.m = args.out.dim(0);
  p.n = args.out.dim(1);
  p.k = args.a.dim(1);
  p.a_col = stride(args.a, 1, 1);
  p.a_row = stride(args.a, 0, p.a_col == 1 ? p.k : 1);
  p.b_col = stride(args.b, 1, 1);
  p.b_row = stride(args.b, 0, p.b_col == 1 ? p.n : 1);
  p.ldc = stride(args.out, 0, p.n);
  p.dtype = static_cast<std::int64_t>(args.a.dtype());
  p.out_dtype = static_cast<std::int64_t>(args.out.dtype());
  p.accumulate = args.accumulate;
  p.bias = args.epilogue != Epilogue::none;
  p.threads = p.m * p.n * p.k < 2 * kTaskProducts ? 1 : available_threads(args.a.context());
  return p;
}

bool fits(const MatmulArgs& args, const Problem& p) {
  const bool rows = p.a_col == 1 ? p.a_row >= p.k : p.a_row == 1 && p.a_col >= p.m;
  const bool columns = p.b_col == 1 ? p.b_row >= p.n : p.b_row == 1 && p.b_col >= p.k;
  return rows && columns && p.ldc >= p.n && args.alpha == 1;
}

std::string_view name_of_processor() {
  if (has(dnnl::cpu_isa::avx512_core_amx)) return "AMX";
  if (has(dnnl::cpu_isa::avx512_core_bf16)) return "AVX-512 bf16";
  if (has(dnnl::cpu_isa::avx512_core)) return "AVX-512";
  return has(dnnl::cpu_isa::avx2) ? "AVX2" : "less than AVX2";
}

// out = gelu(before), both (rows, columns) with dense rows; they may be one.
void apply_gelu(const Tensor& before, const Tensor& out) {
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = before.data<T>();
    T* to = out.data<T>();
    const std::int64_t columns = out.dim(1), grain = std::max<std::int64_t>(1, kElementGrain / columns);
    parallel_for(out.context(), out.dim(0), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* x = from + i * before.stride(0);
        T* y = to + i * out.stride(0);
        for (std::int64_t j = 0; j < columns; ++j) y[j] = T(GeluTanh{}.forward(static_cast<Accumulator<T>>(x[j])));
      }
    });
  });
}

}  // namespace

void multiply_onednn(const MatmulArgs& args) {
  if (args.same_bits) return multiply_plain(args);
  if (args.epilogue == Epilogue::bias_gelu && args.out.rank() == 2 && multiplies(args.a.dtype())) {
    MatmulArgs linear = args;
    linear.epilogue = Epilogue::bias;
    linear.out = args.pre_activation.defined() ? args.pre_activation : args.out;
    linear.pre_activation = {};
    multiply_onednn(linear);
    return apply_gelu(linear.out, args.out);
  }
  if (args.out.rank() != 2 || !multiplies(args.a.dtype()) || args.a.dim(1) == 0) return multiply_plain(args);
  const Problem problem = problem_of(args);
  if (!fits(args, problem)) return multiply_plain(args);
  const Context& context = args.a.context();
  run_with_library_threads(static_cast<int>(problem.threads), [&] {
    try {
      auto& plans = context.resource<Plans>();
      execute(context, plans, *plans.find(problem), args);
    } catch (const dnnl::error& error) {
      throw Error(concat("matmul: oneDNN failed on ", args.a, " times ", args.b, ": ", error.what(),
                         "; kernels=plain avoids it"),
                  ErrorKind::internal);
    }
  });
}

std::string onednn_backend(DType dtype) {
  const dnnl_version_t& version = *dnnl_version();
  const std::string name = concat("oneDNN ", version.major, '.', version.minor, '.', version.patch);
  if (preferred(dtype)) return concat(name, " (", name_of_processor(), ")");
  if (multiplies(dtype)) return concat(plain_backend(dtype), ": ", name, " has no better instructions here");
  if (dtype == DType::bf16) return concat(plain_backend(dtype), ": ", name, " needs AVX-512 bf16 or AMX");
  return concat(plain_backend(dtype), ": ", name, " multiplies no ", dtype);
}

namespace {

void multiply_preferred(const MatmulArgs& args) {
  if (preferred(args.a.dtype())) multiply_onednn(args);
  else multiply_plain(args);
}

}  // namespace

void add_onednn(KernelTable& table) { table.matmul = multiply_preferred; }

}  // namespace keel::cpu
