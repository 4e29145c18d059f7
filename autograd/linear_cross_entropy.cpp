#include "keel/autograd/linear_cross_entropy.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "keel/autograd/flops.h"
#include "keel/kernels/blocked_loss.h"
#include "keel/kernels/checks.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/reduce.h"
#include "keel/kernels/select.h"

namespace keel {
namespace {

DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The rows that are looked at, and what makes their logits.
struct Head {
  Tensor hidden;  // (rows, width), dense
  Tensor weight, bias;
  LogitsBlock block;

  std::int64_t rows() const { return hidden.dim(0); }
  std::int64_t width() const { return hidden.dim(1); }
  std::int64_t vocabulary() const { return weight.dim(0); }
  bool has_parts() const { return rows() > block.rows; }

  // f(first_row, end_row) for each part of the rows; once where there are none.
  template <class F>
  void each_part(const F& f) const {
    std::int64_t first = 0;
    do {
      const std::int64_t end = std::min(first + block.rows, rows());
      f(first, end);
      first = end;
    } while (first < rows());
  }
  // f(first_class, end_class), ascending.
  template <class F>
  void each_class_block(const F& f) const {
    for (std::int64_t first = 0; first < vocabulary(); first += block.classes)
      f(first, std::min(first + block.classes, vocabulary()));
  }
};

// Memory for the logits: of one block, which are computed anew for each, or of all, each block in a place of its own.
class BlockLogits {
 public:
  // `all`: what all_logits() gave, or undefined; `known`: whether they are computed.
  BlockLogits(const Head& head, const Tensor& all, bool known)
      : head_(head),
        memory_(all.defined() ? all
                              : memory_of(head, std::min(head.block.classes, head.vocabulary()), Purpose::workspace)),
        all_(all.defined()),
        known_(all.defined() && known) {}

  static Tensor all_logits(const Head& head) { return memory_of(head, head.vocabulary(), Purpose::activation); }

  Tensor of(std::int64_t first_row, std::int64_t end_row, std::int64_t first_class, std::int64_t end_class) const {
    const std::int64_t rows = end_row - first_row, classes = end_class - first_class;
    const std::int64_t place = all_ ? rows * first_class : 0;
    MatmulOptions options;
    options.into = memory_.slice(0, place, place + rows * classes).view({rows, classes});
    if (known_) return options.into;
    if (head_.bias.defined()) {
      options.epilogue = Epilogue::bias;
      options.bias = head_.bias.slice(0, first_class, end_class);
    }
    return kernels::matmul(head_.hidden.slice(0, first_row, end_row),
                           head_.weight.slice(0, first_class, end_class).transpose(0, 1), options);
  }

 private:
  static Tensor memory_of(const Head& head, std::int64_t classes, Purpose purpose) {
    return empty(head.hidden.context(), {std::min(head.block.rows, head.rows()) * classes}, head.hidden.dtype(),
                 purpose);
  }

  const Head& head_;
  Tensor memory_;
  bool all_, known_;
};

// A gradient whose blocks of classes come one after the other, each in the parts of its rows. Where those are several
// and the gradient has 16 bits, a block is summed beside it and rounded once.
class BlockwiseGradient {
 public:
  BlockwiseGradient(const Need& need, std::size_t input, const Tensor& parameter, const Head& head) {
    if (!need[input]) return;
    if (const auto destination = need.destination(input)) {
      into_ = destination->into;
      add_ = destination->add;
    } else {
      into_ = empty(parameter.context(), parameter.shape(), parameter.dtype());
    }
    if (head.has_parts() && size_of(into_.dtype()) == 2) {
      Dims shape = parameter.shape();
      shape[0] = std::min(head.block.classes, head.vocabulary());
      sums_ = empty(parameter.context(), shape, DType::f32, Purpose::workspace);
    }
  }
  bool wanted() const { return into_.defined(); }
  const Tensor& result() const { return into_; }

  // compute(into, add) writes or adds what one part of the rows gives.
  template <class F>
  void add_part(std::int64_t first_class, std::int64_t end_class, bool first_part, const F& compute) const {
    if (sums_.defined()) compute(sums_.slice(0, 0, end_class - first_class), !first_part);
    else compute(into_.slice(0, first_class, end_class), add_ || !first_part);
  }
  void end_block(std::int64_t first_class, std::int64_t end_class) const {
    if (!sums_.defined()) return;
    const Tensor into = into_.slice(0, first_class, end_class), sums = sums_.slice(0, 0, end_class - first_class);
    if (add_) kernels::accumulate(into, sums);
    else kernels::copy_into(into, sums);
  }

 private:
  Tensor into_, sums_;
  bool add_ = false;
};

void multiply_into(const Tensor& a, const Tensor& b, const Tensor& into, bool add) {
  MatmulOptions options;
  options.into = into;
  options.accumulate = add;
  kernels::matmul(a, b, options);
}

Gradients head_backward(const Head& head, const BlockLogits& logits, const BlockedLoss& loss, const Tensor& grad,
                        const Tensor& count, const Need& need) {
  const DType sums = sum_dtype(head.hidden.dtype());
  const bool narrow = sums != head.hidden.dtype();
  Tensor grad_hidden;
  if (need[0])
    grad_hidden =
        empty(head.hidden.context(), head.hidden.shape(), sums, narrow ? Purpose::workspace : Purpose::activation);
  const BlockwiseGradient grad_weight(need, 1, head.weight, head);
  const BlockwiseGradient grad_bias(need, 2, head.bias, head);

  head.each_class_block([&](std::int64_t first_class, std::int64_t end_class) {
    head.each_part([&](std::int64_t first, std::int64_t end) {
      const Tensor block = logits.of(first, end, first_class, end_class);
      kernels::logits_gradient(loss, block, first, first_class, grad, count);
      if (grad_hidden.defined())
        multiply_into(block, head.weight.slice(0, first_class, end_class), grad_hidden.slice(0, first, end),
                      first_class > 0);
      if (grad_weight.wanted())
        grad_weight.add_part(first_class, end_class, first == 0, [&](const Tensor& into, bool add) {
          multiply_into(block.transpose(0, 1), head.hidden.slice(0, first, end), into, add);
        });
      if (grad_bias.wanted())
        grad_bias.add_part(first_class, end_class, first == 0,
                           [&](const Tensor& into, bool add) { kernels::sum_rows(block, into, add); });
    });
    grad_weight.end_block(first_class, end_class);
    grad_bias.end_block(first_class, end_class);
  });
  if (narrow && grad_hidden.defined()) grad_hidden = kernels::cast(grad_hidden, head.hidden.dtype());
  return {grad_hidden, grad_weight.result(), grad_bias.result()};
}

void check_head(const Variable& hidden, const Variable& weight, const Variable& bias, const Tensor& targets,
                const LinearCrossEntropyOptions& options) {
  constexpr const char* kOp = "linear_cross_entropy";
  kernels::check_floating(kOp, "hidden", hidden.value());
  const Context& context = hidden.context();
  kernels::check_context(kOp, "weight", weight.value(), context);
  kernels::check_context(kOp, "targets", targets, context);
  KEEL_CHECK(weight.value().rank() == 2 && hidden.value().rank() >= 1 && hidden.dim(-1) == weight.dim(1), kOp,
             ": hidden ", hidden.shape(), " does not fit the weight ", weight.shape(), " (vocabulary, width)");
  KEEL_CHECK(weight.dtype() == hidden.dtype(), kOp, ": hidden in ", hidden.dtype(), " and the weight in ",
             weight.dtype(), " need one dtype; cast() one of them");
  if (bias.defined()) kernels::check_tensor(kOp, "bias", bias.value(), {weight.dim(0)}, hidden.dtype(), context);
  Dims rows = hidden.shape();
  rows.pop_back();
  KEEL_CHECK(targets.shape() == rows, kOp, ": targets must be ", rows, " for hidden ", hidden.shape(), ", got ",
             targets);
  KEEL_CHECK(options.block_rows >= 0 && options.block_classes >= 0, kOp,
             ": block_rows and block_classes must not be negative (0: chosen), got ", options.block_rows, " and ",
             options.block_classes);
  if (options.rows.defined()) {
    kernels::check_context(kOp, "rows", options.rows, context);
    KEEL_CHECK(options.rows.rank() == 1 && options.rows.dtype() == DType::i64, kOp, ": rows must be i64 (n), got ",
               options.rows);
  }
}

// Undefined where all are.
Tensor rows_to_look_at(const Tensor& targets, std::int64_t classes, const LinearCrossEntropyOptions& options) {
  if (options.rows.defined()) return options.rows;
  if (targets.device().type != DeviceType::cpu) return {};
  Tensor counted = kernels::counted_rows(targets, classes, options.ignore_index);
  return counted.numel() == targets.numel() ? Tensor() : counted;
}

bool keeps_logits(const Head& head, std::initializer_list<const Variable*> inputs,
                  const LinearCrossEntropyOptions& options) {
  const Tensor& hidden = head.hidden;
  const std::int64_t bytes = head.rows() * head.vocabulary() * static_cast<std::int64_t>(size_of(hidden.dtype()));
  return bytes <= options.kept_bytes && !head.has_parts() && hidden.device().type == DeviceType::cpu &&
         grad_mode() == GradMode::record &&
         std::ranges::any_of(inputs, [](const Variable* each) { return each->defined() && each->requires_grad(); });
}

}  // namespace

LogitsBlock linear_cross_entropy_block(std::int64_t rows, std::int64_t vocabulary, DeviceType device,
                                       const LinearCrossEntropyOptions& options) {
  // A block that stays in the processor's caches, or that fills a GPU with work.
  const std::int64_t most = (device == DeviceType::cpu ? std::int64_t{4} : std::int64_t{32}) << 20;
  constexpr std::int64_t kFewest = 256;  // classes
  constexpr std::int64_t kStep = 64, kUsual = 1024, kShare = 32;
  LogitsBlock block{};
  block.rows = options.block_rows > 0 ? options.block_rows : most / kFewest;
  block.rows = std::clamp<std::int64_t>(rows, 1, block.rows);
  const std::int64_t share = std::max(kUsual, (vocabulary / kShare + kStep - 1) / kStep * kStep);
  block.classes =
      options.block_classes > 0 ? options.block_classes : std::clamp(most / block.rows / kStep * kStep, kFewest, share);
  block.classes = std::clamp<std::int64_t>(vocabulary, 1, block.classes);
  return block;
}

CrossEntropyLoss linear_cross_entropy(const Variable& hidden, const Variable& weight, const Variable& bias,
                                      const Tensor& targets, const LinearCrossEntropyOptions& options) {
  check_head(hidden, weight, bias, targets, options);
  const std::int64_t vocabulary = weight.dim(0), width = weight.dim(1);
  Tensor states = kernels::as_rows("linear_cross_entropy", kernels::contiguous(hidden.value()));
  Tensor wanted = kernels::contiguous(targets).flatten();
  const Tensor rows = rows_to_look_at(wanted, vocabulary, options);
  const std::int64_t all_rows = states.dim(0), counted = options.rows.defined() ? rows.numel() : all_rows;
  if (rows.defined()) {
    states = kernels::index_select(states, 0, rows);
    wanted = kernels::index_select(wanted, 0, rows);
  }
  Head head{states, weight.value(), bias.defined() ? bias.value() : Tensor(), {}};
  head.block = linear_cross_entropy_block(head.rows(), vocabulary, hidden.context().device().type, options);

  BlockedLoss loss =
      kernels::start_blocked_loss(wanted, vocabulary, states.dtype(), options.ignore_index, options.label_smoothing);
  loss.places = rows;
  const Tensor all_logits =
      keeps_logits(head, {&hidden, &weight, &bias}, options) ? BlockLogits::all_logits(head) : Tensor();
  {
    const BlockLogits logits(head, all_logits, false);
    head.each_class_block([&](std::int64_t first_class, std::int64_t end_class) {
      head.each_part([&](std::int64_t first, std::int64_t end) {
        kernels::fold_logits(loss, logits.of(first, end, first_class, end_class), first, first_class);
      });
    });
  }
  const kernels::SettledLoss settled = kernels::settle_loss(loss);
  // What a model needs: the products that are computed again do not count.
  const double flops =
      2.0 * static_cast<double>(counted) * static_cast<double>(width) * static_cast<double>(vocabulary);
  count_flops(flops);

  BlockedLoss kept = loss;  // but for its tensors, which are saved
  kept.targets = kept.state = kept.places = Tensor();
  const Variable result =
      record("linear_cross_entropy", settled.loss, {hidden, weight, bias},
             {states, head.weight, head.bias, loss.targets, loss.state, settled.count, rows},
             [kept, all_logits, block = head.block, shape = hidden.shape(), all_rows, width, flops](
                 const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
               BlockedLoss again = kept;
               again.targets = saved[3];
               again.state = saved[4];
               const Head saved_head{saved[0], saved[1], saved[2], block};
               count_flops(flops * (static_cast<int>(need[0]) + static_cast<int>(need[1])));
               Gradients gradients =
                   head_backward(saved_head, BlockLogits(saved_head, all_logits, true), again, grad[0], saved[5], need);
               if (!gradients[0].defined()) return gradients;
               if (const Tensor& places = saved[6]; places.defined()) {
                 const Tensor whole = zeros(gradients[0].context(), {all_rows, width}, gradients[0].dtype());
                 kernels::index_add(whole, 0, places, gradients[0]);
                 gradients[0] = whole;
               }
               gradients[0] = gradients[0].view(shape);
               return gradients;
             });
  return {result, settled.count};
}

}  // namespace keel
