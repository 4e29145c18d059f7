// says: divided by 1 - p
#include "learn/given/philox.h"
#include "learn/given/row.h"

learn::Words philox(learn::Words counter, learn::Key key) {
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0, product1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key.low;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key.high;
    c3 = static_cast<std::uint32_t>(product0);
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

void dropout(learn::In x, std::uint64_t first, float p, learn::Key key, learn::Out y) {
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::uint64_t n = first + static_cast<std::uint64_t>(i), block = n / 4;
    const learn::Words counter = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                  0, 0};
    y[i] = uniform(philox(counter, key)[n % 4]) < p ? 0 : x[i];
  }
}
