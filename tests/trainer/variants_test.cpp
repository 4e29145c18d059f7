// What is compared: every combination, with its name, its base and its changes.

#include "keel/trainer/variants.h"

#include <gtest/gtest.h>

#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;
using Texts = std::vector<std::string>;

Config plain_ddp(const std::string& more = "") {
  return parse_config("steps: 9\ndata: {type: addition}\nstrategy: ddp-bf16\n" + more, "c");
}

// Their names, bases and changes, and what each has of the keys.
std::string variants_told(const CompareAxes& axes, const std::string& more = "") {
  std::string told;
  for (const Variant& each : variants_of(plain_ddp(more), axes)) {
    const Config& config = each.config;
    told += concat(each.name, " | ", each.base, " | ", to_string(config.strategy), ' ', config.sharding.algorithm, ' ',
                   config.sharding.bucket, ' ', config.sharding.first_bucket, ' ',
                   config.gradient_compression.kind().name, ' ', config.gradient_compression.fraction, ' ',
                   config.gradient_compression.rank, ' ', config.optimizer.lr);
    for (const std::string& change : each.changes) told += concat(" | ", change);
    told += '\n';
  }
  return told;
}

std::string variants_refusal(const CompareAxes& axes) {
  return error_of([&] { variants_of(plain_ddp(), axes); });
}

TEST(Variants, AreAllCombinationsTheFirstAxisSlowest) {
  const Config c = plain_ddp();
  const std::string keys =
      concat(c.sharding.bucket, ' ', c.sharding.first_bucket, " none ", c.gradient_compression.fraction, ' ',
             c.gradient_compression.rank, ' ', c.optimizer.lr, '\n');
  EXPECT_EQ(variants_told({}), "ddp-bf16 | ddp-bf16 | ddp-bf16 ordered " + keys);
  EXPECT_EQ(variants_told({.strategies = {"zero1-fp32", "zero2-fp32"}, .algorithms = {"ring", "halving"}}),
            "zero1-fp32 ring | zero1-fp32 ring | zero1-fp32 ring " + keys +
                "zero1-fp32 halving | zero1-fp32 halving | zero1-fp32 rhd " + keys +
                "zero2-fp32 ring | zero2-fp32 ring | zero2-fp32 ring " + keys +
                "zero2-fp32 halving | zero2-fp32 halving | zero2-fp32 rhd " + keys);
}

TEST(Variants, OfBucketsHaveAFirstOneThatIsNoLarger) {
  const std::string more = "sharding: {first_bucket: 3}\n";
  const std::int64_t first = plain_ddp(more).sharding.first_bucket;
  const auto buckets = [&](const char* size) {
    const Config config = variants_of(plain_ddp(more), {.buckets = {size}}).at(0).config;
    return std::pair(config.sharding.bucket, config.sharding.first_bucket);
  };
  EXPECT_EQ(buckets("1"), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(buckets("1K"), std::pair(std::int64_t{1024}, std::int64_t{1024}));
  EXPECT_EQ(buckets("1G"), std::pair(std::int64_t{1} << 30, first));
  EXPECT_EQ(variants_refusal({.buckets = {"0"}}), "a bucket needs a size above 0");
}

TEST(Variants, OfCompressionsHaveNoneAmongThemAndABase) {
  const auto names = [](const CompareAxes& axes) {
    std::string all;
    for (const Variant& each : variants_of(plain_ddp(), axes))
      all += concat(each.name, " (", each.base, ") ", each.config.gradient_compression.kind().name, '\n');
    return all;
  };
  EXPECT_EQ(names({.compressions = {"int8", "bf16"}}), "none () none\nint8 () int8\nbf16 () bf16\n");
  EXPECT_EQ(names({.compressions = {"int8", "none"}}), "int8 () int8\nnone () none\n");
  EXPECT_EQ(names({.strategies = {"zero1-fp32", "zero2-fp32"}, .compressions = {"int8"}}),
            "zero1-fp32 none (zero1-fp32) none\nzero1-fp32 int8 (zero1-fp32) int8\n"
            "zero2-fp32 none (zero2-fp32) none\nzero2-fp32 int8 (zero2-fp32) int8\n");
  const auto compression = [](const char* text) {
    return variants_of(plain_ddp(), {.compressions = {text}}).at(1).config.gradient_compression;
  };
  EXPECT_EQ(compression("topk:0.25").fraction, 0.25);
  EXPECT_EQ(compression("topk").fraction, plain_ddp().gradient_compression.fraction);
  EXPECT_EQ(compression("powersgd:3").rank, 3);
  EXPECT_EQ(compression("qgz:8").bits, Compression::Bits::eight);
  EXPECT_NE(variants_refusal({.compressions = {"topk:"}}), "");
  EXPECT_NE(variants_refusal({.compressions = {"int8:4"}}).find("gradient_compression.fraction: applies only when"),
            std::string::npos)
      << variants_refusal({.compressions = {"int8:4"}});
}

TEST(Variants, OfSettingsAreWordsBetweenSpacesOutsideOfQuotesAndBraces) {
  const auto settings = [](const std::string& text) {
    return variants_of(plain_ddp(), {.changes = {"it:" + text}}).at(1).changes;
  };
  EXPECT_EQ(settings("seed=2"), Texts{"seed=2"});
  EXPECT_EQ(settings("  seed=2   clip=3 "), (Texts{"seed=2", "clip=3"}));
  EXPECT_EQ(settings(" optimizer={lr: 0.5, betas: [0.5, 0.25]} seed=3"),
            (Texts{"optimizer={lr: 0.5, betas: [0.5, 0.25]}", "seed=3"}));
  EXPECT_EQ(settings(" optimizer.betas=[0.5, 0.25] seed=3"), (Texts{"optimizer.betas=[0.5, 0.25]", "seed=3"}));
  EXPECT_EQ(settings(" run='a b' seed=3"), (Texts{"run='a b'", "seed=3"}));
  EXPECT_EQ(settings(" run=\"a ' {[ b\" seed=3"), (Texts{"run=\"a ' {[ b\"", "seed=3"}));
  EXPECT_EQ(settings(" run='a \"]} b' seed=3"), (Texts{"run='a \"]} b'", "seed=3"}));
}

TEST(Variants, OfChangesHaveOneThatChangesNothingFirst) {
  const std::vector<Variant> all = variants_of(
      plain_ddp(), {.strategies = {"zero1-fp32"}, .changes = {"fast: optimizer.lr=0.5 seed=4", "b:clip=3"}});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "zero1-fp32 plain");
  EXPECT_EQ(all[0].changes, Texts{});
  EXPECT_EQ(all[0].config, variants_of(plain_ddp(), {.strategies = {"zero1-fp32"}}).at(0).config);
  EXPECT_EQ(all[1].name, "zero1-fp32 fast");
  EXPECT_EQ(all[1].base, "zero1-fp32 fast");
  EXPECT_EQ(all[1].changes, (Texts{"optimizer.lr=0.5", "seed=4"}));
  EXPECT_EQ(all[1].config.optimizer.lr, 0.5);
  EXPECT_EQ(all[1].config.seed, 4u);
  EXPECT_EQ(all[2].config.clip, 3);
  EXPECT_EQ(variants_of(plain_ddp(), {.changes = {"x: seed=4"}}).at(0).name, "plain");
  const auto written = [](const std::string& text) {
    return concat("a variant is written as 'NAME: KEY=VALUE KEY=VALUE', and not as '", text, "'");
  };
  for (const std::string wrong : {"seed=4", "x", ":seed=4", "a=b:seed=4", ""})
    EXPECT_EQ(variants_refusal({.changes = {wrong}}), written(wrong));
  for (const std::string nothing : {"x:", "x: "})
    EXPECT_EQ(variants_refusal({.changes = {nothing}}),
              "variant 'x' changes nothing; 'plain' is always among what is compared");
  EXPECT_EQ(variants_refusal({.changes = {"x: seed=4", "y: seed=5", "x: seed=6"}}), "two variants are called 'x'");
  EXPECT_EQ(variants_refusal({.changes = {"plain: seed=4"}}),
            "two variants are called 'plain'; this one is always there, and changes nothing");
  EXPECT_NE(variants_refusal({.changes = {"x: sed=4"}}).find("variant 'x', 'sed=4': "), std::string::npos)
      << variants_refusal({.changes = {"x: sed=4"}});
}

TEST(Variants, AreOfStrategiesThatSayTheirNumbersAndAlgorithmsOfTraining) {
  EXPECT_EQ(variants_refusal({.strategies = {"zero1-auto"}}),
            "strategy zero1-auto leaves the numbers open; name them, as in zero1-auto-fp32");
  EXPECT_EQ(variants_refusal({.algorithms = {"backend"}}),
            "training does not use 'backend', the collective of the library itself: MPI's, or NCCL's between devices");
}

}  // namespace
}  // namespace keel
