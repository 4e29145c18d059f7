#include "learn/behind/cuda.h"
#include "learn/behind/memory_watch.h"

dim3 transpose_grid(int rows, int columns);
__global__ void transpose(learn::Global<const float> x, learn::Global<float> y, int rows, int columns);

namespace {

constexpr int kTile = 32;
const dim3 kBlock(kTile, 8);

void expect_transposed(int rows, int columns) {
  const std::int64_t count = std::int64_t{rows} * columns;
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  const auto got = learn::in_all_orders("y", [&] {
    learn::Array<float> x("x", numbers), y("y", count);
    learn::launch("transpose", transpose, transpose_grid(rows, columns), kBlock, x, y, rows, columns);
    return y.read();
  });
  for (int c = 0; c < columns; ++c)
    for (int r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(c * rows + r);
      const float expected = numbers[static_cast<std::size_t>(r * columns + c)];
      if (got[at] != expected)
        learn::wrong(
            "x has {} rows and {} columns. Row {}, column {} of y is {}, and row {}, column {} of x, which "
            "belongs "
            "there, is {}.",
            rows, columns, c, r, got[at], r, c, expected);
    }
}

const char* const kFull = "The tile must be full before it is read, since a thread reads what others wrote.";
const char* const kBounds =
    "In y the places are turned, and so are their bounds: its rows are the columns of x.";

void watch_transpose(const std::function<void(const learn::MemoryWatch&)>& law) {
  learn::Array<float> x("x", learn::draw(64 * 64, 5)), y("y", std::int64_t{64 * 64});
  const learn::MemoryWatch watch;
  learn::launch("transpose", transpose, transpose_grid(64, 64), kBlock, x, y, 64, 64);
  law(watch);
}

}  // namespace

int main() {
  return learn::run({
      {"one tile is transposed",
       [] {
         learn::explain({{"race on shared memory", kFull}, {"has written yet", kFull}},
                        [] { expect_transposed(kTile, kTile); });
       }},
      {"several tiles are transposed",
       [] {
         learn::explain(
             {{"",
               "A tile that begins at row r and column c of x is read there; its place in y has the two "
               "exchanged, row c and column r."}},
             [] {
               expect_transposed(2 * kTile, 2 * kTile);
               expect_transposed(2 * kTile, 3 * kTile);
             });
       }},
      {"tiles at the edge, which are not full, are transposed",
       [] {
         const std::string rounded =
             "A quotient of whole numbers is rounded down, so the tiles at the edge are missing. (n + k - 1) "
             "/ k is "
             "rounded up.";
         for (const auto& [rows, columns] :
              {std::pair{40, 40}, {33, 70}, {70, 33}, {1, 100}, {100, 1}, {5, 7}}) {
           const dim3 grid = transpose_grid(rows, columns);
           const auto tiles =
               static_cast<std::uint64_t>((rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile));
           const std::string few =
               fmt::format("{} rows and {} columns have {} tiles; blocks in the grid: {}. ", rows, columns,
                           tiles, grid.count());
           const std::string missing = grid.count() < tiles ? few + rounded : kBounds;
           learn::explain({{"was never written", missing},
                           {"an empty grid", few + rounded},
                           {"the last is", kBounds},
                           {"has written yet", kBounds}},
                          [&, r = rows, c = columns] { expect_transposed(r, c); });
         }
       }},
      {"neighbouring threads read and write neighbouring numbers",
       [] {
         watch_transpose([](const learn::MemoryWatch& watch) {
           watch.expect_coalesced(
               "Go through a tile in shared memory: read with threadIdx.x along a row of x, and write with "
               "threadIdx.x "
               "along a row of y.");
         });
       }},
      {"the threads of a warp use different banks of shared memory",
       [] {
         watch_transpose([](const learn::MemoryWatch& watch) {
           watch.expect_no_bank_conflicts(
               "The numbers of a column lie 32 words apart, and so in one bank. A row of the tile that is "
               "one word "
               "longer, of which nobody uses the last, moves each row on by a bank.");
         });
       }},
  });
}
