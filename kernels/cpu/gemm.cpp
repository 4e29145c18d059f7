#include "keel/kernels/cpu/gemm.h"

#include <algorithm>
#include <optional>

#include "keel/kernels/cpu/pack.h"
#include "keel/kernels/cpu/workspace.h"
#include "keel/kernels/functors.h"
#include "keel/runtime/parallel.h"

// Blocking, after Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008):
// k is cut into blocks whose A panel stays in the first-level cache while the panels of a block of B
// stream past it from the second level. The operand with fewer rows (or columns) is packed once and
// shared by all threads; each task packs its own piece of the other. So everything is packed once.
namespace keel::cpu {
namespace {

constexpr std::int64_t kBlockSteps = 384;       // of k: an A panel of 18 KiB
constexpr std::int64_t kUnpackedColumns = 768;  // of B, up to which A is not packed where it need not be
constexpr std::int64_t kTaskRows = 96;          // rows of C a task computes when B is shared
constexpr std::int64_t kSharedUnits = 2 << 20;  // of the shared operand at a time (8 MiB)
constexpr std::int64_t kTasks = 32;             // wanted at least where the product is large enough
constexpr std::int64_t kPackingProducts = 16;   // multiply-adds in the time that packing a number takes

template <class P>  // of B, whole panels: a block of 384 KiB
constexpr std::int64_t kBlockColumns = 256 / kTileColumns<P>* kTileColumns<P>;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return divide_up(value, multiple) * multiple; }

// Steps of each k block but the last, all nearly equal.
std::int64_t block_steps(std::int64_t steps) {
  return std::max<std::int64_t>(1, divide_up(steps, divide_up(std::max<std::int64_t>(steps, 1), kBlockSteps)));
}

template <class P>
std::int64_t steps_of(std::int64_t k) {
  return divide_up(k, P::kDepth);
}

// Called with finished sums: tile (rows, columns) of C whose first element is (i, j).
template <class Sum>
using Finish = FunctionRef<void(const Sum* tile, std::int64_t ld, std::int64_t i, std::int64_t j, std::int64_t rows,
                                std::int64_t columns)>;

// The left operand of a block: panels (steps, kTileRows) one after the other, or rows as they lie in memory.
template <class P>
struct Left {
  const typename P::Unit* units;
  std::int64_t row = 0;  // units from one row to the next; 0 for panels

  bool packed() const { return row == 0; }
  const typename P::Unit* at(std::int64_t i, std::int64_t steps) const {
    return units + (packed() ? i / kTileRows * kTileRows * steps : i * row);
  }
};

// Whether the micro-kernel can read (m, k) of `a` where it lies: whole units, dense along k. Packing
// costs about n / 10 of the product, so it is left out where n is small; not where rows lie a multiple
// of 4 KiB apart, since they would then share eight lines of the first-level cache.
template <class P, class T>
bool readable_in_place(const MatrixView<T>& a, std::int64_t m, std::int64_t n, std::int64_t k) {
  if constexpr (sizeof(T) * P::kDepth != sizeof(typename P::Unit)) return false;
  constexpr std::int64_t size = sizeof(T);
  const bool units = a.col == 1 && k % P::kDepth == 0 && a.row % P::kDepth == 0 && a.row != 0 &&
                     reinterpret_cast<std::uintptr_t>(a.data) % sizeof(typename P::Unit) == 0;
  return units && (m <= kTileRows || (n <= kUnpackedColumns && a.row * size % 4096 != 0));
}

template <class P, class T>
Left<P> left_in_place(const MatrixView<T>& a) {
  return {reinterpret_cast<const typename P::Unit*>(a.data), a.row / P::kDepth};
}

// Source of the block that will be packed next: fetched into the second-level cache a few lines at a
// time while the current block is multiplied, since packing by itself would wait for memory.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  Ahead(const MatrixView<T>& x, std::int64_t rows, std::int64_t columns)
      : next_(reinterpret_cast<const char*>(x.data)),
        stride_((x.col == 1 ? x.row : x.col) * static_cast<std::int64_t>(sizeof(T))),
        row_bytes_((x.col == 1 ? columns : rows) * static_cast<std::int64_t>(sizeof(T))),
        rows_left_(x.col == 1 ? rows : columns) {}

  std::int64_t lines() const { return rows_left_ * ((row_bytes_ + kLine - 1) / kLine); }
  void fetch(std::int64_t lines) {
    for (; lines > 0 && rows_left_ > 0; --lines) {
      __builtin_prefetch(next_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      next_ += stride_;
      --rows_left_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* next_ = nullptr;
  std::int64_t stride_ = 0, row_bytes_ = 0, rows_left_ = 0, at_ = 0;
};

// The product of one k block of packed panels, added to (or written over) c; or handed to `finish`
// tile by tile, in which case c may be null when there is nothing to add to.
template <class P>
struct BlockProduct {
  using Unit = typename P::Unit;
  using Sum = typename P::Sum;
  static constexpr std::int64_t kColumns = kTileColumns<P>;

  std::int64_t m, n, steps;
  Left<P> a;
  const Unit* b;          // panels (steps, kColumns)
  std::int64_t b_stride;  // units from one panel to the next
  Sum alpha;
  bool add;
  Sum* c;
  std::int64_t ldc;
  const Finish<Sum>* finish = nullptr;
  bf16* rounded = nullptr;  // with PairProduct: whole finished tiles are rounded to here instead
  std::int64_t ld_rounded = 0;
  Ahead ahead = {};

  void run() {
    if (m <= 0 || n <= 0) return;
    const std::int64_t tiles = divide_up(m, kTileRows) * divide_up(n, kColumns);
    const std::int64_t lines = divide_up(ahead.lines(), tiles);
    for (std::int64_t block = 0; block < n; block += kBlockColumns<P>) {
      const std::int64_t block_end = std::min(n, block + kBlockColumns<P>);
      for (std::int64_t i = 0; i < m; i += kTileRows) {
        for (std::int64_t j = block; j < block_end; j += kColumns) {
          ahead.fetch(lines);
          tile(i, j);
        }
      }
    }
  }

 private:
  void tile(std::int64_t i, std::int64_t j) const {
    const std::int64_t rows = std::min<std::int64_t>(kTileRows, m - i);
    const std::int64_t columns = std::min(kColumns, n - j);
    const std::int64_t vectors = divide_up(columns, kLanes<Sum>);
    const TileKernel<P, Sum> kernel = tile_kernel<P, Sum>(a.packed(), rows, vectors);
    const Unit* left = a.at(i, steps);
    const Unit* right = b + j / kColumns * b_stride;
    if constexpr (P::kDepth == 2) {
      if (rounded != nullptr && rows == kTileRows && columns == kColumns) {
        tile_kernel<P, bf16>(a.packed(), rows, vectors)(steps, left, a.row, right, alpha, false,
                                                        rounded + i * ld_rounded + j, ld_rounded);
        return;
      }
    }
    const bool whole_vectors = columns == vectors * kLanes<Sum>;
    if (c != nullptr && whole_vectors) {
      Sum* target = c + i * ldc + j;
      kernel(steps, left, a.row, right, alpha, add, target, ldc);
      if (finish != nullptr) (*finish)(target, ldc, i, j, rows, columns);
      return;
    }
    alignas(kVectorBytes) Sum buffer[kTileRows * kColumns];
    kernel(steps, left, a.row, right, alpha, false, buffer, kColumns);
    if (c != nullptr) {
      for (std::int64_t r = 0; r < rows; ++r) {
        Sum* target = c + (i + r) * ldc + j;
        const Sum* row = buffer + r * kColumns;
        for (std::int64_t q = 0; q < columns; ++q) target[q] = add ? target[q] + row[q] : row[q];
      }
      if (finish != nullptr) (*finish)(c + i * ldc + j, ldc, i, j, rows, columns);
    } else {
      (*finish)(buffer, kColumns, i, j, rows, columns);
    }
  }
};

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

template <class T>
std::int64_t packed_right_units(std::int64_t k, std::int64_t n) {
  return steps_of<Product<T>>(k) * round_up(n, kTileColumns<Product<T>>);
}

template <class T>
std::int64_t left_workspace_units(std::int64_t m, std::int64_t k) {
  return std::min(steps_of<Product<T>>(k), kBlockSteps) * round_up(m, kTileRows);
}

template <class T, class Source>
void pack_right(MatrixView<Source> b, const PackedRight<T>& packed) {
  using P = Product<T>;
  const std::int64_t steps = steps_of<P>(packed.k), block = block_steps(steps);
  const std::int64_t padded = round_up(packed.n, kTileColumns<P>);
  for (std::int64_t s = 0; s < steps; s += block) {
    const std::int64_t k = std::min(packed.k, (s + block) * P::kDepth) - s * P::kDepth;
    pack<P, kTileColumns<P>>(b.at(s * P::kDepth, 0).transposed(), packed.n, k, packed.units + s * padded);
  }
}

template <class T, class Source>
void multiply_packed(std::int64_t m, std::int64_t n, std::int64_t k, Accumulator<T> alpha, MatrixView<Source> a,
                     const PackedRight<T>& b, bool accumulate, Accumulator<T>* c, std::int64_t ldc,
                     UnitOf<T>* workspace) {
  using P = Product<T>;
  const std::int64_t all_steps = steps_of<P>(b.k), block = block_steps(all_steps), steps = steps_of<P>(k);
  const std::int64_t padded = round_up(b.n, kTileColumns<P>);
  const bool in_place = readable_in_place<P>(a, m, n, k);
  std::int64_t s = 0;
  do {
    const std::int64_t block_end = std::min(steps, s + block);
    const std::int64_t packed_steps = std::min(all_steps, s + block) - s;
    const MatrixView<Source> left = a.at(0, s * P::kDepth);
    if (!in_place) pack<P, kTileRows>(left, m, std::min(k, block_end * P::kDepth) - s * P::kDepth, workspace);
    BlockProduct<P> product;
    product.m = m;
    product.n = n;
    product.steps = block_end - s;
    product.a = in_place ? left_in_place<P>(left) : Left<P>{workspace};
    product.b = b.units + s * padded;
    product.b_stride = packed_steps * kTileColumns<P>;
    product.alpha = alpha;
    product.add = accumulate || s > 0;
    product.c = c;
    product.ldc = ldc;
    product.run();
    s = block_end;
  } while (s < steps);
}

#define KEEL_INSTANTIATE_GEMM(T, Out) template void gemm<T, Out>(const Context&, const GemmArgs<T, Out>&)
KEEL_INSTANTIATE_GEMM(float, float);
KEEL_INSTANTIATE_GEMM(double, double);
KEEL_INSTANTIATE_GEMM(bf16, bf16);
KEEL_INSTANTIATE_GEMM(bf16, float);
KEEL_INSTANTIATE_GEMM(f16, f16);
KEEL_INSTANTIATE_GEMM(f16, float);
#undef KEEL_INSTANTIATE_GEMM

#define KEEL_INSTANTIATE_SIZES(T)                                          \
  template std::int64_t packed_right_units<T>(std::int64_t, std::int64_t); \
  template std::int64_t left_workspace_units<T>(std::int64_t, std::int64_t)
KEEL_INSTANTIATE_SIZES(float);
KEEL_INSTANTIATE_SIZES(double);
KEEL_INSTANTIATE_SIZES(bf16);
KEEL_INSTANTIATE_SIZES(f16);
#undef KEEL_INSTANTIATE_SIZES

#define KEEL_INSTANTIATE_PACKED(T, Source)                                                                   \
  template void pack_right<T, Source>(MatrixView<Source>, const PackedRight<T>&);                            \
  template void multiply_packed<T, Source>(std::int64_t, std::int64_t, std::int64_t, Accumulator<T>,         \
                                           MatrixView<Source>, const PackedRight<T>&, bool, Accumulator<T>*, \
                                           std::int64_t, UnitOf<T>*)
KEEL_INSTANTIATE_PACKED(float, float);
KEEL_INSTANTIATE_PACKED(double, double);
KEEL_INSTANTIATE_PACKED(bf16, bf16);
KEEL_INSTANTIATE_PACKED(bf16, float);
KEEL_INSTANTIATE_PACKED(f16, f16);
KEEL_INSTANTIATE_PACKED(f16, float);
#undef KEEL_INSTANTIATE_PACKED

}  // namespace keel::cpu
