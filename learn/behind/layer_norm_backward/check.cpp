#include "learn/behind/numbers.h"

void layer_norm_backward(learn::InMatrix x, learn::InMatrix dy, learn::In gain, learn::In mean,
                         learn::In inverse, learn::OutMatrix dx, learn::Out dgain, learn::Out dbias);

namespace {

using Numbers = std::vector<double>;

// A call of the exercise, and what the forward pass knows of it.
struct Call {
  std::size_t rows, n;
  std::vector<float> x, dy, gain, dgain_before, dbias_before;
  std::vector<float> mean, inverse;

  Call(std::int64_t rows, std::int64_t n, std::uint64_t seed, double middle = 0)
      : rows(static_cast<std::size_t>(rows)),
        n(static_cast<std::size_t>(n)),
        x(learn::draw(rows * n, seed, middle - 1, middle + 2)),
        dy(learn::draw(rows * n, seed + 1)),
        gain(learn::draw(n, seed + 2, 0.5, 2)),
        dgain_before(learn::draw(n, seed + 3)),
        dbias_before(learn::draw(n, seed + 4)) {
    const Numbers wide = learn::wide(x);
    for (std::size_t r = 0; r < this->rows; ++r) {
      const auto [row_mean, row_inverse] = moments(&wide[r * this->n]);
      mean.push_back(static_cast<float>(row_mean));
      inverse.push_back(static_cast<float>(row_inverse));
    }
  }

  std::pair<double, double> moments(const double* row) const {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) sum += row[i];
    const double middle = sum / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) squares += (row[i] - middle) * (row[i] - middle);
    return {middle, 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5)};
  }

  // The sum of dy y of one row: its derivatives are those that are asked for.
  double loss(std::size_t r, const double* row, const Numbers& gains, const Numbers& biases) const {
    const auto [middle, scale] = moments(row);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      sum += dy[r * n + i] * ((row[i] - middle) * scale * gains[i] + biases[i]);
    return sum;
  }

  Numbers dx() const {
    Numbers all;
    for (std::size_t r = 0; r < rows; ++r) {
      Numbers row(x.begin() + static_cast<std::ptrdiff_t>(r * n),
                  x.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
      for (const double d :
           learn::slopes(row, [&] { return loss(r, row.data(), learn::wide(gain), Numbers(n)); }))
        all.push_back(d);
    }
    return all;
  }

  double z(std::size_t r, std::size_t i) const { return (double{x[r * n + i]} - mean[r]) * inverse[r]; }

  // What dx becomes by `of`, a function of dz, mean(dz), mean(dz z) and z.
  template <class F>
  Numbers dx_by(const F& of, bool with_gain = true, bool fresh = true) const {
    Numbers all;
    double dz_sum = 0, dz_z_sum = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto dz = [&](std::size_t i) { return double{dy[r * n + i]} * (with_gain ? gain[i] : 1.0F); };
      if (fresh) dz_sum = dz_z_sum = 0;
      for (std::size_t i = 0; i < n; ++i) dz_sum += dz(i), dz_z_sum += dz(i) * z(r, i);
      for (std::size_t i = 0; i < n; ++i)
        all.push_back(inverse[r] *
                      of(dz(i), dz_sum / static_cast<double>(n), dz_z_sum / static_cast<double>(n), z(r, i)));
    }
    return all;
  }

  // `before` and the sum over rows from `first` on of dy, times z if this is of the gain.
  Numbers summed(const std::vector<float>& before, bool of_gain, std::size_t first = 0) const {
    Numbers sums = learn::wide(before);
    for (std::size_t r = first; r < rows; ++r)
      for (std::size_t i = 0; i < n; ++i) sums[i] += dy[r * n + i] * (of_gain ? z(r, i) : 1);
    return sums;
  }

  std::vector<learn::Mistake> mistakes_of_dx() const {
    return {
        {dx_by([](double dz, double, double, double) { return dz; }),
         "That is dz / deviation, as if the row's mean and deviation were constants. They depend on every x "
         "of the row: two corrections are missing."},
        {dx_by([](double dz, double mean_dz, double, double) { return dz - mean_dz; }),
         "That has the correction by mean(dz). The way through the deviation is missing: a larger x[i] makes "
         "the deviation larger, and all z of the row smaller."},
        {dx_by([](double dz, double, double mean_dz_z, double z) { return dz - z * mean_dz_z; }),
         "That has the correction by mean(dz z). The way through the mean is missing: a larger x[i] makes "
         "the mean larger, and all z of the row smaller."},
        {dx_by([](double dz, double mean_dz, double mean_dz_z, double) { return dz - mean_dz - mean_dz_z; }),
         "The second correction has lost its factor z[i]: it is mean(dz z) z[i]."},
        {dx_by([](double dz, double mean_dz, double mean_dz_z,
                  double z) { return dz - mean_dz - z * mean_dz_z; },
               false),
         "gain is missing in dz: dz[i] = dy[i] gain[i], also inside of both means."},
        {dx_by([](double dz, double mean_dz, double mean_dz_z,
                  double z) { return dz - mean_dz - z * mean_dz_z; },
               true, false),
         "The first row is right, and those after it are not. The two means are those of one row: they must "
         "begin at 0 in each row."},
        {dx_by([this](double dz, double mean_dz, double mean_dz_z, double z) {
           return dz - (mean_dz + z * mean_dz_z) * static_cast<double>(n);
         }),
         "Those are sums in place of means: divide both by n, the number of columns."},
    };
  }

  std::vector<learn::Mistake> mistakes_of_sum(const std::vector<float>& before, bool of_gain) const {
    const std::vector<float> zeros(n);
    return {
        {summed(zeros, of_gain),
         "That is the sum over this call's rows. The sums begin with what dgain and dbias hold: another use "
         "of the same gain may have left its part there."},
        {summed(zeros, of_gain, rows - 1),
         "That is the part of the last row alone. The sums begin with what dgain and dbias hold, and each "
         "row adds to them."},
        {summed(before, false), "That is the sum of dy, without its factor z."},
    };
  }

  void expect_sums(const learn::WrittenMatrix& dgain, const learn::WrittenMatrix& dbias) const {
    const std::string given = fmt::format("{} x {} numbers", rows, n);
    const Numbers gains = summed(dgain_before, true), biases = summed(dbias_before, false);
    learn::expect_numbers("dbias", 0, dbias.read(), biases, 1e-5, given,
                          mistakes_of_sum(dbias_before, false));
    learn::expect_numbers("dgain", 0, dgain.read(), gains, 1e-5, given, mistakes_of_sum(dgain_before, true));
  }
};

enum class Look { kAtDx, kAtSums, kAtAll };

void expect(const Call& call, Look look) {
  const auto rows = static_cast<std::int64_t>(call.rows), n = static_cast<std::int64_t>(call.n);
  learn::WrittenMatrix dx(rows, n), dgain(1, n, 0), dbias(1, n, 0);
  learn::Out dgain_row = learn::OutMatrix(dgain)[0], dbias_row = learn::OutMatrix(dbias)[0];
  std::ranges::copy(call.dgain_before, dgain_row.begin());
  std::ranges::copy(call.dbias_before, dbias_row.begin());
  layer_norm_backward(learn::matrix(call.x, n), learn::matrix(call.dy, n), learn::in(call.gain),
                      learn::in(call.mean), learn::in(call.inverse), dx, dgain_row, dbias_row);
  if (look != Look::kAtDx) {
    dgain.expect_whole("dgain");
    dbias.expect_whole("dbias");
    if (look == Look::kAtSums && std::ranges::equal(dgain.read(), call.dgain_before) &&
        std::ranges::equal(dbias.read(), call.dbias_before))
      learn::wrong("Nothing was added to dgain and dbias yet. Each row has to add to them.");
    call.expect_sums(dgain, dbias);
  }
  if (look == Look::kAtSums) return;
  dx.expect_whole("dx");
  learn::expect_numbers("dx", n, dx.read(), call.dx(), 1e-5, fmt::format("{} x {} numbers", rows, n),
                        call.mistakes_of_dx());
}

}  // namespace

int main() {
  return learn::run({
      {"one row adds its part to dgain and dbias", [] { expect(Call(1, 4, 1), Look::kAtSums); }},
      {"so does each of three rows", [] { expect(Call(3, 4, 2), Look::kAtSums); }},
      {"dx of one row is what differences say", [] { expect(Call(1, 5, 3), Look::kAtDx); }},
      {"dx of each row depends on that row alone", [] { expect(Call(4, 6, 4), Look::kAtAll); }},
      {"a row of one number is 0 whatever it is, so its dx is 0",
       [] { expect(Call(2, 1, 5), Look::kAtAll); }},
      {"many rows of odd sizes are right",
       [] {
         expect(Call(17, 33, 6), Look::kAtAll);
         expect(Call(2, 129, 7), Look::kAtAll);
       }},
      {"rows far from 0 are as good as others", [] { expect(Call(3, 16, 8, 100), Look::kAtAll); }},
  });
}
