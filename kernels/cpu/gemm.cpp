#include "keel/kernels/cpu/gemm.h"

#include <algorithm>
#include <optional>

#include "keel/kernels/cpu/block_product.h"
#include "keel/kernels/cpu/pack.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/kernels/functors.h"
#include "keel/runtime/parallel.h"

// A whole product on all threads. The operand with fewer rows (or columns) is packed once and shared by
// all threads; each task packs its own piece of the other. So everything is packed once.
namespace keel::cpu {
namespace {

constexpr std::int64_t kTasks = 32;            // wanted at least where the product is large enough
constexpr std::int64_t kPackingProducts = 16;  // multiply-adds in the time that packing a number takes

template <class Sum, class Out>
void store_row(const Sum* sums, std::int64_t n, Out* out) {
  std::int64_t q = 0;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<Out, bf16>) {
    for (; q + 32 <= n; q += 32)
      store_rounded(load_vector<float>(sums + q), load_vector<float>(sums + q + 16), out + q);
  }
#endif
  for (; q < n; ++q) out[q] = Out(sums[q]);
}

// Writes finished sums to the output: bias, GELU, rounding, addition.
template <class T, class Out>
void write_row(const GemmArgs<T, Out>& args, const Accumulator<T>* sums, std::int64_t i, std::int64_t j,
               std::int64_t columns) {
  using Sum = Accumulator<T>;
  Out* c = args.c + i * args.ldc + j;
  if (args.epilogue == Epilogue::none) {
    if (args.accumulate) {
      for (std::int64_t q = 0; q < columns; ++q) c[q] = Out(static_cast<Sum>(c[q]) + sums[q]);
    } else {
      store_row(sums, columns, c);
    }
    return;
  }
  const T* bias = args.bias + j;
  Out* before = args.pre_activation != nullptr ? args.pre_activation + i * args.ld_pre_activation + j : c;
  for (std::int64_t q = 0; q < columns; ++q) before[q] = Out(sums[q] + static_cast<Sum>(bias[q]));
  if (args.epilogue == Epilogue::bias_gelu) {
    // GELU of the rounded value, so that the fused product equals the separate operations.
    for (std::int64_t q = 0; q < columns; ++q) c[q] = Out(GeluTanh{}.forward(static_cast<Sum>(before[q])));
  }
}

template <class T, class Out>
class ParallelProduct {
 public:
  using P = Product<T>;
  using Unit = typename P::Unit;
  using Sum = Accumulator<T>;

  ParallelProduct(const Context& context, const GemmArgs<T, Out>& args) : context_(context), args_(args) {
    steps_ = steps_of<P>(args.k);
    block_ = block_steps(steps_);
    left_shared_ = args.m <= args.n;
    const std::int64_t shared = left_shared_ ? args.m : args.n;
    const std::int64_t free = left_shared_ ? args.n : args.m;
    const std::int64_t granule = left_shared_ ? kTileColumns<P> : kTileRows;
    const std::int64_t products = std::max<std::int64_t>(1, shared * args.k);
    const std::int64_t wanted = std::max(divide_up(free, kTasks), divide_up(kTaskProducts, products));
    task_extent_ = std::min(round_up(wanted, granule), left_shared_ ? kBlockColumns<P> : kTaskRows);
    super_ = std::max(block_, kSharedUnits / std::max<std::int64_t>(shared, 1) / block_ * block_);
    tasks_ = divide_up(free, task_extent_);
    const std::int64_t task_work = task_extent_ * args.k * (shared + kPackingProducts);
    task_grain_ = std::max<std::int64_t>(1, kTaskProducts / std::max<std::int64_t>(1, task_work));
    direct_ = std::is_same_v<Out, Sum> && args.epilogue == Epilogue::none;
    left_in_place_ = readable_in_place<P>(args.a, args.m, args.n, args.k);
  }

  void run() {
    const std::int64_t shared = left_shared_ ? args_.m : args_.n;
    const std::int64_t free = left_shared_ ? args_.n : args_.m;
    const std::int64_t shared_width = left_shared_ ? kTileRows : kTileColumns<P>;
    const Workspace<Unit> panels(context_, round_up(shared, shared_width) * std::min(super_, steps_));
    std::optional<Workspace<Sum>> sums;
    if (!direct_ && super_ < steps_) sums.emplace(context_, args_.m * args_.n);
    std::int64_t first = 0;
    do {  // once also for k = 0, which writes zeros
      const std::int64_t last = std::min(steps_, first + super_);
      if (!left_shared_ || !left_in_place_) pack_shared(panels.data(), first, last);
      parallel_for(context_, tasks_, task_grain_, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t from = begin * task_extent_; from < std::min(free, end * task_extent_); from += task_extent_)
          run_task(panels.data(), sums ? sums->data() : nullptr, first, last, from,
                   std::min(free, from + task_extent_));
      });
      first = last;
    } while (first < steps_);
  }

 private:
  // k of the steps [first, last).
  std::int64_t k_of(std::int64_t first, std::int64_t last) const {
    return std::min(args_.k, last * P::kDepth) - first * P::kDepth;
  }

  void pack_left(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t last, Unit* out) const {
    pack<P, kTileRows>(args_.a.at(row, first * P::kDepth), rows, k_of(first, last), out);
  }
  void pack_right(std::int64_t column, std::int64_t columns, std::int64_t first, std::int64_t last, Unit* out) const {
    pack<P, kTileColumns<P>>(args_.b.at(first * P::kDepth, column).transposed(), columns, k_of(first, last), out);
  }

  // Layout: k block by k block, each with all its panels.
  void pack_shared(Unit* panels, std::int64_t first, std::int64_t last) const {
    const std::int64_t shared = left_shared_ ? args_.m : args_.n;
    const std::int64_t width = left_shared_ ? kTileRows : kTileColumns<P>;
    const std::int64_t padded = round_up(shared, width);
    const bool small = tasks_ <= task_grain_;  // multiplied by one thread, so packed by it
    const std::int64_t grain =
        small ? shared : round_up(divide_up(kElementGrain, std::max<std::int64_t>(last - first, 1)), width);
    parallel_for(context_, shared, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = first; s < last; s += block_) {
        const std::int64_t block_end = std::min(last, s + block_);
        Unit* out = panels + (s - first) * padded + begin * (block_end - s);
        if (left_shared_) pack_left(begin, end - begin, s, block_end, out);
        else pack_right(begin, end - begin, s, block_end, out);
      }
    });
  }

  // Computes the rows (or columns, when the left operand is shared) [begin, end) of the output.
  void run_task(const Unit* shared_panels, Sum* all_sums, std::int64_t first, std::int64_t last, std::int64_t begin,
                std::int64_t end) const {
    const std::int64_t row = left_shared_ ? 0 : begin, column = left_shared_ ? begin : 0;
    const std::int64_t m = left_shared_ ? args_.m : end - begin, n = left_shared_ ? end - begin : args_.n;
    const std::int64_t own_width = left_shared_ ? kTileColumns<P> : kTileRows;
    const std::int64_t padded_shared = left_shared_ ? round_up(args_.m, kTileRows) : round_up(args_.n, kTileColumns<P>);
    const Workspace<Unit> own_panels(context_, round_up(end - begin, own_width) * std::min(block_, last - first));

    // Where sums of unfinished blocks live: the output itself when it can hold them.
    std::optional<Workspace<Sum>> own_sums;
    Sum* sums = nullptr;
    std::int64_t ld = args_.ldc;
    if constexpr (std::is_same_v<Out, Sum>) {
      if (direct_) sums = args_.c + row * args_.ldc + column;
    }
    if (!direct_ && all_sums != nullptr) {
      sums = all_sums + row * args_.n + column;
      ld = args_.n;
    } else if (!direct_ && last - first > block_) {
      sums = own_sums.emplace(context_, m * n).data();
      ld = n;
    }
    const auto write_tile = [&](const Sum* tile, std::int64_t tile_ld, std::int64_t i, std::int64_t j,
                                std::int64_t rows, std::int64_t columns) {
      for (std::int64_t r = 0; r < rows; ++r) write_row(args_, tile + r * tile_ld, row + i + r, column + j, columns);
    };
    const Finish<Sum> finish = write_tile;

    std::int64_t s = first;
    do {
      const std::int64_t block_end = std::min(last, s + block_);
      const Unit* shared = shared_panels + (s - first) * padded_shared;
      if (left_shared_) pack_right(column, n, s, block_end, own_panels.data());
      else if (!left_in_place_) pack_left(row, m, s, block_end, own_panels.data());
      BlockProduct<P> product;
      product.m = m;
      product.n = n;
      product.steps = block_end - s;
      product.a = {left_shared_ ? shared : own_panels.data()};
      if (left_in_place_) product.a = left_in_place<P>(args_.a.at(row, s * P::kDepth));
      product.b = left_shared_ ? own_panels.data() : shared;
      product.b_stride = product.steps * kTileColumns<P>;
      product.alpha = args_.alpha;
      product.add = s > 0 || (direct_ && args_.accumulate);
      product.c = sums;
      product.ldc = ld;
      product.finish = !direct_ && block_end == steps_ ? &finish : nullptr;
      if constexpr (std::is_same_v<Out, bf16>) {
        if (sums == nullptr && args_.epilogue == Epilogue::none && !args_.accumulate) {
          product.rounded = args_.c + row * args_.ldc + column;
          product.ld_rounded = args_.ldc;
        }
      }
      product.ahead = next_source(begin, end, block_end, last);
      product.run();
      s = block_end;
    } while (s < last);
  }

  // What this thread will pack next: the following k block of its rows (or columns), or the first of the next task's.
  Ahead next_source(std::int64_t begin, std::int64_t end, std::int64_t step, std::int64_t last) const {
    if (!left_shared_ && left_in_place_) return {};
    if (step == last) {
      step = 0;
      begin = end;
      end = std::min(end + task_extent_, left_shared_ ? args_.n : args_.m);
      if (begin >= end) return {};
    }
    const std::int64_t k = k_of(step, std::min(last, step + block_));
    if (left_shared_) return Ahead(args_.b.at(step * P::kDepth, begin).transposed(), end - begin, k);
    return Ahead(args_.a.at(begin, step * P::kDepth), end - begin, k);
  }

  const Context& context_;
  const GemmArgs<T, Out>& args_;
  std::int64_t steps_;        // of k
  std::int64_t block_;        // steps of a k block
  std::int64_t super_;        // steps for which the shared operand is packed at once
  bool left_shared_;          // A is the operand that all tasks share
  std::int64_t task_extent_;  // columns (left shared) or rows of C in a task
  std::int64_t tasks_;
  std::int64_t task_grain_;  // tasks that are worth a thread
  bool left_in_place_;       // A is not packed
  bool direct_;              // sums go straight to the output
};

}  // namespace

template <class T, class Out>
void gemm(const Context& context, const GemmArgs<T, Out>& args) {
  if (args.m == 0 || args.n == 0) return;
  ParallelProduct<T, Out>(context, args).run();
}

#define KEEL_INSTANTIATE_GEMM(T, Out) template void gemm<T, Out>(const Context&, const GemmArgs<T, Out>&)
KEEL_INSTANTIATE_GEMM(float, float);
KEEL_INSTANTIATE_GEMM(double, double);
KEEL_INSTANTIATE_GEMM(bf16, bf16);
KEEL_INSTANTIATE_GEMM(bf16, float);
KEEL_INSTANTIATE_GEMM(f16, f16);
KEEL_INSTANTIATE_GEMM(f16, float);
#undef KEEL_INSTANTIATE_GEMM

}  // namespace keel::cpu
