#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::Sandbox;

json plan_of(const Sandbox& sandbox, const std::string& arguments) {
  const Outcome outcome = sandbox.keel("plan --json " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

TEST(PlanCommand, ShowsEachStageAndOpensNoTextForAByteTokenizer) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("plan text.yaml -N 4 data.path=absent.txt strategy=bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* words : {"\nddp-bf16 ", "\nzero1-bf16 ", "\nzero2-bf16 ", "\nzero3-bf16 ", "sent a step",
                            "4 ranks; a step of 4 rows is 1 micro-batch on each"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("was trained"), std::string::npos) << outcome.out;
  EXPECT_FALSE(sandbox.has("text")) << "a plan writes nothing";
}

// One layer of width 32 without biases, 256 bytes, block 16: 8,192 + 512 + 32 numbers at the root, and 12,352 of a
// block.
TEST(PlanCommand, CountsTheNumbersOfASmallModel) {
  const Sandbox sandbox;
  const json plan = plan_of(sandbox, "text.yaml -N 2 batch.micro=1");
  EXPECT_EQ(plan["ranks"], 2);
  EXPECT_EQ(plan["micro_batches"], 2);
  EXPECT_EQ(plan["parameters"], 8192 + 512 + 64 + 12704);
  EXPECT_EQ(plan["units"], 2);
  EXPECT_EQ(plan["largest_unit"]["name"], "h.0");
  const std::int64_t padded = 8832 + 12800;
  const json& ddp = plan["plans"]["ddp-fp32"];
  EXPECT_EQ(ddp["parameter_bytes"], 4 * padded);
  EXPECT_EQ(ddp["gradient_bytes"], 4 * padded);
  EXPECT_EQ(ddp["optimizer_bytes"], 8 * padded);
  EXPECT_EQ(ddp["sent_bytes"], 4 * padded);
  const json& zero3 = plan["plans"]["zero3-fp32"];
  EXPECT_EQ(zero3["kept_bytes"], 8 * padded);
  // Each micro-batch sends half the root once and half the layer twice, and the step half of both gradients.
  EXPECT_EQ(zero3["sent_bytes"], 4 * (2 * (8832 / 2 + 12800) + padded / 2));
  const json each = plan_of(sandbox, "text.yaml -N 2 batch.micro=1 sharding.accumulation=each_backward");
  EXPECT_EQ(each["plans"]["zero3-fp32"]["sent_bytes"], 2 * 4 * (8832 / 2 + 12800 + padded / 2));
}

TEST(PlanCommand, NamesWhatWholeGradientsOfSeveralMicroBatchesCost) {
  const Sandbox sandbox;
  const std::string several = sandbox.keel("plan text.yaml -N 2 batch.micro=1").out;
  EXPECT_NE(
      several.find("  whole gradients, 84.5 KiB, until the last micro-batch; sharding.accumulation=each_backward"),
      std::string::npos)
      << several;
  for (const char* other :
       {"plan text.yaml -N 2", "plan text.yaml -N 2 batch.micro=1 --strat zero1-fp32",
        "plan text.yaml -N 2 batch.micro=1 sharding.accumulation=each_backward",
        "plan text.yaml -N 2 batch.micro=1 sharding.group=1", "plan text.yaml -N 2 batch.micro=1 outer.type=diloco"})
    EXPECT_EQ(sandbox.keel(other).out.find("until the last micro-batch"), std::string::npos) << other;
}

TEST(PlanCommand, SaysWhatVirtualRanksCost) {
  const Sandbox sandbox;
  const std::int64_t padded = 8832 + 12800;
  const std::string wish = "text.yaml --strat zero1-bf16 sharding.virtual_ranks=4 -N ";
  const json plan = plan_of(sandbox, wish + '2')["plans"]["zero1-bf16"];
  EXPECT_EQ(plan["partial_sum_bytes"], 4 * padded);
  EXPECT_EQ(plan["gradient_bytes"], 4 * 8832 + 2 * 12800 + 4 * padded) << "the table is tied";
  EXPECT_EQ(plan["reduction_bytes"], 4 * padded / 2) << "in fp32";
  EXPECT_EQ(plan["gather_bytes"], 2 * padded / 2);
  EXPECT_EQ(plan_of(sandbox, wish + '4')["plans"]["zero1-bf16"]["partial_sum_bytes"], 0);
  const std::string text = sandbox.keel("plan " + wish + '2').out;
  for (const char* words : {"bits are those of 4 virtual ranks, of which each computes 2; gradients travel in fp32",
                            "a step of 4 rows is 2 micro-batches on each",
                            "of the gradients 84.5 KiB are sums over the virtual ranks of a rank"})
    EXPECT_NE(text.find(words), std::string::npos) << words << '\n' << text;
  EXPECT_NE(sandbox.keel("plan " + wish + '3').err.find("4 virtual ranks are shared by 1, 2, 4 ... ranks"),
            std::string::npos);
}

TEST(PlanCommand, TakesAStrategyAndRanksWithAnEqualsSign) {
  const Sandbox sandbox;
  const json plan = plan_of(sandbox, "text.yaml -N=4 --strat=zero3-bf16");
  EXPECT_EQ(plan["ranks"], 4);
  EXPECT_EQ(plan["plans"].size(), 1u);
  EXPECT_TRUE(plan["plans"].contains("zero3-bf16"));
  EXPECT_FALSE(plan.contains("run"));
}

TEST(PlanCommand, PutsWhatARunMeasuredBesideItsPlan) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml strategy=bf16").code, 0);
  const json run = plan_of(sandbox, "text.yaml -N 4")["run"];
  EXPECT_EQ(run["strategy"], "bf16");
  EXPECT_EQ(run["ranks"], 1);
  for (const char* kind :
       {"parameter_bytes", "gradient_bytes", "optimizer_bytes", "kept_bytes", "bucket_bytes", "checkpoint_bytes"})
    EXPECT_EQ(run["measured"][kind], run["plan"][kind]) << kind;
  const Outcome text = sandbox.keel("plan text.yaml -N 4");
  for (const char* words : {"was trained as bf16 on 1 rank:", "\nformulas ", "\nmeasured "})
    EXPECT_NE(text.out.find(words), std::string::npos) << words << "\n" << text.out;
}

TEST(PlanCommand, LeavesARunOutThatItCannotReadAndSaysWhy) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml run=mine").code, 0);
  ASSERT_TRUE(plan_of(sandbox, "text.yaml run=mine").contains("run"));
  const std::string config = sandbox.read("mine/config.yaml"), none = "type: none";
  const std::size_t place = config.find(none, config.find("\nouter:"));
  ASSERT_NE(place, std::string::npos);
  sandbox.write("mine/config.yaml",
                config.substr(0, place) + "type: elastic\n  part: 0.2" + config.substr(place + none.size()));
  const Outcome outcome = sandbox.keel("plan text.yaml run=mine -N 4 outer.type=diloco");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(
      outcome.err,
      "keel: warning: not compared with the run in 'mine': 'mine/config.yaml' is of the strategy of communication "
      "'elastic', which this program does not have; it has local_sgd, diloco, streaming_diloco, sparse_loco, "
      "demo. Ask the program that trained it\n");
  EXPECT_EQ(outcome.out, sandbox.keel("plan text.yaml run=none -N 4 outer.type=diloco").out);
  EXPECT_FALSE(plan_of(sandbox, "text.yaml run=mine").contains("run"));
  // A prediction is made from it.
  const Outcome predicted = sandbox.keel("plan text.yaml run=mine --predict 8 --from x.json");
  EXPECT_EQ(predicted.code, 2);
  EXPECT_NE(predicted.err.find("keel: error: 'mine/config.yaml' is of the strategy"), std::string::npos)
      << predicted.err;
}

TEST(PlanCommand, CountsTheCopyOfAnAsynchronousSaveBesideWhatARunMeasured) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml checkpoint.async=true").code, 0);
  const json run = plan_of(sandbox, "text.yaml checkpoint.async=true")["run"];
  EXPECT_GT(run["plan"]["checkpoint_bytes"], run["plan"]["parameter_bytes"]);
  EXPECT_EQ(run["measured"]["checkpoint_bytes"], run["plan"]["checkpoint_bytes"]);
  const Outcome with = sandbox.keel("plan text.yaml -N 2 checkpoint.async=true run=none"),
                without = sandbox.keel("plan text.yaml -N 2 run=none");
  EXPECT_NE(with.out.find(" in the processor's memory, the copy that checkpoint.async writes"), std::string::npos)
      << with.out;
  EXPECT_EQ(without.out.find("checkpoint.async"), std::string::npos) << without.out;
}

TEST(PlanCommand, CountsWhatCopiesTakeOfTheMemoryOfAHost) {
  const Sandbox sandbox;
  const json plan =
                 plan_of(sandbox, "text.yaml -N 4 --strat zero2-fp32 checkpoint.memory_every=5")["plans"]["zero2-fp32"],
             async = plan_of(sandbox, "text.yaml -N 4 --strat zero2-fp32 checkpoint.async=true")["plans"]["zero2-fp32"];
  EXPECT_GT(plan["memory_copies_bytes"], 0);
  EXPECT_EQ(plan["checkpoint_bytes"], 0);
  EXPECT_EQ(async["memory_copies_bytes"], 0);
  EXPECT_EQ(plan["memory_copies_bytes"].get<double>() / async["checkpoint_bytes"].get<double>(), 4)
      << "two of the own files and of another rank's";
  const Outcome text = sandbox.keel("plan text.yaml -N 4 checkpoint.memory_every=5");
  EXPECT_NE(text.out.find(" in /dev/shm at most, what checkpoint.memory_every keeps there"), std::string::npos)
      << text.out;
}

TEST(PlanCommand, PlansAnOffloadedOptimizerForGpusButNotForARunOfProcessors) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml strategy=zero2-bf16-cpu").code, 0);
  const json plan = plan_of(sandbox, "text.yaml -N 2 --strat zero2-bf16-cpu");
  const json& there = plan["plans"]["zero2-bf16-cpu"];
  EXPECT_EQ(there["optimizer_bytes"], 0);
  EXPECT_EQ(there["host_bytes"], 7 * (8832 + 12800)) << "of half the numbers masters, two states, and weights";
  EXPECT_EQ(there["host_bucket_bytes"], there["gradient_bytes"]) << "they come to the optimizer";
  EXPECT_EQ(plan["run"]["plan"]["host_bytes"], 0);
  EXPECT_EQ(plan["run"]["plan"]["host_bucket_bytes"], 0);
  EXPECT_EQ(plan["run"]["measured"]["optimizer_bytes"], plan["run"]["plan"]["optimizer_bytes"]);
  EXPECT_EQ(plan_of(sandbox, "text.yaml --strat zero2-bf16-cpu device=cpu")["plans"]["zero2-bf16-cpu"]["host_bytes"],
            0);
}

// Its optimizer's state lies in a file, so that no bytes of it tell where it was.
TEST(PlanCommand, BelievesARunOfWhichDeviceItWas) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("train text.yaml strategy=zero1-bf16-nvme").code, 0);
  const json run = plan_of(sandbox, "text.yaml")["run"];
  EXPECT_EQ(run["measured"]["optimizer_bytes"], 0);
  for (const char* kind :
       {"parameter_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes", "host_bytes", "host_bucket_bytes"})
    EXPECT_EQ(run["measured"][kind], run["plan"][kind]) << kind;
  EXPECT_EQ(run["plan"].dump(), plan_of(sandbox, "text.yaml device=cpu")["run"]["plan"].dump());
}

TEST(PlanCommand, SaysWhatGroupsTellEachOther) {
  const Sandbox sandbox;
  const std::int64_t padded = 4 * (8832 + 12800);
  for (const auto& [outer, words] :
       {std::pair("outer.type=diloco outer.every=4", " to other groups of ranks every 4 steps\n"),
        {"outer.type=demo", " to other groups of ranks every step\n"}}) {
    const std::string wish = concat("text.yaml -N 2 --strat ddp-fp32 ", outer);
    EXPECT_GT(plan_of(sandbox, wish)["plans"]["ddp-fp32"]["strategy_bytes"], 0) << outer;
    const Outcome text = sandbox.keel("plan " + wish);
    EXPECT_NE(text.out.find(words), std::string::npos) << text.out;
  }
  const json plan =
      plan_of(sandbox, "text.yaml -N 2 --strat ddp-fp32 outer.type=diloco outer.every=4")["plans"]["ddp-fp32"];
  EXPECT_EQ(plan["strategy_steps"], 4);
  EXPECT_EQ(plan["strategy_bytes"], padded) << "of a sum over two";
  EXPECT_EQ(plan["sent_bytes"], 0);
}

TEST(PlanCommand, SaysWhichWayOfMatricesIsCheaper) {
  const Sandbox sandbox;
  for (const char* strategy : {"ddp-bf16", "zero1-bf16", "zero1-fp32", "zero3-bf16", "zero1-bf16-nvme"}) {
    const std::string wish = concat("text.yaml -N 2 optimizer.type=Muon --strat ", strategy);
    EXPECT_GT(plan_of(sandbox, wish)["plans"][strategy]["matrix_operations"], 0);
    const Outcome text = sandbox.keel("plan " + wish);
    EXPECT_NE(text.out.find("  of matrices (sharding.matrices) dealt sends "), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(" is cheaper"), std::string::npos) << text.out;
  }
  EXPECT_EQ(sandbox.keel("plan text.yaml -N 2").out.find("sharding.matrices"), std::string::npos);
  EXPECT_EQ(sandbox.keel("plan text.yaml optimizer.type=Muon").out.find("sharding.matrices"), std::string::npos)
      << "one rank has them all";
  for (const char* alone : {"outer.type=diloco", "sharding.group=1"})
    EXPECT_EQ(sandbox.keel(concat("plan text.yaml -N 2 --strat zero2-fp32 optimizer.type=Muon ", alone))
                  .out.find("sharding.matrices"),
              std::string::npos)
        << alone;
}

TEST(PlanCommand, TakesAutoForBf16AndSaysSo) {
  const Sandbox sandbox;
  const Outcome outcome = sandbox.keel("plan text.yaml strategy=auto");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("auto is taken for bf16"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("zero2-bf16"), std::string::npos) << outcome.out;
}

// What a rank sends by the direct algorithm: of an all-gather its shard to each other one, of a reduce-scatter theirs.
std::int64_t bytes_sent(const json& nodes, int ranks) {
  std::int64_t sent = 0;
  for (const json& node : nodes) {
    if (node["type"] != "COMM_COLL_NODE") continue;
    std::map<std::string, std::int64_t> attributes;
    for (const json& each : node["attr"])
      if (each.contains("int64_val")) attributes[each["name"]] = each["int64_val"];
    constexpr int kAllReduce = 0;
    sent += (attributes["comm_type"] == kAllReduce ? 2 : 1) * attributes["comm_size"] / ranks * (ranks - 1);
  }
  return sent;
}

TEST(PlanCommand, TracesTheCollectivesThatItCounts) {
  const Sandbox sandbox;
  for (const char* strategy : {"ddp-fp32", "zero1-fp32", "zero2-bf16", "zero3-bf16"}) {
    const json plan = plan_of(sandbox, concat("text.yaml -N 2 batch.micro=1 --trace traces --strat ", strategy));
    for (int rank = 0; rank < 2; ++rank) {
      const json trace = json::parse(sandbox.read(concat("traces/step.", rank, ".json")));
      EXPECT_EQ(trace["rank"], rank);
      EXPECT_EQ(bytes_sent(trace["nodes"], 2), plan["plans"][strategy]["sent_bytes"]) << strategy;
      std::map<std::string, int> computed;
      for (const json& node : trace["nodes"]) {
        if (node["type"] == "COMP_NODE") ++computed[node["name"]];
        for (const char* kind : {"data_deps", "ctrl_deps"})
          for (const json& before : node[kind]) EXPECT_LT(before, node["id"]);
      }
      EXPECT_EQ(computed, (std::map<std::string, int>{{"forward h.0", 2},
                                                      {"backward h.0", 2},
                                                      {"forward the rest", 2},
                                                      {"backward the rest", 2},
                                                      {"update", 1}}));
    }
  }
  // 12,288 numbers of matrices in the block, and 16 tokens of one sequence.
  const json trace = json::parse(sandbox.read("traces/step.0.json"));
  for (const json& node : trace["nodes"])
    for (const json& each : node["attr"])
      if (each["name"] == "num_ops" && node["name"] == "forward h.0") { EXPECT_EQ(each["int64_val"], 2 * 16 * 12288); }
}

TEST(PlanCommand, SaysWhatIsWrong) {
  const Sandbox sandbox;
  const auto refuses = [&](const std::string& arguments, const std::string& words) {
    const Outcome outcome = sandbox.keel("plan " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  refuses("text.yaml -N 0", "-N,--ranks expects a whole number from 1 to 1048576, got '0'");
  refuses("text.yaml -N 4x", "got '4x'");
  refuses("text.yaml -N 8192 --trace traces", "--trace writes a file for each rank, of 4096 at most");
  refuses("text.yaml -N 5", "a global batch of 4 rows is too small for 5 ranks");
  refuses("text.yaml --strat zero7", "zero7");
  refuses("text.yaml -N 4 sharding.group=3 strategy=zero2-bf16", "groups of 3 ranks");
  refuses("absent.yaml", "absent.yaml");
  refuses("text.yaml data.tokenizer=character data.path=absent.txt", "absent.txt");
}

TEST(PlanCommand, PredictsAStepFromARunAndWhatCollectivesCost) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.keel("launch --threads -N 2 text.yaml batch.global=32").code, 0);
  ASSERT_EQ(
      sandbox.keel("comm all_reduce,all_gather -N 2 --threads --algorithms ordered -e 64K -n 20 --json comm.json").code,
      0);
  const json plan = plan_of(sandbox, "text.yaml batch.global=32 --strat ddp-fp32 --predict 2,4,17 --from comm.json");
  const json& predictions = plan["predictions"];
  ASSERT_EQ(predictions.size(), 3u);
  for (const json& each : predictions) {
    EXPECT_NEAR(each["step_ms"].get<double>(), each["compute_ms"].get<double>() + each["exposed_ms"].get<double>(),
                1e-9);
    EXPECT_LE(each["low_ms"], each["step_ms"]);
    EXPECT_GE(each["high_ms"], each["step_ms"]);
    EXPECT_EQ(each["extrapolated"], each["ranks"] == 17);
  }
  EXPECT_NEAR(predictions[0]["compute_ms"].get<double>(), 2 * predictions[1]["compute_ms"].get<double>(), 1e-9)
      << "32 sequences, shared out";
  const Outcome table = sandbox.keel("plan text.yaml batch.global=32 --strat ddp-fp32 --predict 17 --from comm.json");
  EXPECT_NE(table.out.find("  extrapolated\n"), std::string::npos) << table.out;
  for (const auto& [arguments, words] :
       {std::pair{"text.yaml --strat ddp-fp32 --predict 4", "keel comm --json FILE"},
        {"addition.yaml --strat ddp-fp32 --predict 4 --from comm.json", "holds none"},
        {"text.yaml --strat zero1-fp32 --predict 4 --from comm.json", "no reduce_scatter"},
        {"text.yaml --strat ddp-fp32 --predict 4 --from absent.json", "absent.json"}}) {
    const Outcome refused = sandbox.keel(concat("plan ", arguments));
    EXPECT_NE(refused.code, 0);
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.err;
  }
}

}  // namespace
}  // namespace keel::cli
