// Two reports side by side, and one as a picture.

#include "keel/dist/lab/comparison.h"

#include <gtest/gtest.h>

#include <set>

#include "keel/dist/lab/plot.h"
#include "tests/dist/lab/sample_report.h"
#include "tests/temporary_folder.h"

namespace keel::lab {
namespace {

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Comparison, OfAReportWithItselfIsOneEverywhere) {
  const Report report = sample_report();
  const Comparison comparison = compare(report, report);
  std::size_t timings = 0;
  for (const Record& record : report.records) timings += record.out_of_place.has_value() + record.in_place.has_value();
  EXPECT_EQ(comparison.timings.size(), timings);
  for (const ComparedTiming& one : comparison.timings) {
    EXPECT_EQ(one.ratio, 1);
    EXPECT_FALSE(one.is_beyond_spread);
  }
  EXPECT_TRUE(comparison.only_first.empty());
  EXPECT_TRUE(comparison.only_second.empty());
}

TEST(Comparison, MarksWhatDiffersByMoreThanCallsVaryAndSaysWhatIsAlone) {
  const Report first = sample_report();
  Report second = first;
  // The first becomes slower within the middle half of its calls, the second much slower, the third is of other ranks.
  for (double Timing::*place : {&Timing::p25_us, &Timing::p50_us, &Timing::p75_us}) {
    second.records[0].out_of_place.value().*place *= 1.05;
    second.records[1].out_of_place.value().*place *= 2;
  }
  second.records[2].ranks = 5;
  const Comparison there = compare(first, second), back = compare(second, first);
  for (const ComparedTiming& one : there.timings) {
    const bool is_changed = one.variant == "out_of_place" && one.record == &first.records[1];
    EXPECT_EQ(one.is_beyond_spread, is_changed) << describe(*one.record) << ' ' << one.variant;
    if (is_changed) { EXPECT_DOUBLE_EQ(one.ratio, 2); }
  }
  ASSERT_EQ(there.timings.size(), back.timings.size());
  for (std::size_t i = 0; i < there.timings.size(); ++i) {
    EXPECT_DOUBLE_EQ(there.timings[i].ratio * back.timings[i].ratio, 1);
    EXPECT_EQ(there.timings[i].is_beyond_spread, back.timings[i].is_beyond_spread);
  }
  ASSERT_EQ(there.only_first.size(), 1u);
  EXPECT_NE(there.only_first[0].find("on 3 ranks"), std::string::npos);
  EXPECT_EQ(there.only_first, back.only_second);
  EXPECT_EQ(there.only_second, back.only_first);
}

TEST(Plot, DrawsACurveOfTimeAndOneOfBandwidthForEachAlgorithm) {
  Report report = sample_report();
  report.records[0].algorithm = "a<b&\"c\"";
  const std::string svg = plot(report);
  std::set<std::string> series;
  for (const Record& record : report.records) series.insert(record.collective + record.algorithm);
  EXPECT_EQ(occurrences(svg, "<polyline"), 2 * series.size());
  EXPECT_EQ(occurrences(svg, "<circle"), 2 * report.records.size());
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a&lt;b&amp;&quot;c&quot;"), std::string::npos);
  for (const char* word : {"nan", "inf"}) EXPECT_EQ(svg.find(word), std::string::npos);
}

TEST(Plot, TakesOnePointAndRefusesNone) {
  Report report = sample_report();
  report.records.resize(1);
  report.records[0].out_of_place->busbw = 0;
  EXPECT_EQ(plot(report).find("nan"), std::string::npos);
  report.records[0].bytes = 0;  // has no place on a logarithmic axis
  EXPECT_NE(testing::error_of([&] { plot(report); }).find("nothing to draw"), std::string::npos);
}

}  // namespace
}  // namespace keel::lab
