#pragma once
// What a row of the operations' table says, and its arguments: made of extents that are letters, in several layouts.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "keel/autograd/functions.h"
#include "tests/support.h"

namespace keel::testing {

// Numbers have gradients; positions lie below an extent, and lengths reach up to one; flags are 0 or 1.
enum class Holds : unsigned char { numbers, positions, lengths, flags };

struct Argument {
  std::string extents;  // a letter for each dimension, or a 1
  Holds holds = Holds::numbers;
  char limit = 0;  // the letter whose extent limits positions or lengths
};

using Extents = std::map<char, std::int64_t>;

struct Inputs {
  std::vector<Variable> numbers;
  std::vector<Tensor> others;
  Extents extents;
};

struct OperationRow {
  std::string name;
  std::vector<Argument> arguments;  // numbers first
  std::function<std::vector<Variable>(const Inputs&)> call;
  std::string never_empty = {};  // letters whose extent of 0 is an Error
  std::string mean_over = {};    // letters whose extent of 0 makes a mean of nothing, which is no number
  double low = -1, high = 1;     // where numbers are drawn
  double step = 1e-6;            // of central differences
  double rounding = 1e-12;       // relative error of its sums, in f64
};

// p packs 2 heads of queries with 2 of keys and 2 of values.
inline Extents usual_extents() {
  return {{'b', 2}, {'c', 8}, {'d', 4},  {'g', 2}, {'h', 4}, {'i', 4},
          {'k', 6}, {'o', 5}, {'p', 24}, {'s', 5}, {'t', 3}, {'v', 7}};
}

inline Dims shape_of(const Argument& argument, const Extents& extents) {
  Dims shape;
  for (const char letter : argument.extents) shape.push_back(letter == '1' ? 1 : extents.at(letter));
  return shape;
}

// The letters of an operation, each once.
inline std::string letters_of(const OperationRow& operation) {
  std::string letters;
  for (const Argument& argument : operation.arguments)
    for (const char letter : argument.extents)
      if (letter != '1' && letters.find(letter) == std::string::npos) letters += letter;
  return letters;
}

// A dense argument, the same for the same seed.
inline Tensor make_argument(const Context& context, const OperationRow& operation, std::size_t at,
                            const Extents& extents, DType dtype) {
  const Argument& argument = operation.arguments[at];
  const Dims shape = shape_of(argument, extents);
  const std::uint64_t seed = 10 + at;
  if (argument.holds == Holds::numbers)
    return uniform_tensor(context, shape, seed, dtype, operation.low, operation.high);
  if (argument.holds == Holds::flags) return uniform_tensor(context, shape, seed, DType::u8, 0, 2);
  const std::int64_t limit = argument.limit == 0 ? 9 : extents.at(argument.limit);
  const bool is_length = argument.holds == Holds::lengths;
  return uniform_tensor(context, shape, seed, DType::i64, 0, static_cast<double>(is_length ? limit + 1 : limit));
}

// The ways in which an argument may lie in memory. `repeated` has a stride of 0, and so other numbers.
enum class Lies : unsigned char { dense, transposed, spread, shifted, repeated };
inline constexpr Lies kLayouts[] = {Lies::dense, Lies::transposed, Lies::spread, Lies::shifted, Lies::repeated};
inline std::string_view name_of(Lies lies) {
  constexpr std::string_view names[] = {"dense", "transposed", "spread", "shifted", "repeated"};
  return names[static_cast<std::size_t>(lies)];
}

// The numbers of a dense tensor in another layout, in memory of their own.
inline Tensor lay_out(const Tensor& x, Lies lies) {
  const Context& context = x.context();
  if (lies == Lies::transposed && x.rank() >= 2) return kernels::clone(x.transpose(0, -1)).transpose(0, -1);
  if (lies == Lies::repeated && x.rank() >= 1 && x.numel() != 0)
    return kernels::clone(x.slice(0, 0, 1)).expand(x.shape());
  Tensor view = kernels::clone(x);
  if (lies == Lies::spread) {
    Dims twice = x.shape();
    twice.push_back(2);
    view = zeros(context, twice, x.dtype()).select(-1, 1);
    kernels::copy_into(view, x);
  } else if (lies == Lies::shifted && x.rank() >= 1) {
    Dims longer = x.shape();
    ++longer[0];
    view = zeros(context, longer, x.dtype()).slice(0, 1, longer[0]);
    kernels::copy_into(view, x);
  }
  return view;
}

}  // namespace keel::testing
