#include "learn/given/cached_matrix.h"

#include "learn/behind/heap.h"
#include "learn/behind/numbers.h"

void product(const learn::CachedMatrix& a, const learn::CachedMatrix& b, learn::CachedMatrix& c);

namespace learn {

void Cache::unlink(std::int64_t line) {
  const Link link = links_[static_cast<std::size_t>(line)];
  (link.before < 0 ? latest_ : links_[static_cast<std::size_t>(link.before)].after) = link.after;
  (link.after < 0 ? oldest_ : links_[static_cast<std::size_t>(link.after)].before) = link.before;
  links_[static_cast<std::size_t>(line)].here = false;
}

void Cache::use(std::int64_t line) {
  if (line == latest_) return;
  if (links_[static_cast<std::size_t>(line)].here) {
    unlink(line);
  } else {
    ++loads_;
    if (here_ == kBytes / kLineBytes) unlink(oldest_);
    else ++here_;
  }
  links_[static_cast<std::size_t>(line)] = {-1, latest_, true};
  (latest_ < 0 ? oldest_ : links_[static_cast<std::size_t>(latest_)].before) = line;
  latest_ = line;
}

CachedMatrix::CachedMatrix(std::int64_t rows, std::int64_t columns, std::int64_t first_line, Cache* cache)
    : rows_(rows),
      columns_(columns),
      first_line_(first_line),
      cache_(cache),
      numbers_(static_cast<std::size_t>(rows * columns)) {}

std::size_t CachedMatrix::place(std::int64_t row, std::int64_t column,
                                const std::source_location& where) const {
  if (row < 0 || row >= rows_ || column < 0 || column >= columns_) {
    const std::string_view path = where.file_name();
    wrong(
        "{}:{} uses ({}, {}) of a matrix of {} x {}: rows 0 to {}, columns 0 to {}.\nThe last block of a row "
        "or column is smaller, where the size is no multiple of the block: std::min() finds its end.",
        path.substr(path.rfind('/') + 1), where.line(), row, column, rows_, columns_, rows_ - 1,
        columns_ - 1);
  }
  const std::int64_t place = row * columns_ + column;
  cache_->use(first_line_ + place / Cache::kLineNumbers);
  return static_cast<std::size_t>(place);
}

}  // namespace learn

namespace {

using learn::Cache, learn::CachedMatrix;

struct Sizes {
  std::int64_t m, k, n;
};
std::string words(const Sizes& s) { return fmt::format("A is {} x {} and B is {} x {}", s.m, s.k, s.k, s.n); }

// The three matrices, each from a line of its own on, behind one cache.
struct Problem {
  Cache cache;
  CachedMatrix a, b, c;

  explicit Problem(const Sizes& s, std::uint64_t seed = 1)
      : cache(lines(s.m * s.k) + lines(s.k * s.n) + lines(s.m * s.n)),
        a(s.m, s.k, 0, &cache),
        b(s.k, s.n, lines(s.m * s.k), &cache),
        c(s.m, s.n, lines(s.m * s.k) + lines(s.k * s.n), &cache) {
    a.numbers() = learn::draw(s.m * s.k, seed);
    b.numbers() = learn::draw(s.k * s.n, seed + 1);
  }
  Problem(const Problem&) = delete;
  static std::int64_t lines(std::int64_t numbers) {
    return (numbers + Cache::kLineNumbers - 1) / Cache::kLineNumbers;
  }

  // A B, from k = `first` on.
  std::vector<double> expected(std::int64_t first = 0) {
    const std::int64_t m = a.rows(), depth = a.columns(), n = b.columns();
    std::vector<double> sums(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t k = first; k < depth; ++k)
        for (std::int64_t j = 0; j < n; ++j)
          sums[static_cast<std::size_t>(i * n + j)] +=
              double{a.numbers()[static_cast<std::size_t>(i * depth + k)]} *
              b.numbers()[static_cast<std::size_t>(k * n + j)];
    return sums;
  }
};

void expect_product(const Sizes& sizes) {
  Problem problem(sizes);
  product(problem.a, problem.b, problem.c);
  if (std::ranges::all_of(problem.c.numbers(), [](float x) { return x == 0; }))
    learn::wrong("{}. All of c is still 0: nothing was added to it yet.", words(sizes));
  std::vector<learn::Mistake> mistakes;
  for (const std::int64_t s : {4, 8, 16, 20, 24, 32, 40, 48, 50, 52, 64})
    if (s < sizes.k)
      mistakes.push_back({problem.expected((sizes.k - 1) / s * s),
                          fmt::format("That is the sum over the last block of k alone, {} to {}. Each block "
                                      "of k has to be added to what those before it left in c.",
                                      (sizes.k - 1) / s * s, sizes.k - 1)});
  std::vector<double> twice = problem.expected();
  for (double& x : twice) x *= 2;
  mistakes.push_back({twice, "That is twice the sum: something is added two times."});
  learn::expect_numbers("c", sizes.n, problem.c.numbers(), problem.expected(), 1e-5, words(sizes), mistakes);
}

// Lines that are loaded with loops in some order: `loops` walks and calls back with i, k, j.
template <class F>
std::int64_t loads_of(const Sizes& sizes, const F& loops) {
  Problem problem(sizes);
  loops(sizes, [&](std::int64_t i, std::int64_t k, std::int64_t j) {
    problem.c(i, j) += problem.a(i, k) * problem.b(k, j);
  });
  return problem.cache.loads();
}

template <class F>
void by_blocks(const Sizes& sizes, std::int64_t s, const F& at) {
  for (std::int64_t i0 = 0; i0 < sizes.m; i0 += s)
    for (std::int64_t j0 = 0; j0 < sizes.n; j0 += s)
      for (std::int64_t k0 = 0; k0 < sizes.k; k0 += s)
        for (std::int64_t i = i0; i < std::min(i0 + s, sizes.m); ++i)
          for (std::int64_t k = k0; k < std::min(k0 + s, sizes.k); ++k)
            for (std::int64_t j = j0; j < std::min(j0 + s, sizes.n); ++j) at(i, k, j);
}

bool close(std::int64_t a, std::int64_t b) {
  return std::abs(static_cast<double>(a - b)) < 0.02 * static_cast<double>(b);
}

// What loads as many lines as `loads`.
std::string explanation(const Sizes& sizes, std::int64_t loads) {
  const std::int64_t ijk = loads_of(sizes, [](const Sizes& s, const auto& at) {
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j)
        for (std::int64_t k = 0; k < s.k; ++k) at(i, k, j);
  });
  if (close(loads, ijk))
    return fmt::format(
        "So does the plain product with loops over i, j, k. The innermost loop walks down a column of B: "
        "each step is a line of its own, and a column of {} rows and a line of A do not stay in 512 lines.",
        sizes.k);
  const std::int64_t ikj = loads_of(sizes, [](const Sizes& s, const auto& at) {
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t k = 0; k < s.k; ++k)
        for (std::int64_t j = 0; j < s.n; ++j) at(i, k, j);
  });
  if (close(loads, ikj))
    return fmt::format(
        "So does the plain product with loops over i, k, j. Lines are used whole, and yet each row of A "
        "sweeps over all of B, which has {} lines and does not fit: cut it into blocks.",
        Problem::lines(sizes.k * sizes.n));
  const std::int64_t small = loads_of(sizes, [](const Sizes& s, const auto& at) { by_blocks(s, 16, at); });
  if (loads < 4 * small)
    return "Blocks help, and these are too small, or one of the three is left in the middle. Larger blocks "
           "are used more often before they go: three of s x s must fit into 8192 numbers, with s near 48.";
  return "The blocks do not stay in the cache: three of s x s must fit into 8192 numbers, so s is at most "
         "52. Inside of a block the innermost loop should be over j, along rows of B and C.";
}

void expect_few_loads(const Sizes& sizes) {
  Problem problem(sizes);
  const std::int64_t kept = learn::peak_bytes([&] { product(problem.a, problem.b, problem.c); });
  const std::int64_t loads = problem.cache.loads();
  learn::expect_numbers("c", sizes.n, problem.c.numbers(), problem.expected(), 1e-5, words(sizes));
  if (kept > Cache::kBytes)
    learn::wrong(
        "product() holds {} bytes of its own. No cache of {} bytes has them, and the counter does not see "
        "them: use the numbers of a, b and c where they are.",
        kept, Cache::kBytes);
  const std::int64_t blocked = loads_of(sizes, [](const Sizes& s, const auto& at) { by_blocks(s, 32, at); });
  const std::int64_t most = blocked * 3 / 2;
  if (loads > most)
    learn::wrong("{}. {} lines were loaded. Blocks of 32 x 32 load {}, and more than {} is too many.\n{}",
                 words(sizes), loads, blocked, most, explanation(sizes, loads));
}

}  // namespace

int main() {
  return learn::run({
      {"a small product is right",
       [] {
         expect_product({2, 3, 4});
       }},
      {"sizes that are multiples of every block are right",
       [] {
         expect_product({96, 192, 96});
       }},
      {"so are those that are no multiple of a block",
       [] {
         for (const Sizes& sizes :
              {Sizes{1, 1, 1}, Sizes{33, 47, 65}, Sizes{1, 100, 7}, Sizes{53, 1, 49}, Sizes{7, 129, 1}})
           expect_product(sizes);
       }},
      {"a column of B that is longer than the cache loads few lines",
       [] {
         expect_few_loads({24, 1040, 48});
       }},
      {"a product of 72 x 176 x 150 loads few lines",
       [] {
         expect_few_loads({72, 176, 150});
       }},
      {"so does one of odd sizes",
       [] {
         expect_few_loads({65, 187, 139});
       }},
  });
}
