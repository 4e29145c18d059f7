// Which rank transforms which matrix, and which are dealt together.

#include "keel/dist/parallel/matrix_deal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(MatrixDeal, GivesEachRankAboutTheSameCostAndEveryMatrixOneOwner) {
  struct ManyLayers : Module {
    std::vector<Linear> layers;
    ManyLayers() {
      for (std::int64_t i = 0; i < 23; ++i) layers.emplace_back(8 + 5 * (i % 7), 16 + 3 * (i % 5));
    }
    void visit(Visitor& v) override { v("layers", layers); }
  } model;
  const auto optimizer = make_elementwise("Muon", {.settings = MuonSettings{}});
  for (const int ranks : {1, 2, 3, 5, 40}) {
    const std::vector<FlatBuffer> layout = lay_out(model, ranks);
    std::vector<const FlatBuffer*> units;
    for (const FlatBuffer& unit : layout) units.push_back(&unit);
    const MatrixDeal deal(units, *optimizer, decay_matrices_only, ranks, true, DType::f32);
    ASSERT_EQ(deal.matrices().size(), 23U);
    EXPECT_EQ(deal.dtype(), DType::bf16);
    std::vector<double> costs(static_cast<std::size_t>(ranks));
    double all = 0, largest = 0;
    std::int64_t owned = 0, dealt = 0, sent = 0;
    for (const DealtMatrix& matrix : deal.matrices()) {
      const double cost = static_cast<double>(matrix.rows * matrix.columns * std::min(matrix.rows, matrix.columns));
      costs.at(static_cast<std::size_t>(matrix.owner)) += cost;
      all += cost;
      largest = std::max(largest, cost);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      owned += deal.owned(rank);
      dealt += deal.dealt(rank);
      for (int to = 0; to < ranks; ++to) sent += deal.exchanged(rank, to);
      EXPECT_LE(deal.dealt(rank), deal.most_dealt());
    }
    // Longest first is at most 4/3 of the best (Graham 1969), which is at least the mean and the largest.
    EXPECT_LE(*std::ranges::max_element(costs), 4.0 / 3 * std::max(all / ranks, largest));
    EXPECT_EQ(owned, dealt);
    EXPECT_EQ(sent, dealt);
    EXPECT_EQ(MatrixDeal({}, *optimizer, decay_matrices_only, ranks, true, DType::f32).most_dealt(), 0);
    const MatrixDeal shared(units, *optimizer, decay_matrices_only, ranks, true, DType::f32, MatrixWork::everyone);
    std::int64_t arriving = 0, leaving = 0, operations = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      leaving += shared.sent(rank);
      arriving += shared.dealt(rank);
      operations += shared.operations(*optimizer, rank) - deal.operations(*optimizer, rank);
    }
    EXPECT_EQ(leaving, arriving) << "whoever has a part of a matrix gets all of it";
    EXPECT_EQ(operations == 0, ranks == 1);
  }
}

// Two long ones together take less than a square one of fewer numbers.
TEST(MatrixDeal, TheShorterSideOfAMatrixCountsTwiceInItsCost) {
  struct Net : Module {
    Linear wide{4, 4000}, square{100, 100}, tall{4000, 4};
    void visit(Visitor& v) override {
      v("wide", wide);
      v("square", square);
      v("tall", tall);
    }
  } model;
  const std::vector<FlatBuffer> layout = lay_out(model, 2);
  std::vector<const FlatBuffer*> units;
  for (const FlatBuffer& unit : layout) units.push_back(&unit);
  const MatrixDeal deal(units, *make_elementwise("Muon", {.settings = MuonSettings{}}), decay_matrices_only, 2, true,
                        DType::f32);
  ASSERT_EQ(deal.matrices().size(), 3U);
  EXPECT_EQ(deal.matrices()[0].owner, deal.matrices()[2].owner);
  EXPECT_NE(deal.matrices()[0].owner, deal.matrices()[1].owner);
}

TEST(MatrixDeal, InBatchesHasEachMatrixOnceAndNoMoreOfThemOnARankThanItIsTold) {
  UnitNet model(kWidth, 7);
  const auto optimizer = make_elementwise("Muon", {.settings = MuonSettings{}});
  constexpr std::int64_t kOfUnit = kWidth * (kWidth + 1);
  for (const int ranks : {1, 3})
    for (const bool sharded : {false, true})
      for (const std::int64_t most :
           {std::int64_t{1}, kOfUnit - 1, kOfUnit, 2 * kOfUnit, 3 * kOfUnit - 1, 100 * kOfUnit}) {
        const std::vector<FlatBuffer> layout = lay_out(model, ranks);
        std::vector<const FlatBuffer*> units;
        for (const FlatBuffer& unit : layout) units.push_back(&unit);
        const MatrixDeal all(units, *optimizer, decay_matrices_only, ranks, sharded, DType::f32);
        const std::vector<MatrixDeal> batches = all.in_batches(most);
        std::int64_t next = 0;
        std::size_t matrices = 0;
        for (const MatrixDeal& batch : batches) {
          EXPECT_EQ(batch.units().begin, next);
          next = batch.units().end;
          EXPECT_EQ(batch.matrices().size(), static_cast<std::size_t>(batch.units().count()));
          matrices += batch.matrices().size();
          for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_TRUE(batch.owned(rank) <= most || batch.units().count() == 1);
            EXPECT_TRUE(batches.size() > 1 || batch.dealt(rank) == all.dealt(rank));
          }
        }
        EXPECT_EQ(next, 7);
        EXPECT_EQ(matrices, 7U);
        const std::size_t expected = most < 2 * kOfUnit ? 7 : most < 100 * kOfUnit ? 4 : 1;
        EXPECT_TRUE(all.sharded() || batches.size() == expected) << batches.size();
      }
}

}  // namespace
}  // namespace keel
