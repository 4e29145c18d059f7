#include "keel/kernels/combine.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel {

std::string_view name_of(CombineOp op) {
  constexpr std::string_view kNames[kCombineOps] = {"sum", "maximum", "minimum", "product", "mean", "pairwise"};
  return kNames[static_cast<int>(op)];
}

void kernels::combine(const CombineArgs& args) {
  constexpr const char* kOp = "combine";
  KEEL_CHECK(!args.terms.empty(), kOp, " needs one term at least");
  KEEL_CHECK(args.divisor >= 0, kOp, ": a mean cannot divide by ", args.divisor);
  check_defined(kOp, "out", args.out);
  check_dense(kOp, "out", args.out);
  const DType dtype = args.terms.front().dtype();
  KEEL_CHECK(args.out.dtype() == dtype || (args.out.dtype() == DType::f32 && is_floating(dtype) && dtype != DType::f64),
             kOp, ": out must be ", dtype, " as its terms, or the fp32 that narrow ones are added in, got ", args.out);
  for (const Tensor& term : args.terms) {
    check_context(kOp, "term", term, args.out.context());
    KEEL_CHECK(term.numel() == args.out.numel() && term.dtype() == dtype, kOp, ": terms must be ", dtype, " with ",
               args.out.numel(), " elements, got ", term);
    check_dense(kOp, "term", term);
  }
  const Context& context = args.out.context();
  run_kernel(context, kOp, kernel_table(context).combine, args);
  args.out.mark_written();
}

}  // namespace keel
