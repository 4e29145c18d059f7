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
  std::set<std::string> series, names;
  for (const Record& record : report.records) {
    series.insert(record.collective + record.algorithm);
    names.insert(record.algorithm);
  }
  EXPECT_EQ(occurrences(svg, "<polyline"), 2 * series.size());
  EXPECT_EQ(occurrences(svg, "<path"), 2 * report.records.size() + names.size()) << "and those of the legend";
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("a&lt;b&amp;&quot;c&quot;"), std::string::npos);
  for (const char* word : {"nan", "inf"}) EXPECT_EQ(svg.find(word), std::string::npos);
}

TEST(Plot, HasARowOfPanelsForEachCollective) {
  const std::string svg = plot(sample_report());
  for (const Exercise& exercise : exercises())
    for (const char* what : {": time of a call", ": bus bandwidth"})
      EXPECT_EQ(occurrences(svg, concat('>', exercise.name, what)), 1u) << exercise.name;
}

// What follows `before` in each element that begins with `element`, up to the next quotation mark.
std::vector<std::string> attributes(const std::string& svg, const std::string& element, const std::string& before) {
  std::vector<std::string> all;
  for (std::size_t at = svg.find(element); at != std::string::npos; at = svg.find(element, at + 1)) {
    const std::size_t begin = svg.find(before, at) + before.size();
    all.push_back(svg.substr(begin, svg.find('"', begin) - begin));
  }
  return all;
}

TEST(Plot, LetsNoTwoOfFortyCurvesLookAlike) {
  Report report = sample_report();
  report.records.resize(1);
  for (int i = 0; i < 39; ++i) {
    report.records.push_back(report.records[0]);
    report.records.back().algorithm = concat("a", i);
  }
  const std::string svg = plot(report);
  const std::string legend = svg.substr(svg.rfind("<line", svg.find("stroke-width")));
  const auto colours = attributes(legend, "<line", "stroke=\""), dashes = attributes(legend, "<line", "dasharray=\""),
             marks = attributes(legend, "<path", "d=\"");
  ASSERT_EQ(colours.size(), 40u);
  ASSERT_EQ(marks.size(), 40u);
  std::set<std::string> styles;
  for (std::size_t i = 0; i < colours.size(); ++i)
    styles.insert(concat(colours[i], ' ', dashes[i], ' ', marks[i].substr(marks[i].find('m'))));
  EXPECT_EQ(styles.size(), 40u);
}

TEST(Plot, MarksRoundSizesAndBandwidths) {
  Report report = sample_report();
  report.records.resize(3);
  for (Record& record : report.records) record.out_of_place->busbw = 0.00073 * static_cast<double>(record.bytes);
  const std::string svg = plot(report);  // 12 bytes to 12 MB, bandwidths up to 8760
  for (const char* mark : {"16", "64", "256", "1K", "4K", "1M", "4M", "0", "2000", "4000", "6000", "8000", "10000"})
    EXPECT_NE(svg.find(concat('>', mark, "</text>")), std::string::npos) << mark;
  for (const char* mark : {"12", "12000", "12000000"})
    EXPECT_EQ(svg.find(concat('>', mark, "</text>")), std::string::npos) << mark;
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
