#pragma once
// A product as cuBLASLt is asked for it: what an algorithm is chosen for, and what the library cannot be asked.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "keel/kernels/matmul.h"

namespace keel::cuda::cublaslt {

// One matrix of each batch, as the library wants it: `pitch` elements from line to line, and a line is a column of the
// matrix where `turned`.
struct Lines {
  std::int64_t turned, pitch, batch_stride;
  bool operator==(const Lines&) const = default;
};

// Everything that an algorithm is chosen for.
struct Problem {
  std::int64_t m, n, k, batches;
  Lines a, b, out;
  std::int64_t dtype, out_dtype, accumulate, epilogue, pre_activation_pitch;  // a pitch of 0: there is none
  std::int64_t alignments[5];  // bytes, of a, b, out, pre_activation, bias
  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const {
    std::array<std::int64_t, sizeof(Problem) / sizeof(std::int64_t)> words;
    std::memcpy(words.data(), &problem, sizeof problem);
    std::uint64_t hash = 1469598103934665603u;  // FNV-1a
    for (const std::int64_t word : words) hash = (hash ^ static_cast<std::uint64_t>(word)) * 1099511628211u;
    return hash;
  }
};

inline std::int64_t alignment_of(const Tensor& x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.raw());
  return static_cast<std::int64_t>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

// Where an extent is 1 its stride has no meaning.
inline std::optional<Lines> lines_of(const Tensor& x) {
  const std::int64_t rows = x.dim(-2), cols = x.dim(-1), row = x.stride(-2), col = x.stride(-1);
  const auto round_up = [](std::int64_t length) { return (length + 7) / 8 * 8; };
  if ((cols == 1 || col == 1) && (rows == 1 || row >= cols)) return Lines{0, rows == 1 ? round_up(cols) : row, 0};
  if ((rows == 1 || row == 1) && (cols == 1 || col >= rows)) return Lines{1, cols == 1 ? round_up(rows) : col, 0};
  return {};
}

// The one stride with which a tensor's matrices follow each other, if there is one.
inline std::optional<std::int64_t> batch_stride_of(const Tensor& x) {
  std::int64_t stride = 0, count = 1;  // of the dimensions seen so far
  for (int d = x.rank() - 3; d >= 0; --d) {
    if (x.dim(d) == 1) continue;
    if (count == 1) stride = x.stride(d);
    else if (x.stride(d) != stride * count) return {};
    count *= x.dim(d);
  }
  return stride;
}

// What the library is asked, or nothing where keel's own kernel has to do it.
inline std::optional<Problem> problem_of(const MatmulArgs& args) {
  const bool fused = args.epilogue != Epilogue::none;
  Problem p = {};
  p.m = args.out.dim(-2);
  p.n = args.out.dim(-1);
  p.k = args.a.dim(-1);
  p.batches = args.out.numel() / (p.m * p.n);
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (p.k == 0 || std::max({p.m, p.n, p.k, p.batches}) > most) return {};
  if (fused && (p.batches > 1 || args.out.dtype() != args.a.dtype() || alignment_of(args.bias) < 16)) return {};
  const auto read = [](const Tensor& x, Lines& lines) {
    const auto found = lines_of(x);
    const auto stride = batch_stride_of(x);
    if (!found || !stride) return false;
    lines = *found;
    lines.batch_stride = *stride;
    return true;
  };
  if (!read(args.a, p.a) || !read(args.b, p.b) || !read(args.out, p.out) || p.out.turned != 0) return {};
  p.dtype = static_cast<std::int64_t>(args.a.dtype());
  p.out_dtype = static_cast<std::int64_t>(args.out.dtype());
  p.accumulate = args.accumulate;
  p.epilogue = static_cast<std::int64_t>(args.epilogue);
  p.alignments[0] = alignment_of(args.a);
  p.alignments[1] = alignment_of(args.b);
  p.alignments[2] = alignment_of(args.out);
  if (fused) p.alignments[4] = alignment_of(args.bias);
  if (args.pre_activation.defined()) {
    p.pre_activation_pitch = p.m == 1 ? p.out.pitch : args.pre_activation.stride(-2);
    p.alignments[3] = alignment_of(args.pre_activation);
  }
  return p;
}

}  // namespace keel::cuda::cublaslt
