#include "learn/behind/cuda.h"

using learn::bf16;

__global__ void product(learn::Global<const bf16> a, learn::Global<const bf16> b, learn::Global<float> c,
                        int m, int n, int k);

namespace {

// A matrix in double precision, row by row.
struct Matrix {
  int rows, columns;
  std::vector<double> numbers;
  Matrix(int rows, int columns)
      : rows(rows),
        columns(columns),
        numbers(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}
  double& operator()(int i, int j) { return numbers[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(int i, int j) const { return numbers[static_cast<std::size_t>(i * columns + j)]; }
};

Matrix draw(int rows, int columns, std::uint64_t seed) {
  Matrix m(rows, columns);
  const auto numbers = learn::to_float(learn::to_bf16(learn::draw(std::int64_t{rows} * columns, seed)));
  m.numbers.assign(numbers.begin(), numbers.end());
  return m;
}

Matrix multiply(const Matrix& a, const Matrix& b, int from, int to) {
  Matrix c(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i)
    for (int p = from; p < to; ++p)
      for (int j = 0; j < b.columns; ++j) c(i, j) += a(i, p) * b(p, j);
  return c;
}

std::vector<bf16> stored(const Matrix& m) {
  return learn::to_bf16(std::vector<float>(m.numbers.begin(), m.numbers.end()));
}

std::vector<float> run_product(const Matrix& a, const Matrix& b) {
  const int m = a.rows, n = b.columns, k = a.columns;
  return learn::in_all_orders("c", [&] {
    learn::Array<bf16> of_a("a", stored(a)), of_b("b", stored(b));
    learn::Array<float> c("c", std::int64_t{m} * n);
    learn::launch("product", product, dim3(unsigned(n) / 8, unsigned(m) / 16), 32, of_a, of_b, c, m, n, k);
    return c.read();
  });
}

bool same(const std::vector<float>& got, const Matrix& expected) {
  return learn::first_apart(got, expected.numbers, 1e-5) < 0;
}

// What a tile's product becomes with numbers in a wrong place: the first such mistake that gives `got`.
std::string mistake(const std::vector<float>& got, const Matrix& a, const Matrix& b, const Matrix& c) {
  Matrix exchanged(16, 16), halves(16, 16), across(16, 8), turned(16, 8), lower(16, 8), sums(16, 8);
  const auto flat = [&](int at) { return b.numbers[static_cast<std::size_t>(at % (16 * 8))]; };
  for (int i = 0; i < 16; ++i)
    for (int p = 0; p < 16; ++p) {
      const bool other = i / 8 != p / 8;
      exchanged(i, p) = other ? a((i + 8) % 16, (p + 8) % 16) : a(i, p);
      halves(i, p) = a(i, p ^ 1);
    }
  for (int p = 0; p < 16; ++p)
    for (int j = 0; j < 8; ++j) {
      across(p, j) = flat(p / 2 * 2 * 8 + j + p % 2);
      turned(p, j) = flat(j * 8 + p);
      lower(p, j) = b(p ^ 1, j);
      // Lane (g, t) puts its sum[1] and sum[2] in each other's place.
      const int i = p, t = j / 2;
      sums(i, j) = (i < 8) == (j % 2 == 0) ? c(i, j) : i < 8 ? c(i + 8, 2 * t) : c(i - 8, 2 * t + 1);
    }
  const Matrix of_across = multiply(a, across, 0, 16);
  bool is_across = true;  // but for the last column, whose neighbour is another one in each way of writing it
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 7; ++j)
      is_across = is_across && std::abs(got[static_cast<std::size_t>(i * 8 + j)] - of_across(i, j)) < 1e-4;
  if (same(got, multiply(exchanged, b, 0, 16)))
    return "a[1] and a[2] have changed places: a[1] is 8 rows down, a[2] is 8 columns to the right.";
  if (same(got, multiply(halves, b, 0, 16)))
    return "The two halves of the registers of a have changed places: the first column is the lower half, "
           "the first "
           "argument of pack().";
  if (same(got, multiply(a, lower, 0, 16)))
    return "The two halves of the registers of b have changed places: the first row is the lower half, the "
           "first "
           "argument of pack().";
  if (is_across)
    return "A register of b has two neighbouring rows of one column. These are two neighbouring columns of "
           "one row.";
  if (same(got, multiply(a, turned, 0, 16)))
    return "b came with rows and columns exchanged: 2t and its like are rows, and g is the column.";
  if (same(got, sums))
    return "sum[1] and sum[2] have changed places: sum[1] is one column to the right, sum[2] is 8 rows down.";
  return "Are the numbers of each register those of the picture, and are sum[0] to sum[3] written where they "
         "belong?";
}

void one_product() {
  const Matrix a = draw(16, 16, 12), b = draw(16, 8, 13), c = multiply(a, b, 0, 16);
  const std::vector<float> got = run_product(a, b);
  if (!same(got, c)) learn::expect_near("c", got, c.numbers, 1e-5, mistake(got, a, b, c));
}

void several_steps() {
  const Matrix a = draw(16, 80, 14), b = draw(80, 8, 15), c = multiply(a, b, 0, 80);
  const std::vector<float> got = run_product(a, b);
  std::string_view why;
  if (same(got, multiply(a, b, 64, 80)))
    why = "That is what the last 16 columns of a give alone: sum must not begin anew in each step along k.";
  if (same(got, multiply(a, b, 0, 16))) why = "That is what the first 16 columns of a give alone.";
  learn::expect_near("c", got, c.numbers, 1e-5, why);
}

void several_tiles() {
  const Matrix a = draw(48, 32, 16), b = draw(32, 40, 17);
  learn::expect_near(
      "c", run_product(a, b), multiply(a, b, 0, 32).numbers, 1e-5,
      "m, n and k are 48, 40 and 32. A block begins at row 16 * blockIdx.y and column 8 * blockIdx.x.");
}

void on_tensor_cores() {
  const Matrix a = draw(32, 48, 18), b = draw(48, 16, 19);
  run_product(a, b);
  const std::int64_t calls = learn::tensor_core_calls(), enough = 2 * 2 * 3 * 32;
  if (calls == 0) learn::wrong("No tensor core was used: the product must be made by learn::multiply_add().");
  if (calls > enough)
    learn::wrong(
        "m, n and k are 32, 16 and 48: that takes 12 products of (16, 16) by (16, 8), and {} were made.",
        calls / 32);
}

}  // namespace

int main() {
  return learn::run({
      {"a product of (16, 16) by (16, 8)",
       [] {
         learn::explain({{"for its warp at",
                          "All 32 lanes make a product together, and each brings its part of the matrices."}},
                        one_product);
       }},
      {"several steps along k add up", several_steps},
      {"each block makes its part of c", several_tiles},
      {"tensor cores do the work, and no more than is needed", on_tensor_cores},
  });
}
