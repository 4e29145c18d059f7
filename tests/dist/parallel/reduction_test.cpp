// The stages by which a unit's gradient is summed, with numbers counted by hand.

#include "keel/dist/parallel/reduction.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/dist/parallel/unit_split.h"
#include "tests/dist/parallel/planned_text.h"

namespace keel {
namespace {

using testing::text_of;
using Type = Compression::Type;
using Stages = std::vector<std::string>;

constexpr const char* kStageKinds[] = {"scatter_sums",   "sum_whole",      "sum_replicas",    "scatter_payloads",
                                       "scatter_inside", "scatter_across", "gather_payloads", "gather_replicas",
                                       "gather_sums",    "left_factors",   "right_factors"};

// "sum_whole: 1 x all_reduce of 3072 x 4 among shards; holds 0, later 0".
Stages stages_of(const ReductionPlan& plan) {
  Stages all;
  for (const ReductionStage& stage : plan.stages)
    all.push_back(concat(kStageKinds[static_cast<std::size_t>(stage.kind)], ": ", text_of(stage.collective), "; holds ",
                         stage.held, ", later ", stage.held_later));
  return all;
}

// 3,072 numbers over four ranks, of which the second has 768: 780 bytes in int8, and 396 in int4.
UnitSplit quarter() { return {.ranks = 4, .whole = 3072, .shard = {768, 1536}, .owned = {768, 1536}}; }
// The same in stage 0.
UnitSplit all_of_it() {
  UnitSplit split = quarter();
  split.owned = {0, 3072};
  return split;
}
RankPlace place_of_four() { return {.ranks = 4, .rank = 1}; }

ReductionPlan planned(const UnitSplit& split, const Compression& compression = {},
                      const RankPlace& place = place_of_four()) {
  return plan_reduction({}, split, compression, place);
}

TEST(Reduction, OfARankAloneHasNoStage) {
  for (const Type type : {Type::none, Type::int8, Type::top_k, Type::qgz, Type::power_sgd}) {
    const ReductionPlan plan = planned(all_of_it(), {.type = type}, {});
    EXPECT_EQ(stages_of(plan), Stages{});
    EXPECT_EQ(plan.state, 0);
    EXPECT_EQ(plan.residual, Span());
  }
}

TEST(Reduction, OfNumbersIsOneSum) {
  EXPECT_EQ(stages_of(planned(all_of_it())),
            Stages{"sum_whole: 1 x all_reduce of 3072 x 4 among shards; holds 0, later 0"});
  UnitSplit split = quarter();
  const std::string sums = "scatter_sums: 1 x reduce_scatter of 3072 x ";
  EXPECT_EQ(stages_of(planned(split)), Stages{sums + "4 among shards; holds 0, later 3072"});
  split.wire = DType::bf16;
  EXPECT_EQ(stages_of(planned(split)), Stages{sums + "2 among shards; holds 1536, later 1536"});
  split.gradient = DType::bf16;
  EXPECT_EQ(stages_of(planned(split)), Stages{sums + "2 among shards; holds 0, later 1536"});
  UnitSplit apart = all_of_it();
  apart.adds_sums = true;
  EXPECT_EQ(stages_of(planned(apart)), Stages{sums + "4 among shards; holds 0, later 3072"})
      << "sums of several passes lie in a shard, in stage 0 too";
  EXPECT_EQ(stages_of(planned(quarter(), {.type = Type::fp16})), Stages{sums + "4 among shards; holds 0, later 3072"})
      << "the wire is the unit's";
  const RankPlace two{.ranks = 2, .rank = 1};
  EXPECT_EQ(stages_of(planned(quarter(), {}, two)).size(), 1U);
}

// What a rank has of its group's sum, in the memory where that is.
TEST(Reduction, OfGroupsIsASumOfTheirSums) {
  RankPlace place = place_of_four();
  place.groups = 2;
  EXPECT_EQ(stages_of(planned(all_of_it(), {}, place)),
            (Stages{"sum_whole: 1 x all_reduce of 3072 x 4 among shards; holds 0, later 0",
                    "sum_replicas: 1 x all_reduce of 3072 x 4 among replicas; holds 0, later 0"}));
  UnitSplit split = quarter();
  split.wire = DType::bf16;
  EXPECT_EQ(stages_of(planned(split, {}, place)),
            (Stages{"scatter_sums: 1 x reduce_scatter of 3072 x 2 among shards; holds 1536, later 1536",
                    "sum_replicas: 1 x all_reduce of 768 x 2 among replicas; holds 1536, later 1536"}));
  split.gradient = DType::bf16;
  EXPECT_EQ(stages_of(planned(split, {}, place)),
            (Stages{"scatter_sums: 1 x reduce_scatter of 3072 x 2 among shards; holds 0, later 1536",
                    "sum_replicas: 1 x all_reduce of 768 x 2 among replicas; holds 0, later 1536"}));
  place.sums_groups = false;
  EXPECT_EQ(stages_of(planned(split, {}, place)).size(), 1U) << "a strategy has the groups";
}

TEST(Reduction, OfAGroupOfOneRankIsASumOfGroupsAlone) {
  UnitSplit split = all_of_it();
  split.ranks = 1;
  split.shard = split.owned;
  EXPECT_EQ(stages_of(planned(split, {}, {.groups = 3})),
            (Stages{"sum_whole: 1 x all_reduce of 3072 x 4 among shards; holds 0, later 0",
                    "sum_replicas: 1 x all_reduce of 3072 x 4 among replicas; holds 0, later 0"}));
}

TEST(Reduction, OfPayloadsSendsEachShardToItsRank) {
  const ReductionPlan int8 = planned(quarter(), {.type = Type::int8});
  EXPECT_EQ(stages_of(int8),
            Stages{"scatter_payloads: 1 x all_to_all of 3120 x 1 among shards; holds 6240, later 6240"});
  EXPECT_EQ(int8.state, 4 * 3072);
  EXPECT_EQ(int8.residual, (Span{0, 3072}));
  EXPECT_EQ(int8.feedback_stage, 0U);
  EXPECT_EQ(stages_of(planned(quarter(), {.type = Type::int4})),
            Stages{"scatter_payloads: 1 x all_to_all of 1584 x 1 among shards; holds 3168, later 3168"});
  for (const auto& [bits, text] : {std::pair(Compression::Bits::eight, "3120 x 1 among shards; holds 6240, later 6240"),
                                   {Compression::Bits::four, "1584 x 1 among shards; holds 3168, later 3168"}}) {
    const ReductionPlan qgz = planned(quarter(), {.type = Type::qgz, .bits = bits});
    EXPECT_EQ(stages_of(qgz), Stages{concat("scatter_payloads: 1 x all_to_all of ", text)});
    EXPECT_EQ(qgz.state, 0) << "nothing is kept";
    EXPECT_EQ(qgz.residual, Span());
  }
}

// A number that is kept has 8 bytes: of 768, 384 in 3,072 bytes go to three others, or a shard of 3,072 bytes to all.
TEST(Reduction, OfWholeSumsSendsPayloadsToAllWhereTheyAreNoMoreThanASumOfAShard) {
  const auto stages = [](double fraction) {
    return stages_of(planned(all_of_it(), {.type = Type::top_k, .fraction = fraction}));
  };
  EXPECT_EQ(stages(128 / 768.0),
            Stages{"gather_payloads: 1 x all_gather of 16384 x 1 among shards; holds 20480, later 20480"})
      << "as many: 3 x 1024 bytes, and 3072";
  EXPECT_EQ(stages(129 / 768.0),
            (Stages{"scatter_payloads: 1 x all_to_all of 4128 x 1 among shards; holds 8256, later 8256",
                    "gather_sums: 1 x all_gather of 3072 x 4 among shards; holds 12288, later 12288"}));
  UnitSplit split = all_of_it();
  split.wire = DType::bf16;
  EXPECT_EQ(stages_of(planned(split, {.type = Type::top_k, .fraction = 128 / 768.0})),
            (Stages{"scatter_payloads: 1 x all_to_all of 4096 x 1 among shards; holds 8192, later 8192",
                    "gather_sums: 1 x all_gather of 3072 x 2 among shards; holds 6144, later 6144"}));
}

// Shards of one place in all subgroups inside, and each of them across.
TEST(Reduction, OfSubgroupsHasTwoLevels) {
  const Compression qgz{.type = Type::qgz, .bits = Compression::Bits::eight};
  UnitSplit split{.ranks = 6, .whole = 4608, .shard = {768, 1536}, .owned = {768, 1536}};
  for (const auto& [subgroup, across, held] : {std::tuple(2, 3 * 780, 6 * 780), {3, 2 * 780, 4 * 780}}) {
    const Stages scattered = {
        "scatter_inside: 1 x all_to_all of 4680 x 1 among inside; holds 9360, later 9360",
        concat("scatter_across: 1 x all_to_all of ", across, " x 1 among across; holds ", held, ", later ", held)};
    EXPECT_EQ(stages_of(planned(split, qgz, {.ranks = 6, .rank = 1, .subgroup = subgroup})), scattered);
    UnitSplit whole = split;
    whole.owned = {0, 4608};
    Stages gathered = scattered;
    gathered.emplace_back("gather_sums: 1 x all_gather of 4608 x 4 among shards; holds 18432, later 18432");
    EXPECT_EQ(stages_of(planned(whole, qgz, {.ranks = 6, .rank = 1, .subgroup = subgroup})), gathered);
  }
  for (const int none : {0, 1, 6})
    EXPECT_EQ(stages_of(planned(split, qgz, {.ranks = 6, .rank = 1, .subgroup = none})),
              Stages{"scatter_payloads: 1 x all_to_all of 4680 x 1 among shards; holds 9360, later 9360"})
        << none;
}

// Payloads go across groups alone, of what the rank has of its group's sum.
TEST(Reduction, OfGroupsInPayloadsAddsNumbersInsideAGroup) {
  RankPlace place = place_of_four();
  place.groups = 3;
  const ReductionPlan shard = planned(quarter(), {.type = Type::int8}, place);
  EXPECT_EQ(stages_of(shard), (Stages{"scatter_sums: 1 x reduce_scatter of 3072 x 4 among shards; holds 0, later 3072",
                                      "gather_replicas: 1 x all_gather of 2340 x 1 among replicas; holds 3120, later "
                                      "3120"}));
  EXPECT_EQ(shard.residual, (Span{768, 1536}));
  EXPECT_EQ(shard.state, 3072);
  EXPECT_EQ(shard.feedback_stage, 1U);
  const ReductionPlan whole = planned(all_of_it(), {.type = Type::int8}, place);
  EXPECT_EQ(stages_of(whole), (Stages{"sum_whole: 1 x all_reduce of 3072 x 4 among shards; holds 0, later 0",
                                      "gather_replicas: 1 x all_gather of 9360 x 1 among replicas; holds 12480, later "
                                      "12480"}));
  EXPECT_EQ(whole.residual, (Span{0, 3072}));
  EXPECT_EQ(whole.state, 4 * 3072);
  place.sums_groups = false;
  EXPECT_EQ(stages_of(planned(quarter(), {.type = Type::int8}, place)),
            Stages{"scatter_payloads: 1 x all_to_all of 3120 x 1 among shards; holds 6240, later 6240"});
}

// Of a matrix of 40 by 70 the factors of three columns, and 200 numbers of a vector with the left ones.
TEST(Reduction, OfFactorsHasThoseOfEachMatrixAndTheOtherNumbers) {
  FlatBuffer layout;
  layout.segments = {{.name = "matrix", .shape = {40, 70}, .offset = 0, .numel = 2800, .parameter = nullptr},
                     {.name = "vector", .shape = {200}, .offset = 2800, .numel = 200, .parameter = nullptr}};
  layout.numel = 3000;
  layout.padded = 3072;
  const ReductionPlan plan = plan_reduction(layout, quarter(), {.type = Type::power_sgd, .rank = 3}, place_of_four());
  EXPECT_EQ(stages_of(plan), (Stages{"left_factors: 1 x all_reduce of 320 x 4 among shards; holds 1280, later 1280",
                                     "right_factors: 1 x all_reduce of 210 x 4 among shards; holds 2120, later 2120"}));
  EXPECT_EQ(plan.state, 4 * (3072 + 210)) << "the residual, and the right factors of the step before";
  EXPECT_EQ(plan.residual, (Span{0, 3072}));
  EXPECT_EQ(plan.feedback_stage, 0U);
}

TEST(Reduction, SendsNumbersOfTheWireInFourKindsOfStages) {
  std::string sums;
  for (std::size_t kind = 0; kind < std::size(kStageKinds); ++kind)
    if (ReductionStage{.kind = static_cast<ReductionStage::Kind>(kind), .collective = {}}.sends_sums())
      sums += concat(kStageKinds[kind], ' ');
  EXPECT_EQ(sums, "scatter_sums sum_whole sum_replicas gather_sums ");
}

}  // namespace
}  // namespace keel
