#pragma once
// What is measured: the collectives, in and out of place, and how bandwidths follow from their times.

#include <span>
#include <string_view>
#include <vector>

#include "keel/dist/comm/communicator.h"

namespace keel::lab {

// A collective that is measured. S: bytes of the larger of what a rank gives and gets. Bandwidths are those of
// nccl-tests (its PERFORMANCE.md): the algorithm's is S / t, and the bus bandwidth is that times a factor that makes it
// comparable to what a link carries, for any number n of ranks.
struct Exercise {
  std::string_view name;
  CollectiveKind kind;  // `send` stands for a send to the next rank and a receive from the one before
  bool adds;            // numbers, where the others move them
  bool out_of_place, in_place;
  std::string_view factor;  // as a formula of n
  double (*bus_factor)(int n);
};

std::span<const Exercise> exercises();
// Throws an Error that names the nearest one.
const Exercise& find_exercise(std::string_view name);

// Elements of the whole tensor in so many bytes, at most.
std::int64_t count_in(const Exercise& exercise, std::int64_t bytes, DType dtype, int ranks);

// Bytes a second, divided by 10^9.
double algorithm_bandwidth(std::int64_t bytes, double microseconds);

// One call as one rank makes it.
struct Call {
  const Exercise* exercise = nullptr;
  int rank = 0, size = 1;
  std::int64_t count = 0;  // elements of the whole tensor
  bool in_place = false;
  Tensor input, output;                // what this rank gives and gets; the same or overlapping in place
  std::vector<Collective> parts = {};  // begun together

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(output.dtype())); }
};

// `first` and `second` are dense tensors of one dtype with at least `count` elements.
Call make_call(const Exercise& exercise, const Communicator& ranks, std::int64_t count, bool in_place,
               const Tensor& first, const Tensor& second);

// Blocks until the result is there, or in a device's stream.
inline void make(Communicator& ranks, const Call& call) {
  if (call.parts.size() == 1) {
    ranks.begin(call.parts.front()).wait();
    return;
  }
  std::vector<Work> works;
  for (const Collective& part : call.parts) works.push_back(ranks.begin(part));
  for (const Work& work : works) work.wait();
}

}  // namespace keel::lab
