// `keel comm --sum`: what it prints is the order in which algorithms add, and what comes out.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "keel/dist/comm/algorithm_names.h"
#include "tests/cli/program.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::run_keel;

struct Row {
  std::string algorithm, shards, order, sums, result;
};

// Cells of a table lie two spaces apart.
std::vector<Row> rows_of(const std::string& text) {
  std::vector<Row> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#') || line.starts_with("algorithm")) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = std::min(line.find("  ", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = std::min(line.find_first_not_of(' ', end), line.size());
    }
    if (cells.size() != 5) throw Error(concat("not a row of five cells: '", line, "'"));
    rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4]});
  }
  return rows;
}

// To so many significant bits, ties to even.
double rounded(double x, int bits) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(x / unit) * unit;
}

// Of "((1+2)+3)+0" from `at` on: brackets and the whole are rounded to `bits`, and what is between to those of fp32.
double evaluated(const std::string& order, std::size_t& at, const std::vector<double>& terms, int bits) {
  double total = 0;
  for (bool is_first = true; is_first || (at < order.size() && order[at] == '+'); is_first = false) {
    if (!is_first) ++at;
    double next = 0;
    if (order[at] == '(') {
      next = evaluated(order, ++at, terms, bits);
      ++at;
    } else {
      std::size_t length = 0;
      next = terms.at(std::stoul(order.substr(at), &length));
      at += length;
    }
    total = rounded(total + next, 24);
  }
  return rounded(total, bits);
}

std::set<int> ranks_in(const std::string& text) {
  std::set<int> ranks;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] >= '0' && text[at] <= '9') ranks.insert(text[at] - '0');
  return ranks;
}

TEST(CommSum, EveryOrderThatIsPrintedGivesThePrintedResultByEveryAlgorithm) {
  const std::vector<double> all = {256, 1, 3, 0.375};
  const std::map<std::string, int> bits = {{"f32", 24}, {"bf16", 8}, {"f16", 11}};
  for (const auto& [dtype, of_dtype] : bits)
    for (const std::size_t n : {2, 3, 4}) {
      SCOPED_TRACE(concat(dtype, ' ', n));
      const std::vector<double> terms(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
      std::string words, separator;
      for (const double each : terms) words += concat(std::exchange(separator, ","), each);
      const Outcome outcome = run_keel(concat("comm --sum ", words, " --dtype ", dtype, " --columns 200"));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      std::map<std::string, std::set<int>> shards;
      for (const Row& row : rows_of(outcome.out)) {
        std::size_t at = 0;
        EXPECT_EQ(std::stod(row.result), evaluated(row.order, at, terms, of_dtype))
            << row.algorithm << ' ' << row.order;
        EXPECT_EQ(at, row.order.size());
        EXPECT_EQ(ranks_in(row.order).size(), n) << row.order;
        for (const int shard : ranks_in(row.shards == "all" ? std::string("0123").substr(0, n) : row.shards))
          EXPECT_TRUE(shards[row.algorithm].insert(shard).second)
              << row.algorithm << " has shard " << shard << " twice";
      }
      for (const AlgorithmName& name : algorithm_names()) {
        const auto found = shards.find(std::string(name.name));
        EXPECT_EQ(found == shards.end() ? 0 : found->second.size(), name.algorithm.empty() ? 0 : n) << name.name;
      }
    }
}

TEST(CommSum, RoundsWhereAPlainSumSaysThatItMust) {
  const Outcome outcome = run_keel("comm --sum 256,1,1,1 --dtype bf16 --algorithms ordered,tree,ring --columns 200");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("by rank they bring 256, 1, 1, 1; added in f64: 259\n"), std::string::npos) << outcome.out;
  const std::vector<Row> rows = rows_of(outcome.out);
  ASSERT_EQ(rows.size(), 6u) << outcome.out;
  EXPECT_EQ(rows[0].shards, "all");
  EXPECT_EQ(rows[0].sums, "256 + 1 + 1 + 1 = 259 -> 260");
  EXPECT_EQ(rows[0].result, "260");
  EXPECT_EQ(rows[1].sums, "256 + 1 = 257 -> 256, 1 + 1 = 2, 256 + 2 = 258");
  EXPECT_EQ(rows[1].result, "258");
  EXPECT_EQ(rows[5].order, "((0+1)+2)+3");
  EXPECT_EQ(rows[5].result, "256");
  EXPECT_NE(outcome.out.find("# ordered: by rank, in one sum that is rounded once\n"), std::string::npos);
}

TEST(CommSum, TakesNodesSeveralTypesAndWhatIsNoFiniteNumber) {
  const Outcome nodes = run_keel("comm --sum 1,2,3,4 --algorithms hier --ranks-per-node 2 --columns 200");
  EXPECT_NE(nodes.out.find("(0+1)+(2+3)"), std::string::npos) << nodes.out << nodes.err;
  const Outcome types = run_keel("comm --sum=-1e300,1e300,0.1 --dtype f64,f16 --algorithms ordered --columns 200");
  EXPECT_EQ(types.code, 0) << types.err;
  EXPECT_NE(types.out.find("-1e+300 + 1e+300 + 0.1 = 0.1"), std::string::npos) << types.out;
  EXPECT_NE(types.out.find("bring -inf, inf, 0.099975586; added in f64: "), std::string::npos) << types.out;
}

TEST(CommSum, SaysWhatItDoesNotAdd) {
  const std::pair<const char*, const char*> bad[] = {
      {"--sum 1,two", "'two' is none"},
      {"--sum ''", "'' is none"},
      {"--sum 1", "there is 1"},
      {"--sum 1,2 -N 3", "-N is 3"},
      {"--sum 1,2 --algorithms rnig", "did you mean 'ring'"},
      {"--sum 1,2 --algorithms ring,backend", "cannot show backend"},
      {"--sum 1,2 --dtype i32", "in i32 the order of additions makes no difference"},
      {"--sum 1,2 --op max", "--op"},
      {"reduce --sum 1,2", "all_reduce alone"},
  };
  for (const auto& [words, said] : bad) {
    const Outcome outcome = run_keel(concat("comm ", words));
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << words << ": " << outcome.err;
  }
}

}  // namespace
}  // namespace keel::cli
