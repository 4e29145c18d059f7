#include "keel/dist/lab/known_numbers.h"

#include <algorithm>
#include <bit>

#include "keel/dist/comm/schedule.h"

namespace keel::lab {
namespace {

// Whole numbers up to this one are exact. That of u8 stays below what memory is filled with before.
std::int64_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 256;
    case DType::f16: return 2048;
    case DType::u8: return 254;
    default: return std::int64_t{1} << 24;
  }
}

constexpr std::int64_t kFewest = 4;  // numbers to choose from
constexpr std::int64_t kMost = 64;

// Which rank brought an element of the output, and as which element of what it gives; rank -1: all did.
struct Origin {
  int rank;
  std::int64_t element;
};
class Origins {
 public:
  explicit Origins(const Call& call)
      : call_(call), own_(call.collective()), cut_(call.count, call.size, own_.counts), incoming_(cut_) {
    if (!own_.incoming.empty()) incoming_ = Cut(call.count, call.size, own_.incoming);
  }
  // Called for elements in rising order.
  Origin of(std::int64_t i) {
    const int rank = call_.rank, n = call_.size;
    switch (call_.exercise->kind) {
      case CollectiveKind::reduce_scatter: return {-1, cut_.of(rank).begin + i};
      case CollectiveKind::all_gather:
      case CollectiveKind::gather: return {sender_of(i), i};
      case CollectiveKind::scatter: return {own_.peer, cut_.of(rank).begin + i};
      case CollectiveKind::broadcast: return {own_.peer, i};
      case CollectiveKind::all_to_all: {
        const int sender = sender_of(i);
        return {sender, place_for(rank, sender) + i - incoming_.of(sender).begin};
      }
      case CollectiveKind::send: return {(rank + n - 1) % n, i};
      default: return {-1, i};
    }
  }

 private:
  // Whose part of the output it is.
  int sender_of(std::int64_t i) {
    while (i >= incoming_.of(sender_).end) ++sender_;
    return sender_;
  }
  // Where in the input of `sender` the part for `receiver` begins: as make_call() cuts it.
  std::int64_t place_for(int receiver, int sender) const {
    if (own_.incoming.empty()) return cut_.of(receiver).begin;
    const Counts lengths = uneven_counts(call_.count, call_.size);
    std::int64_t begin = 0;
    for (int r = 0; r < receiver; ++r)
      begin += lengths[static_cast<std::size_t>((r - sender + call_.size) % call_.size)];
    return begin;
  }

  const Call& call_;
  const Collective& own_;
  Cut cut_, incoming_;
  int sender_ = 0;
};

template <class T>
T number_as(std::int64_t value) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(value);
  else return T(static_cast<float>(value));
}

template <class T>
double value_of(T number) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(number);
  else return static_cast<double>(static_cast<float>(number));
}

template <class F>
void fill(const Tensor& x, F&& number) {
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> values(static_cast<std::size_t>(x.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number_as<T>(number(static_cast<std::int64_t>(i)));
    if (!values.empty()) x.copy_from_host(values.data());
  });
}

// Not a number, -1 or 255.
void spoil(const Tensor& x) {
  const std::vector<unsigned char> ones(x.bytes(), 0xff);
  if (!ones.empty()) x.copy_from_host(ones.data());
}

}  // namespace

KnownNumbers::KnownNumbers(DType dtype, int ranks, std::uint32_t salt, CombineOp op)
    : dtype_(dtype), op_(op), ranks_(ranks), salt_(salt) {
  const std::int64_t exact = largest_exact(dtype);
  const auto bringing_of = [&] { return std::int64_t{(ranks + every_ - 1) / every_}; };
  if (op == CombineOp::product) {
    while (std::int64_t{1} << std::min<std::int64_t>(bringing_of(), 62) > exact) ++every_;
    mask_ = 1;
    largest_sum_ = exact;
    return;
  }
  while (bringing_of() * (kFewest - 1) > exact) ++every_;
  const std::int64_t bringing = bringing_of();
  const std::int64_t choices = std::clamp(exact / bringing + 1, kFewest, kMost);
  mask_ = std::bit_floor(static_cast<std::uint32_t>(choices)) - 1;
  largest_sum_ = bringing * mask_;
}

std::int64_t KnownNumbers::of(int rank, std::int64_t element) const {
  const std::int64_t least = op_ == CombineOp::product ? 1 : 0;
  if (every_ > 1 && (element + rank) % every_ != 0) return least;
  std::uint32_t mixed = static_cast<std::uint32_t>(element) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u +
                        salt_ * 2246822519u;
  mixed = (mixed ^ (mixed >> 15)) * 2246822519u;
  return least + ((mixed >> 17) & mask_);
}

double KnownNumbers::result(std::int64_t element) const {
  if (op_ == CombineOp::sum) return static_cast<double>(sum(element));
  std::int64_t all = of(0, element);
  for (int rank = 1; rank < ranks_; ++rank) {
    const std::int64_t next = of(rank, element);
    if (op_ == CombineOp::maximum) all = std::max(all, next);
    else if (op_ == CombineOp::minimum) all = std::min(all, next);
    else if (op_ == CombineOp::product) all *= next;
    else all += next;
  }
  if (op_ != CombineOp::mean) return static_cast<double>(all);
  double mean = 0;
  visit_dtype(dtype_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, Accumulator<T>>;
    const Wide quotient = static_cast<Wide>(all) / static_cast<Wide>(ranks_);
    if constexpr (std::is_arithmetic_v<T>) mean = static_cast<double>(quotient);
    else mean = value_of(T(quotient));
  });
  return mean;
}

std::int64_t KnownNumbers::sum(std::int64_t element) const {
  std::int64_t sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += of(rank, element);
  return sum;
}

void prepare(const Call& call, const KnownNumbers& numbers) {
  spoil(call.output);
  const Collective& own = call.collective();
  if (call.exercise->kind == CollectiveKind::broadcast && call.rank != own.peer) return;
  const bool gives_part = traits_of(call.exercise->kind).given == Held::part;
  const std::int64_t first = gives_part ? Cut(call.count, call.size, own.counts).of(call.rank).begin : 0;
  fill(call.input, [&](std::int64_t i) { return numbers.of(call.rank, first + i); });
}

std::int64_t count_wrong(const Call& call, const KnownNumbers& numbers) {
  std::int64_t wrong = 0;
  Origins origins(call);
  visit_dtype(call.output.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<T> values = call.output.to_vector<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Origin origin = origins.of(static_cast<std::int64_t>(i));
      const double expected = origin.rank < 0 ? numbers.result(origin.element)
                                              : static_cast<double>(numbers.of(origin.rank, origin.element));
      if (!(value_of(values[i]) == expected)) ++wrong;
    }
  });
  return wrong;
}

void clear(const Call& call) {
  const auto zero = [](std::int64_t) { return 0; };
  fill(call.input, zero);
  fill(call.output, zero);
}

}  // namespace keel::lab
