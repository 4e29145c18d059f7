#pragma once
// What is measured: the collectives, in and out of place, and how bandwidths follow from their times.

#include <span>
#include <string_view>
#include <vector>

#include "keel/dist/comm/collective_table.h"

namespace keel::lab {

// A collective that is measured. S: bytes of the larger of what a rank gives and gets. Bandwidths are those of
// nccl-tests (its PERFORMANCE.md): the algorithm's is S / t, and the bus bandwidth is that times a factor that makes it
// comparable to what a link carries, for any number n of ranks.
struct Exercise {
  std::string_view name;
  CollectiveKind kind;  // `send` stands for a send to the next rank and a receive from the one before
  bool by_counts;       // in parts of different lengths, see uneven_counts()
  bool out_of_place, in_place;
  std::string_view factor;  // as a formula of n
  double (*bus_factor)(int n);

  bool adds() const { return traits_of(kind).adds; }  // numbers, where the others move them
  bool has_root() const { return traits_of(kind).has_root; }
};

std::span<const Exercise> exercises();
// Throws an Error that names the nearest one.
const Exercise& find_exercise(std::string_view name);

// Elements of the whole tensor in so many bytes, at most.
std::int64_t count_in(const Exercise& exercise, std::int64_t bytes, DType dtype, int ranks);

// Parts of `count` elements of which the last is the longest: rank r's is r + 1 of n (n + 1) / 2.
Counts uneven_counts(std::int64_t count, int ranks);

// Bytes a second, divided by 10^9.
double algorithm_bandwidth(std::int64_t bytes, double microseconds);

// One call as one rank makes it.
struct Call {
  const Exercise* exercise = nullptr;
  int rank = 0, size = 1;
  std::int64_t count = 0;  // elements of the whole tensor
  bool in_place = false;
  Tensor input,
      output;  // what this rank gives and gets; the same or overlapping in place, without elements for nothing
  std::vector<Collective> parts = {};  // begun together

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(output.dtype())); }
  // What the ranks agree on.
  const Collective& collective() const { return parts.front(); }
};

// What else a call has, where its exercise has it.
struct CallOptions {
  CombineOp op = CombineOp::sum;
  int root = 0;
};

// `first` and `second` are dense tensors of one dtype with at least `count` elements.
Call make_call(const Exercise& exercise, const Communicator& ranks, std::int64_t count, bool in_place,
               const Tensor& first, const Tensor& second, const CallOptions& options = {});

// Asks for all of them, one after the other.
std::vector<Work> begin(Communicator& ranks, std::span<const Call> calls);
// Blocks until the results are there, or in a device's stream.
void make(Communicator& ranks, std::span<const Call> calls);
inline void make(Communicator& ranks, const Call& call) { make(ranks, {&call, 1}); }

}  // namespace keel::lab
