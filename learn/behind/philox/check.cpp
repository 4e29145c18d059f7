#include <bit>

#include "learn/behind/numbers.h"
#include "learn/given/philox.h"

learn::Words philox(learn::Words counter, learn::Key key);
float uniform(std::uint32_t word);
void dropout(learn::In x, std::uint64_t first, float p, learn::Key key, learn::Out y);

namespace {

using learn::Key, learn::Words;

// Philox with its parts spelt out, right or with a mistake.
struct Philox {
  int rounds = 10;
  bool wide = true, at_once = true, key_first = false, key_grows = true, crossed = true,
       halves_swapped = false;

  static std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x & 0xffffffffU); }
  static std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  Words operator()(Words c, Key key) const {
    std::uint32_t k[2] = {key.low, key.high};
    for (int round = 0; round < rounds; ++round) {
      if (key_grows && (key_first || round > 0)) k[0] += 0x9E3779B9U, k[1] += 0xBB67AE85U;
      std::uint64_t of_c0 = 0xD2511F53ULL * c[0], of_c2 = 0xCD9E8D57ULL * c[2];
      if (!wide) of_c0 = low(of_c0), of_c2 = low(of_c2);
      if (!crossed) std::swap(of_c0, of_c2);
      if (halves_swapped) of_c0 = std::rotl(of_c0, 32), of_c2 = std::rotl(of_c2, 32);
      const Words before = c;
      c[0] = high(of_c2) ^ before[1] ^ k[0];
      c[1] = low(of_c2);
      if (!at_once) of_c0 = 0xD2511F53ULL * c[0];
      c[2] = high(of_c0) ^ before[3] ^ k[1];
      c[3] = low(of_c0);
    }
    return c;
  }
};

std::string hex(const Words& w) { return fmt::format("{:08x} {:08x} {:08x} {:08x}", w[0], w[1], w[2], w[3]); }

struct Told {
  Philox philox;
  const char* why;
};
const Told kTold[] = {
    {{.wide = false},
     "So it is if the products are computed in 32 bits: then their upper halves are 0. One factor has to be "
     "a std::uint64_t."},
    {{.at_once = false},
     "So it is if product0 is made from c0 after c0 was changed, so each round would see the new c0. Compute "
     "both products first."},
    {{.key_first = true},
     "So it is if the key has grown before the first round. The first round takes it as it was given."},
    {{.key_grows = false}, "So it is if the key never grows. It does between two rounds."},
    {{.crossed = false},
     "So it is if product0 makes c0 and c1. They cross: product1 makes c0 and c1, product0 makes c2 and c3."},
    {{.halves_swapped = true}, "So it is if upper and lower halves of the products are swapped."},
    {{.rounds = 7}, "Those are 7 rounds, and 10 are asked for."},
    {{.rounds = 9}, "Those are 9 rounds, and 10 are asked for."},
    {{.rounds = 11}, "Those are 11 rounds, and 10 are asked for."},
};

// Of 10 rounds, with a `known` answer.
void expect_words(const Words& counter, Key key, const Words& known) {
  const Words got = philox(counter, key);
  if (got == known) return;
  std::string what = fmt::format("philox(counter {}, key {:08x} {:08x}) is {}, and {} was expected.",
                                 hex(counter), key.low, key.high, hex(got), hex(known));
  if (got == counter) learn::wrong(what + "\nThat is the counter itself: nothing was done to it yet.");
  for (const Told& told : kTold)
    if (got == told.philox(counter, key)) learn::wrong(what + "\n" + told.why);
  learn::wrong(what);
}

void gives_known_answers() {
  // Known answers of Random123, the authors' library, for philox4x32 with 10 rounds.
  const std::uint32_t f = 0xffffffff;
  expect_words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  expect_words({0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words({f, f, f, f}, {f, f}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

void answers_any_counter() {
  std::uint32_t x = 12345;
  const auto next = [&x] { return x = x * 1664525U + 1013904223U; };
  for (int i = 0; i < 500; ++i) {
    const Words counter = {next(), next(), next(), next()};
    const Key key = {next(), next()};
    expect_words(counter, key, Philox()(counter, key));
  }
}

void is_uniform() {
  const std::pair<std::uint32_t, double> known[] = {{0x80000000, 0.5},
                                                    {0x40000000, 0.25},
                                                    {0, 0},
                                                    {0x00000100, 0x1p-24},
                                                    {0xffffff00, 1 - 0x1p-24},
                                                    {0xffffffff, 1 - 0x1p-24},
                                                    {0x000000ff, 0},
                                                    {0x12345678, 0x123456 * 0x1p-24}};
  for (const auto& [word, expected] : known) {
    const float got = uniform(word);
    if (got == expected) continue;
    std::string what =
        fmt::format("uniform(0x{:08x}) is {:.9g}, and {:.9g} was expected.", word, got, expected);
    if (got == 0)
      what += "\nThat is 0, which only words below 256 are. A quotient of whole numbers would be 0, too.";
    else if (got == 1)
      what +=
          "\nIt must stay below 1. A float has 24 bits: a word of 32 bits near 2^32 rounds up to 1 when it "
          "becomes a float. Shift it first, by 8 bits.";
    else if (std::abs(got - expected) < 0x1p-24)
      what += "\nThe lower 8 bits of the word have to go, so that all numbers are multiples of 2^-24.";
    learn::wrong(what);
  }
}

bool drops(std::uint64_t n, Key key, float p) {
  const std::uint64_t block = n / 4;
  const Words words = Philox()({Philox::low(block), Philox::high(block), 0, 0}, key);
  return static_cast<double>(words[n % 4] >> 8) * 0x1p-24 < double{p};
}

// dropout of `count` numbers from `first` on.
void expect_dropout(std::int64_t count, std::uint64_t first, float p) {
  const Key key = {17, 4};
  const std::vector<float> x = learn::draw(count, 3, 1, 2);
  learn::Written y(count);
  dropout(learn::in(x), first, p, key, y);
  y.expect_whole("y");
  std::int64_t by_piece = 0, by_low = 0, apart = -1, one_word = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float given = x[static_cast<std::size_t>(i)];
    const std::uint64_t n = first + static_cast<std::uint64_t>(i);
    if (y[i] != 0 && p > 0 && y[i] == given)
      learn::wrong(
          "y[{}] is {}, as x[{}] is. What is kept has to be divided by 1 - p, here {}, so that the sum stays "
          "the same on the average.",
          i, y[i], i, 1 - p);
    if (y[i] != 0 && std::abs(y[i] - given / (1 - p)) > 1e-5F * given)
      learn::wrong("y[{}] is {}, and x[{}] / (1 - p) = {} was expected, or 0.", i, y[i], i, given / (1 - p));
    const bool dropped = y[i] == 0;
    if (dropped != drops(n, key, p) && apart < 0) apart = i;
    by_piece += dropped == drops(static_cast<std::uint64_t>(i), key, p);
    by_low += dropped == drops(n & 0x3ffffffffULL, key, p);
    one_word += dropped == drops(n / 4 * 4, key, p);
  }
  if (apart < 0) return;
  std::string what = fmt::format(
      "x has {} numbers, first is {} and p is {}. y[{}], number {} of the row, is {}, and should {}be 0.",
      count, first, p, apart, first + static_cast<std::uint64_t>(apart), y[apart],
      y[apart] == 0 ? "not " : "");
  if (by_piece == count)
    what += "\nThe mask counts from the piece's own beginning: it is that of number i in place of first + i.";
  else if (by_low == count)
    what +=
        "\nThe upper half of n / 4 has to be the second word of the counter, and n has to be of 64 bits. "
        "Otherwise the row begins anew after 2^34 numbers.";
  else if (one_word == count)
    what += "\nAll four numbers of a counter take its first word. Number n takes word n % 4.";
  learn::wrong(what);
}

void does_not_depend_on_pieces() {
  const Key key = {5, 6};
  const std::int64_t count = 103;
  const std::vector<float> x = learn::draw(count, 8, 1, 2);
  learn::Written whole(count);
  dropout(learn::in(x), 1001, 0.5F, key, whole);
  for (const std::int64_t size : {1, 3, 4, 7, 50})
    for (std::int64_t end = count; end > 0; end -= size) {  // the last piece first
      const std::int64_t begin = std::max<std::int64_t>(0, end - size);
      learn::Written piece(end - begin);
      dropout(learn::In(x.data() + begin, end - begin), 1001 + static_cast<std::uint64_t>(begin), 0.5F, key,
              piece);
      for (std::int64_t i = begin; i < end; ++i)
        if (piece[i - begin] != whole[i])
          learn::wrong(
              "Number {} of a row is {} when the row is computed at once, and {} in a piece of {} that "
              "begins with number {}: each must depend on its own number alone.",
              1001 + i, whole[i], piece[i - begin], end - begin, 1001 + begin);
    }
}

void keeps_its_share() {
  const std::int64_t count = 20000;
  const std::vector<float> x(static_cast<std::size_t>(count), 1.0F);
  for (const float p : {0.0F, 0.1F, 0.75F}) {
    learn::Written y(count);
    dropout(learn::in(x), 0, p, {1, 2}, y);
    const auto zeros = std::ranges::count(y.read(), 0.0F);
    const double share = static_cast<double>(zeros) / static_cast<double>(count);
    if (p == 0 && zeros > 0)
      learn::wrong("p is 0, and {} of {} numbers became 0. A uniform number of 0 is not below 0.", zeros,
                   count);
    if (std::abs(share - double{p}) > 0.02)
      learn::wrong("p is {}, and {:.3f} of all numbers became 0.", p, share);
  }
}

}  // namespace

int main() {
  return learn::run({
      {"philox gives the known answers", gives_known_answers},
      {"it does so for any counter and key", answers_any_counter},
      {"uniform is the upper 24 bits, and never 1", is_uniform},
      {"dropout takes word n % 4 of counter n / 4", [] { expect_dropout(24, 0, 0.5F); }},
      {"a share p is dropped", keeps_its_share},
      {"a piece from the middle of a row has the mask of its place",
       [] {
         for (const std::uint64_t first : {1, 4, 7, 1002}) expect_dropout(41, first, 0.3F);
       }},
      {"pieces of any size, in any order, make the same row", does_not_depend_on_pieces},
      {"numbers beyond 2^34 have masks of their own",
       [] {
         expect_dropout(64, (std::uint64_t{1} << 34) + 40, 0.5F),
             expect_dropout(64, (std::uint64_t{5} << 40) - 9, 0.5F);
       }},
  });
}
