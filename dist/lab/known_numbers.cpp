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

// Which rank brought an element of the output, and as which element of the whole tensor; rank -1: it is a sum.
struct Origin {
  int rank;
  std::int64_t element;
};
Origin origin_of(const Call& call, std::int64_t i) {
  switch (call.exercise->kind) {
    case CollectiveKind::reduce_scatter: return {-1, part({0, call.count}, call.size, call.rank).begin + i};
    case CollectiveKind::all_gather: {
      // The shards of the first ranks are longer by one.
      const std::int64_t each = call.count / call.size, longer = call.count % call.size, border = longer * (each + 1);
      return {static_cast<int>(i < border ? i / (each + 1) : longer + (i - border) / each), i};
    }
    case CollectiveKind::broadcast: return {0, i};
    case CollectiveKind::all_to_all: {
      const std::int64_t each = call.count / call.size;
      return {static_cast<int>(i / each), call.rank * each + i % each};
    }
    case CollectiveKind::send: return {(call.rank + call.size - 1) % call.size, i};
    default: return {-1, i};
  }
}

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

KnownNumbers::KnownNumbers(DType dtype, int ranks, std::uint32_t salt) : ranks_(ranks), salt_(salt) {
  const std::int64_t exact = largest_exact(dtype);
  const auto bringing_of = [&] { return std::int64_t{(ranks + every_ - 1) / every_}; };
  while (bringing_of() * (kFewest - 1) > exact) ++every_;
  const std::int64_t bringing = bringing_of();
  const std::int64_t choices = std::clamp(exact / bringing + 1, kFewest, kMost);
  mask_ = std::bit_floor(static_cast<std::uint32_t>(choices)) - 1;
  largest_sum_ = bringing * mask_;
}

std::int64_t KnownNumbers::of(int rank, std::int64_t element) const {
  if (every_ > 1 && (element + rank) % every_ != 0) return 0;
  std::uint32_t mixed = static_cast<std::uint32_t>(element) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u +
                        salt_ * 2246822519u;
  mixed = (mixed ^ (mixed >> 15)) * 2246822519u;
  return (mixed >> 17) & mask_;
}

std::int64_t KnownNumbers::sum(std::int64_t element) const {
  std::int64_t sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += of(rank, element);
  return sum;
}

void prepare(const Call& call, const KnownNumbers& numbers) {
  spoil(call.output);
  if (call.exercise->kind == CollectiveKind::broadcast && call.rank != 0) return;
  const std::int64_t first =
      call.exercise->kind == CollectiveKind::all_gather ? part({0, call.count}, call.size, call.rank).begin : 0;
  fill(call.input, [&](std::int64_t i) { return numbers.of(call.rank, first + i); });
}

std::int64_t count_wrong(const Call& call, const KnownNumbers& numbers) {
  std::int64_t wrong = 0;
  visit_dtype(call.output.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<T> values = call.output.to_vector<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Origin origin = origin_of(call, static_cast<std::int64_t>(i));
      const std::int64_t expected =
          origin.rank < 0 ? numbers.sum(origin.element) : numbers.of(origin.rank, origin.element);
      if (!(value_of(values[i]) == static_cast<double>(expected))) ++wrong;
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
