#include "heat.h"

#include <cmath>

namespace {

// The flux from one cell to the next, without its factor.
double flux(double from, double to) {
  const double middle = 0.5 * (from + to);
  return (1 + middle * middle) * (to - from);
}

}  // namespace

Heat::Heat(MPI_Comm comm, int cells) : comm_(comm), cells_(cells) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int first = static_cast<int>(static_cast<long>(cells) * rank / size);
  rows_ = static_cast<int>(static_cast<long>(cells) * (rank + 1) / size) - first;
  above_ = (rank + size - 1) % size;
  below_ = (rank + 1) % size;
  now_.resize(static_cast<std::size_t>(rows_ + 2) * static_cast<std::size_t>(pitch()));
  before_ = now_;
  for (int i = 0; i < rows_; ++i)
    for (int j = 0; j < cells_; ++j) {
      const double x = 2 * M_PI * j / cells_, y = 2 * M_PI * (first + i) / cells_;
      *at(i, j) = 0.6 * std::sin(x) * std::cos(2 * y) + 0.4 * std::sin(3 * x + y);
    }
  fill_frame();
}

// A row lies densely in memory, a column does not.
void Heat::fill_frame() {
  MPI_Sendrecv(at(0, 0), cells_, MPI_DOUBLE, above_, 0, at(rows_, 0), cells_, MPI_DOUBLE, below_, 0, comm_,
               MPI_STATUS_IGNORE);
  MPI_Sendrecv(at(rows_ - 1, 0), cells_, MPI_DOUBLE, below_, 1, at(-1, 0), cells_, MPI_DOUBLE, above_, 1, comm_,
               MPI_STATUS_IGNORE);
  for (int i = -1; i <= rows_; ++i) {
    *at(i, -1) = *at(i, cells_ - 1);
    *at(i, cells_) = *at(i, 0);
  }
}

void Heat::step() {
  constexpr double kRatio = 0.1;  // of the time step to the square of a cell's side; stable below 1 / (4 (1 + u^2))
  now_.swap(before_);
  for (int i = 0; i < rows_; ++i)
    for (int j = 0; j < cells_; ++j) {
      const double here = *before(i, j);
      *at(i, j) = here + kRatio * (flux(here, *before(i - 1, j)) + flux(here, *before(i + 1, j)) +
                                   flux(here, *before(i, j - 1)) + flux(here, *before(i, j + 1)));
    }
  fill_frame();
}

double Heat::total() const {
  double mine = 0, all = 0;
  for (int i = 0; i < rows_; ++i)
    for (int j = 0; j < cells_; ++j) mine += now_[index(i, j)];
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm_);
  return all;
}
