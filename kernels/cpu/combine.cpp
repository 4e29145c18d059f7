#include "keel/kernels/combine_spans.h"

#include <vector>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"

namespace keel::cpu {
namespace {

void combine(const CombineArgs& args) {
  std::vector<const std::byte*> terms;
  for (const Tensor& term : args.terms) terms.push_back(term.raw());
  std::byte* const out = args.out.raw();
  const CombineSpans spans{args.terms.front().dtype(), args.out.dtype(), args.op, args.divisor};
  parallel_for(args.out.context(), args.out.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    combine_spans(spans, terms, {&out, 1}, begin, end);
  });
}

}  // namespace

void add_combine(KernelTable& table) { table.combine = combine; }

}  // namespace keel::cpu
