#include <cstring>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/indices.h"

namespace keel::cpu {
namespace {

void embedding(const EmbeddingArgs& args) {
  const std::int64_t count = args.ids.numel(), vocabulary = args.table.dim(0), width = args.table.dim(1);
  const std::size_t element = size_of(args.table.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(width) * element;
  const std::size_t row_stride = static_cast<std::size_t>(args.table.stride(0)) * element;
  visit_index(args.ids.dtype(), [&](auto tag) {
    using Index = typename decltype(tag)::type;
    const Index* const ids = args.ids.data<Index>();
    check_indices("embedding: id", ids, count, vocabulary);
    if (args.out.numel() == 0) return;
    const std::byte* const table = args.table.raw();
    std::byte* const out = args.out.raw();
    parallel_for(args.table.context(), count, row_grain(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        std::memcpy(out + static_cast<std::size_t>(i) * row_bytes,
                    table + static_cast<std::size_t>(ids[i]) * row_stride, row_bytes);
    });
  });
}

// G: dtype of grad_output; D: dtype of grad_table, G or f32.
template <class G, class D>
void add_rows(const EmbeddingBackwardArgs& args, const PositionsByIndex& positions) {
  using A = Accumulator<G>;
  const std::int64_t vocabulary = args.grad_table.dim(0), width = args.grad_table.dim(1);
  const G* const grad_output = args.grad_output.data<G>();
  D* const grad_table = args.grad_table.data<D>();
  const std::int64_t work = args.grad_output.numel() + (args.add ? 0 : args.grad_table.numel());
  const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain * vocabulary / std::max<std::int64_t>(1, work));
  const Context& context = args.grad_output.context();
  parallel_for(context, vocabulary, grain, [&](std::int64_t begin, std::int64_t end) {
    const Workspace<A> sums(context, width);
    A* const sum = sums.data();
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t* const first = positions.begin(row);
      const std::int64_t* const last = positions.end(row);
      D* const to = grad_table + row * width;
      if (first == last) {
        if (!args.add) std::fill(to, to + width, D(0));
        continue;
      }
      for (std::int64_t j = 0; j < width; ++j) sum[j] = args.add ? static_cast<A>(widen(to[j])) : A{0};
      for (const std::int64_t* position = first; position != last; ++position) {
        const G* const from = grad_output + *position * width;
        for (std::int64_t j = 0; j < width; ++j) sum[j] += widen(from[j]);
      }
      for (std::int64_t j = 0; j < width; ++j) to[j] = static_cast<D>(sum[j]);
    }
  });
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  visit_index(args.ids.dtype(), [&](auto index) {
    using Index = typename decltype(index)::type;
    const Index* const ids = args.ids.data<Index>();
    const std::int64_t count = args.ids.numel(), vocabulary = args.grad_table.dim(0);
    check_indices("embedding_backward: id", ids, count, vocabulary);
    const PositionsByIndex positions(args.ids.context(), ids, count, vocabulary);
    visit_floating(args.grad_output.dtype(), [&](auto value) {
      using G = typename decltype(value)::type;
      if (args.grad_table.dtype() == args.grad_output.dtype()) add_rows<G, G>(args, positions);
      else add_rows<G, float>(args, positions);
    });
  });
}

}  // namespace

void add_embedding(KernelTable& table) {
  table.embedding = embedding;
  table.embedding_backward = embedding_backward;
}

}  // namespace keel::cpu
