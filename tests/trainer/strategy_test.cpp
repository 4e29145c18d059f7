#include "keel/trainer/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using Stage = Strategy::Stage;
using Precision = Strategy::Precision;
using Offload = Strategy::Offload;

constexpr std::pair<const char*, Precision> kPrecisions[] = {
    {"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}, {"fp8", Precision::fp8}};
constexpr std::pair<const char*, Offload> kOffloads[] = {
    {"none", Offload::none}, {"cpu", Offload::cpu}, {"nvme", Offload::nvme}};

struct Spelling {
  std::string name;
  WrittenStrategy means;
};

void add_with_precisions(std::vector<Spelling>& names, const std::string& family, Stage stage) {
  names.push_back({family, {{stage, Precision::fp32}, false}});
  for (const auto& [word, precision] : kPrecisions) names.push_back({family + "-" + word, {{stage, precision}, true}});
}

// The names of the trainers before keel, written out anew: 5 of ddp, 93 of deepspeed, 9 of fsdp.
std::vector<Spelling> names_of_other_trainers() {
  std::vector<Spelling> names;
  add_with_precisions(names, "ddp", Stage::ddp);
  names.push_back({"deepspeed", {{Stage::zero2, Precision::fp32}, false}});
  add_with_precisions(names, "deepspeed-0", Stage::ddp);
  add_with_precisions(names, "deepspeed-1", Stage::zero1);
  for (const auto& [family, stage] : {std::pair("deepspeed-2", Stage::zero2), std::pair("deepspeed-3", Stage::zero3)}) {
    add_with_precisions(names, family, stage);
    for (const auto& [word, precision] : kPrecisions)
      for (const auto& [optimizer, optimizer_place] : kOffloads)
        for (const auto& [parameter, parameter_place] : kOffloads)
          names.push_back({concat(family, '-', word, '-', optimizer, '-', parameter),
                           {{stage, precision, optimizer_place, parameter_place}, true}});
  }
  add_with_precisions(names, "fsdp", Stage::zero3);
  for (const auto& [word, precision] : kPrecisions)
    names.push_back({concat("fsdp-", word, "-cpu"), {{Stage::zero3, precision, Offload::cpu, Offload::cpu}, true}});
  return names;
}

std::string refusal_of(std::string_view name) {
  return testing::error_of([&] { read_strategy(name); });
}

TEST(Strategy, EveryNameOfTheGrammarReadsBack) {
  // kStrategyGrammar, spelt out.
  const std::vector<std::string> names = strategy_names();
  for (const std::string stage : {"", "ddp-", "zero1-", "zero2-", "zero3-"})
    for (const char* precision : {"auto", "fp32", "bf16", "fp16"})
      for (const std::string offload : {"", "-cpu", "-nvme", "-none-cpu", "-cpu-nvme", "-nvme-nvme"}) {
        const std::string name = stage + precision + offload;
        EXPECT_EQ(to_string(parse_strategy(name)), name);
        if (offload.size() <= 4) { EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name; }
        EXPECT_EQ(not_there_yet(parse_strategy(name)), "");
        EXPECT_EQ(single_process_note(parse_strategy(name)).empty(), stage.empty());
      }
  EXPECT_EQ(kStrategyGrammar, "[ddp-|zero1-|zero2-|zero3-]{auto|fp32|bf16|fp16}[-{none|cpu|nvme}[-{none|cpu|nvme}]]");
  for (const std::string name : {"ddp", "zero1", "zero2", "zero3"}) {
    EXPECT_EQ(to_string(parse_strategy(name)), name + "-fp32");
    EXPECT_FALSE(read_strategy(name).says_precision);
  }
}

TEST(Strategy, AllNamesOfOtherTrainersMeanTheSameHere) {
  const std::vector<Spelling> others = names_of_other_trainers();
  EXPECT_EQ(others.size(), 107u);
  const std::vector<std::string> listed = strategy_names();
  for (const Spelling& spelling : others) {
    const WrittenStrategy written = read_strategy(spelling.name);
    EXPECT_EQ(written.strategy, spelling.means.strategy) << spelling.name;
    EXPECT_EQ(written.says_precision, spelling.means.says_precision) << spelling.name;
    EXPECT_NE(std::find(listed.begin(), listed.end(), spelling.name), listed.end()) << spelling.name;
  }
  const std::pair<const char*, Strategy> lightning[] = {
      {"auto", {Stage::none, Precision::automatic}},
      {"deepspeed_stage_1", {Stage::zero1}},
      {"deepspeed_stage_2", {Stage::zero2}},
      {"deepspeed_stage_2_offload", {Stage::zero2, Precision::fp32, Offload::cpu}},
      {"deepspeed_stage_2_offload_no_error", {Stage::zero2, Precision::fp32, Offload::cpu}},
      {"deepspeed_stage_3", {Stage::zero3}},
      {"deepspeed_stage_3_offload", {Stage::zero3, Precision::fp32, Offload::cpu, Offload::cpu}},
      {"deepspeed_stage_3_offload_nvme", {Stage::zero3, Precision::fp32, Offload::nvme, Offload::nvme}},
      {"fsdp_cpu_offload", {Stage::zero3, Precision::fp32, Offload::cpu, Offload::cpu}}};
  for (const auto& [name, means] : lightning) EXPECT_EQ(parse_strategy(name), means) << name;
}

TEST(Strategy, EveryListedNameIsOneOfItsKindAndHasAnOwnName) {
  std::set<std::string> seen;
  for (const std::string& name : strategy_names()) {
    EXPECT_TRUE(seen.insert(name).second) << name << " is listed twice";
    const Strategy strategy = parse_strategy(name);
    EXPECT_EQ(parse_strategy(to_string(strategy)), strategy) << name;
    EXPECT_NE(describe(strategy), "");
  }
}

TEST(Strategy, WhatIsNotThereYetIsNamed) {
  EXPECT_EQ(not_there_yet(parse_strategy("deepspeed-2-bf16-cpu-none")), "");
  EXPECT_EQ(not_there_yet(parse_strategy("ddp-fp8")), "fp8");
  EXPECT_EQ(not_there_yet(parse_strategy("deepspeed-3-fp8-nvme-cpu")), "fp8");
  try {
    parse_config("steps: 1\nstrategy: fsdp-fp8-cpu\ndata: {type: addition}\n", "c.yaml");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_STREQ(error.what(), "c.yaml:2: strategy: training does not offer fp8 yet; use bf16");
  }
}

TEST(Strategy, SaysWhereThingsLieUnlessTheirKeysSayOtherwise) {
  const auto error_of_config = [](const std::string& lines) {
    return testing::error_of([&] {
      parse_config("steps: 1\nrun: runs/a\nstrategy: zero3-bf16-cpu-nvme\ndata: {type: addition}\n" + lines, "c.yaml");
    });
  };
  EXPECT_EQ(error_of_config("sharding: {offload_optimizer: true, offload_parameters: file}\n"), "");
  EXPECT_EQ(error_of_config("sharding: {offload_gradients: file}\n"), "");
  EXPECT_EQ(error_of_config("sharding: {offload_optimizer: file}\n"),
            "c.yaml:5: sharding.offload_optimizer: file contradicts the strategy zero3-bf16-cpu-nvme, which says host; "
            "remove one of the two");
}

TEST(Strategy, IsDescribedByWhatItSharesOutAndWhere) {
  const std::pair<const char*, const char*> all[] = {
      {"auto", "data parallel where there are several ranks; the numbers this processor multiplies fastest"},
      {"ddp-fp32", "data parallel, nothing sharded; fp32"},
      {"zero1-bf16", "optimizer state sharded; bf16 with fp32 master weights"},
      {"zero2-fp16-cpu",
       "gradients and optimizer state sharded; fp16 with loss scaling and fp32 master weights; optimizer state in the "
       "host's memory"},
      {"zero3-fp32-nvme-cpu",
       "parameters, gradients and optimizer state sharded; fp32; optimizer state in files; parameters in the host's "
       "memory"},
      {"zero3-fp32-none-nvme", "parameters, gradients and optimizer state sharded; fp32; parameters in files"},
      {"fsdp-fp8", "parameters, gradients and optimizer state sharded; fp8"}};
  for (const auto& [name, text] : all) EXPECT_EQ(describe(parse_strategy(name)), text) << name;
  const std::pair<const char*, int> numbers[] = {{"fp32", 0}, {"ddp", 0}, {"zero1", 1}, {"zero2", 2}, {"zero3", 3}};
  for (const auto& [name, number] : numbers) EXPECT_EQ(stage_number(parse_strategy(name).stage), number) << name;
  EXPECT_EQ(
      single_process_note(parse_strategy("zero2-bf16-cpu")),
      "strategy zero2-bf16-cpu: one process has nothing to share out, so it trains as bf16, with the same result");
  EXPECT_EQ(why_not_offered(parse_strategy("ddp-fp8")), "training does not offer fp8 yet; use bf16");
  EXPECT_EQ(why_not_offered(parse_strategy("ddp-fp16")), "");
}

TEST(Strategy, OtherNamesAreRefusedWithTheNearest) {
  for (const char* name :
       {"", "-fp32", "zero2-", "zero2-fp64", "zero0-fp32", "fp32-zero2", "deepspeed-4", "deepspeed-auto",
        "deepspeed-1-bf16-cpu-none", "deepspeed-2-bf16-cpu", "deepspeed-2-bf16-disk-none", "fsdp-bf16-nvme",
        "fsdp-auto", "zero2-bf16-cpu-none-none", "deepspeed_stage_2-bf16", "ZERO2"})
    EXPECT_NE(refusal_of(name), "") << name;
  EXPECT_NE(refusal_of("zero2-bf61").find("did you mean 'zero2-bf16'?"), std::string::npos) << refusal_of("zero2-bf61");
  EXPECT_NE(refusal_of("xyz").find("as in zero2-bf16 (`keel strats --all` lists every name); got 'xyz'"),
            std::string::npos);
  for (const char* name : {"dp", "ddp2", "ddp_spawn"})
    EXPECT_TRUE(refusal_of(name).starts_with(concat("'", name, "' is not offered: "))) << refusal_of(name);
  EXPECT_TRUE(
      refusal_of("dp").ends_with("`keel launch --strat dp` does so by ranks that are threads, and a "
                                 "configuration says ddp"))
      << refusal_of("dp");
  for (const char* name : {"ddp2", "ddp_spawn"}) EXPECT_TRUE(refusal_of(name).ends_with("use ddp")) << refusal_of(name);
}

Config config_with(const std::string& lines) {
  return parse_config("steps: 1\ndata: {type: addition}\n" + lines, "c.yaml");
}

TEST(Strategy, ThePrecisionKeyCompletesAStrategyThatSaysNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"precision: bf16", "bf16"},
      {"strategy: zero2", "zero2-fp32"},
      {"strategy: zero2\nprecision: bf16", "zero2-bf16"},
      {"precision: fp16\nstrategy: deepspeed-3", "zero3-fp16"},
      {"strategy: auto\nprecision: bf16", "bf16"},
      {"strategy: zero1-bf16\nprecision: auto", "zero1-bf16"},
      {"strategy: zero1-bf16\nprecision: bf16", "zero1-bf16"},
  };
  for (const auto& [lines, name] : cases) {
    EXPECT_EQ(to_string(config_with(lines).strategy), name) << lines;
    EXPECT_EQ(parse_config(to_yaml(config_with(lines)), "c.yaml"), config_with(lines)) << lines;
  }
}

TEST(Strategy, APrecisionThatContradictsItIsAnErrorNamingBoth) {
  const auto message = [](const std::string& lines) -> std::string {
    try {
      config_with(lines);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(message("strategy: zero2-bf16\nprecision: fp32"),
            "c.yaml:4: precision: fp32 contradicts the strategy zero2-bf16, which says bf16; remove one of the two");
  EXPECT_EQ(message("precision: fp16\nstrategy: fsdp-fp32"),
            "c.yaml:4: precision: fp16 contradicts the strategy fsdp-fp32, which says fp32; remove one of the two");
  EXPECT_EQ(message("precision: fp64"), "c.yaml:3: precision: expects auto, fp32, bf16 or fp16, got 'fp64'");
}

}  // namespace
}  // namespace keel
