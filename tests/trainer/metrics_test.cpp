#include "keel/trainer/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string_view>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace std::string_view_literals;

struct MetricsFile : ::testing::Test {
  testing::TemporaryFolder folder;
  std::string path = folder / "metrics.jsonl";
  std::string text() const { return read_text_file(path); }
};

TEST_F(MetricsFile, EachRecordIsOneLineInTheGivenOrder) {
  MetricsWriter writer(path);
  writer.write(1, {{"loss", 2.5}, {"tokens", std::int64_t{768}}, {"phase", "warm-up"}});
  EXPECT_EQ(text(), "{\"step\":1,\"loss\":2.5,\"tokens\":768,\"phase\":\"warm-up\"}\n");  // before the writer ends
  writer.write(2, {});
  EXPECT_EQ(text().substr(text().find('\n') + 1), "{\"step\":2}\n");
}

TEST_F(MetricsFile, NumbersThatAreNotFiniteStayValidJson) {
  MetricsWriter(path).write(3, {{"loss", NAN}, {"norm", INFINITY}, {"x", -INFINITY}, {"lr", 0.5}});
  EXPECT_EQ(text(),
            "{\"step\":3,\"loss\":null,\"norm\":null,\"x\":null,\"lr\":0.5,"
            "\"nonfinite\":{\"loss\":\"nan\",\"norm\":\"inf\",\"x\":\"-inf\"}}\n");
}

TEST_F(MetricsFile, EveryFiniteNumberReadsBackExactly) {
  std::mt19937_64 random(3);
  MetricsWriter writer(path);
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    values.push_back(value);
    writer.write(i, {{"value", value}});
  }
  std::istringstream lines(text());
  std::size_t i = 0;
  for (std::string line; std::getline(lines, line); ++i)
    EXPECT_EQ(nlohmann::json::parse(line)["value"].get<double>(), values[i]);
  EXPECT_EQ(i, values.size());
}

TEST_F(MetricsFile, AResumedRunDropsWhatCameAfterItsStep) {
  {
    MetricsWriter writer(path);
    for (int step = 1; step <= 5; ++step) writer.write(step, {{"loss", 1.0 * step}});
  }
  MetricsWriter(path, 3).write(4, {{"loss", -1.0}});
  EXPECT_EQ(text(),
            "{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":2.0}\n{\"step\":3,\"loss\":3.0}\n"
            "{\"step\":4,\"loss\":-1.0}\n");
  MetricsWriter(path, 0).write(1, {});
  EXPECT_EQ(text(), "{\"step\":1}\n");
}

TEST_F(MetricsFile, ALineThatACrashCutShortIsDropped) {
  for (const std::string_view rest : {"{\"step\":2,\"lo"sv, "{\"step\":2}"sv, "\0\0"sv}) {
    std::ofstream(path, std::ios::binary) << "{\"step\":1}\n" << rest;
    MetricsWriter(path).write(2, {});
    EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2}\n");
  }
}

TEST_F(MetricsFile, AForeignFileIsRefusedAndLeftAlone) {
  const std::pair<const char*, int> cases[] = {{"my notes\n", 1},
                                               {"{\"step\":1}\n\n", 2},
                                               {"[]\n", 1},
                                               {"{\"step\":\"1\"}\n", 1},
                                               {"{}\n{\"step\":9}\n", 1},
                                               {"{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4.5}\n", 4}};
  for (const auto& [foreign, line] : cases) {
    std::ofstream(path, std::ios::binary) << foreign;
    EXPECT_EQ(testing::error_of([&] { MetricsWriter(path, 0); }),
              concat(path, ":", line, ": is not a record of metrics; repair the line or move the file away"));
    EXPECT_EQ(text(), foreign);
  }
}

TEST_F(MetricsFile, AFullDiskIsAnErrorThatLeavesWholeLines) {
  MetricsWriter writer(path);
  writer.write(1, {});
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  for (const rlim_t room : {0, 5}) {  // bytes that still fit: none, or a part of the line
    const rlimit limit = {text().size() + room, old_limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      writer.write(2, {});
      ADD_FAILURE();
    } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::io); }
    EXPECT_EQ(text(), "{\"step\":1}\n");
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  ::signal(SIGXFSZ, old_handler);
  writer.write(3, {});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":3}\n");
}

TEST_F(MetricsFile, AMissingFolderIsAnError) {
  try {
    MetricsWriter(path + "/no/such/folder");
    ADD_FAILURE();
  } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::io); }
}

TEST_F(MetricsFile, ANameIsUsedOnce) {
  MetricsWriter writer(path);
  EXPECT_THROW(writer.write(1, {{"loss", 1.0}, {"loss", 2.0}}), Error);
  EXPECT_THROW(writer.write(1, {{"step", 1.0}}), Error);
  EXPECT_THROW(writer.write(1, {{"nonfinite", 1.0}}), Error);
  EXPECT_EQ(text(), "");
}

}  // namespace
}  // namespace keel
