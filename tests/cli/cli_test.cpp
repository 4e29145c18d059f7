#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/build_info.h"
#include "cli/machine.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/json.h"
#include "keel/trainer/schema.h"
#include "tests/cli/sandbox.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::run_keel;
using testing::Sandbox;

TEST(Program, VersionIsOneLine) {
  const Outcome outcome = run_keel("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("keel " KEEL_VERSION " (")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with(")\n")) << outcome.out;
}

TEST(Program, EveryCommandHasHelpWithAnExample) {
  const Outcome program = run_keel("--help");
  EXPECT_EQ(program.code, 0);
  EXPECT_NE(program.out.find("Exit codes:"), std::string::npos);
  int commands = 0;
  std::istringstream list(program.out.substr(program.out.find("Subcommands:\n") + 13));
  for (std::string line; std::getline(list, line) && line.starts_with("  "); ++commands) {
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    const Outcome help = run_keel(name + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("\n  keel " + name), std::string::npos) << help.out;
  }
  EXPECT_GE(commands, 2);
}

TEST(Program, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(run_keel("help").out, run_keel("--help").out);
  EXPECT_EQ(run_keel("help plan").out, run_keel("plan --help").out);
  EXPECT_EQ(run_keel("help docs config").out, run_keel("docs config --help").out);
  EXPECT_EQ(run_keel("help pln").err, "keel: error: unknown command 'pln', did you mean 'plan'?\n");
  EXPECT_EQ(run_keel("version").out, run_keel("--version").out);
}

TEST(Program, AWrongCommandLineIsOneClearLineAndExitCode2) {
  for (const char* arguments : {"", "en", "--bad", "env --bad", "env more", "docs", "docs nothing"}) {
    const Outcome outcome = run_keel(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_TRUE(outcome.err.starts_with("keel: error: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(run_keel("emv").err, "keel: error: unknown command 'emv', did you mean 'env'?\n");
}

TEST(Program, DocsConfigPrintsTheReferencePage) {
  const Outcome outcome = run_keel("docs config");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, config_reference());
}

TEST(Program, TheCommittedPageOfCommandsIsTheGeneratedOneAndNamesEachOfThem) {
  const std::string page = run_keel("docs commands").out;
  EXPECT_EQ(read_text_file(KEEL_SOURCE_DIR "/docs/commands.md"), page)
      << "run `build/keel docs commands > docs/commands.md`";
  const std::string program = run_keel("--help").out;
  std::istringstream list(program.substr(program.find("Subcommands:\n") + 13));
  for (std::string line; std::getline(list, line) && line.starts_with("  ");)
    EXPECT_NE(page.find("\n## keel " + line.substr(2, line.find(' ', 2) - 2)), std::string::npos) << line;
}

TEST(Program, EnvSaysWhatThereIsAndWhyNotMore) {
  const Outcome outcome = run_keel("env");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* row :
       {"keel ", "compiler ", "devices ", "processor ", "features ", "threads ", "memory ", "huge pages ",
        "files here     on ", "matmul f32 ", "matmul bf16 ", "oneDNN ", "CUDA ", "MPI "})
    EXPECT_NE(("\n" + outcome.out).find(concat("\n", row)), std::string::npos) << row << "\n" << outcome.out;
}

TEST(Program, EnvNamesEveryOptionalPartAndWhatAMissingOneWouldBring) {
  const Outcome outcome = run_keel("env");
  ASSERT_FALSE(build_info().parts.empty());
  for (const BuildPart& part : build_info().parts) {
    const std::string row = concat("\n", part.name, part.is_used() ? " " : "");
    EXPECT_NE(outcome.out.find(row), std::string::npos) << part.name << "\n" << outcome.out;
    if (part.is_used()) continue;
    EXPECT_FALSE(part.brings.empty()) << part.name;
    EXPECT_NE(outcome.out.find(concat(part.state, "; it would bring ", part.brings)), std::string::npos) << outcome.out;
  }
}

TEST(Program, EnvGivesRowsAndSizesOfEveryBuildAsJson) {
  const Outcome outcome = run_keel("env --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json said = Json::parse(outcome.out);
  const std::string text = run_keel("env").out;
  EXPECT_EQ(text.rfind(concat("keel           ", said.at("environment").at("keel").string(), "\n"), 0), 0u) << text;
  int of_this_build = 0;
  for (const Json& product : said.at("products_f32").items()) {
    const auto number = [&](const char* name) { return product.at(name).integer(); };
    EXPECT_EQ(number("tile_columns"), number("tile_vectors") * number("vector_bytes") / 4);
    EXPECT_EQ(number("block_columns") % number("tile_columns"), 0) << "whole panels";
    if (!product.at("is_of_this_build").boolean()) continue;
    ++of_this_build;
    EXPECT_NE(text.find(concat("\nproducts       keel (", product.at("instructions").string(), "), f32: tiles of ",
                               number("tile_rows"), " x ", number("tile_columns"), ", ")),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(of_this_build, 1);
  EXPECT_EQ(said.at("products_f32").items().size(), 2u);
  EXPECT_NE(text.find(concat("blocks of ", said.at("attention").at("query_block").integer(), " queries\n")),
            std::string::npos);
}

// In a test program's environment there is no GPU: the row says so and why, or names what there is.
TEST(Program, EnvNamesEveryDeviceOrSaysWhyThereIsNoGpu) {
  const DeviceCount gpus = count_devices(DeviceType::cuda);
  const Outcome outcome = run_keel("env");
  if (gpus.count == 0) {
    EXPECT_FALSE(gpus.why_none.empty());
    EXPECT_NE(outcome.out.find(concat("no GPU is used: ", gpus.why_none)), std::string::npos) << outcome.out;
  } else {
    EXPECT_NE(outcome.out.find(concat("cuda:", gpus.count - 1, ": ")), std::string::npos) << outcome.out;
  }
  const int emulated = count_devices(DeviceType::emulated).count;
  if (emulated == 0) return;
  const Outcome four = run_keel("env", ".", "export KEEL_EMULATED_DEVICES=4");
  for (int i = 0; i < 4; ++i) EXPECT_NE(four.out.find(concat("emulated:", i, ": ")), std::string::npos) << four.out;
  EXPECT_EQ(four.out.find("emulated:4"), std::string::npos);
}

TEST(Program, AnEnvironmentThatTheEmulatorDoesNotUnderstandIsBadInput) {
  if (count_devices(DeviceType::emulated).count == 0) GTEST_SKIP() << "this build has no emulated device";
  const Sandbox sandbox;
  const std::string train = "train text.yaml device=emulated:0 steps=1 scheduler.warmup=0";
  for (const char* setting : {"KEEL_EMULATED_DEVICES=none", "KEEL_EMULATED_ORDER=backwards"}) {
    const Outcome outcome = sandbox.keel(train, concat("export ", setting));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    const std::string name(setting, std::string_view(setting).find('='));
    EXPECT_EQ(outcome.err.rfind(concat("keel: error: ", name, " is '"), 0), 0u) << outcome.err;
  }
}

TEST(Machine, FindsValuesByTheirWholeName) {
  const std::string text = "model\t\t: 17\nmodel name\t: Some Processor\nflags :\nMemTotal:   24 kB\n";
  EXPECT_EQ(value_of(text, "model"), "17");
  EXPECT_EQ(value_of(text, "model name"), "Some Processor");
  EXPECT_EQ(value_of(text, "MemTotal"), "24 kB");
  EXPECT_EQ(value_of(text, "flags"), "");
  EXPECT_EQ(value_of(text, "Mem"), "");
  EXPECT_EQ(value_of("", "model"), "");
}

TEST(Machine, ListsFeaturesByWholeWords) {
  EXPECT_EQ(vector_features("fpu avx2 fma avx512f avx512_bf16"), "avx2 fma avx512f avx512_bf16");
  EXPECT_EQ(vector_features("avx512fx xfma"), "none that keel uses");
}

TEST(Machine, KnowsTheFileSystemOfAFolder) {
  const std::string mounts =
      "20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "21 20 0:5 / /data rw - xfs /dev/vdb rw\n"
      "22 21 0:6 / /data/fast rw master:1 shared:2 - btrfs /dev/nvme0n1 rw\n"
      "23 20 0:7 / /data/fast rw - tmpfs none rw\n";
  EXPECT_EQ(file_system_of("/", mounts), "ext4");
  EXPECT_EQ(file_system_of("/data", mounts), "xfs");
  EXPECT_EQ(file_system_of("/database", mounts), "ext4");
  EXPECT_EQ(file_system_of("/data/fast/run", mounts), "tmpfs") << "the last one hides the others";
  EXPECT_EQ(file_system_of("/data", ""), "");
}

TEST(Machine, FindsTheLibraryThatAFunctionWasLoadedFrom) {
  const LoadedFunction found = loaded_function("getpid");
  EXPECT_NE(found.address, nullptr);
  EXPECT_NE(found.file.find("libc"), std::string::npos) << found.file;
  EXPECT_TRUE(std::filesystem::exists(found.file)) << found.file;
  EXPECT_EQ(loaded_function("keel_has_no_such_function").address, nullptr);
}

TEST(Machine, ReadsVersionsAsNvidiaWritesThem) {
  EXPECT_EQ(library_version(130100), "13.1.0");  // cuBLASLt
  EXPECT_EQ(library_version(91002), "9.10.2");   // cuDNN
  EXPECT_EQ(library_version(22809), "2.28.9");   // NCCL
}

}  // namespace
}  // namespace keel::cli
