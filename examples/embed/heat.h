#pragma once
// A solver as codes have them: the heat equation on a grid whose rows are spread over the processes of a communicator.
// It knows nothing of keel.

#include <mpi.h>

#include <vector>

// du/dt = div((1 + u^2) grad u) on a unit square that goes on at the opposite side, by explicit steps.
class Heat {
 public:
  // `cells` in each direction. Every process has at least one row.
  Heat(MPI_Comm comm, int cells);

  void step();
  // The sum over all cells, which no step changes.
  double total() const;

  int rows() const { return rows_; }  // of this process
  int columns() const { return cells_; }
  int pitch() const { return cells_ + 2; }
  // Cell (i, j), and its neighbours in the frame around this process's rows: i from -1 to rows(), j from -1 to
  // columns().
  double* at(int i, int j) { return &now_[index(i, j)]; }
  double* before(int i, int j) { return &before_[index(i, j)]; }  // before the last step

 private:
  std::size_t index(int i, int j) const {
    return static_cast<std::size_t>(i + 1) * static_cast<std::size_t>(pitch()) + static_cast<std::size_t>(j + 1);
  }
  void fill_frame();

  MPI_Comm comm_;
  int cells_, rows_ = 0, above_ = 0, below_ = 0;
  std::vector<double> now_, before_;
};
