#include "keel/data/summary.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <span>

#include "keel/data/walk.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

// A field as it is counted.
struct Counted {
  FieldSummary summary;
  std::int64_t first = 0;  // its place: the first example that has it, and where it stands there
  std::size_t place = 0;
  std::set<std::string> kinds = {};

  void see(double number) {
    summary.least = std::min(summary.least, number);
    summary.most = std::max(summary.most, number);
  }
  template <class T>
  void see_all(const T& sequence, std::string_view kind) {
    for (const auto number : sequence.values) see(static_cast<double>(number));
    ++summary.lengths[std::ssize(sequence.values)];
    kinds.insert(sequence.shape.size() == 1 ? std::string(kind) : concat(kind, ' ', sequence.shape));
  }
  void operator()(double number) {
    see(number);
    kinds.insert("a number");
  }
  void operator()(std::int64_t number) {
    see(static_cast<double>(number));
    kinds.insert("a whole number");
  }
  void operator()(const std::string& text) {
    ++summary.lengths[std::ssize(text)];
    kinds.insert("a text");
  }
  void operator()(const Nested& nested) {
    ++summary.lengths[std::ssize(nested.json)];
    kinds.insert(kind_of(nested));
  }
  void operator()(const Numbers& numbers) { see_all(numbers, "numbers"); }
  void operator()(const Integers& integers) { see_all(integers, "whole numbers"); }

  // Of other examples.
  void add(const Counted& other) {
    if (std::pair(other.first, other.place) < std::pair(first, place)) {
      first = other.first;
      place = other.place;
    }
    summary.examples += other.summary.examples;
    summary.least = std::min(summary.least, other.summary.least);
    summary.most = std::max(summary.most, other.summary.most);
    for (const auto& [length, examples] : other.summary.lengths) summary.lengths[length] += examples;
    kinds.insert(other.kinds.begin(), other.kinds.end());
  }
};

using CountedFields = std::map<std::string, Counted>;

CountedFields counted(std::int64_t first, const std::vector<Example>& examples) {
  CountedFields fields;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const std::int64_t number = first + static_cast<std::int64_t>(i);
    for (std::size_t place = 0; place < examples[i].fields().size(); ++place) {
      const auto& [name, value] = examples[i].fields()[place];
      auto [entry, is_new] = fields.try_emplace(name);
      Counted& field = entry->second;
      if (is_new) {
        field.first = number;
        field.place = place;
      }
      ++field.summary.examples;
      std::visit(field, value);
    }
  }
  return fields;
}

}  // namespace

std::vector<FieldSummary> summary_of(const Dataset& data,
                                     const std::function<void(std::uint64_t done, std::uint64_t all)>& progress) {
  std::mutex mutex;
  CountedFields all;
  walk(
      data,
      [&](std::int64_t first, const std::vector<Example>& examples) {
        const CountedFields some = counted(first, examples);
        const std::lock_guard lock(mutex);
        for (const auto& [name, field] : some)
          if (const auto [entry, is_new] = all.try_emplace(name, field); !is_new) entry->second.add(field);
      },
      [&](std::int64_t /*begin*/, std::int64_t end) {
        if (progress) progress(static_cast<std::uint64_t>(end), static_cast<std::uint64_t>(data.size()));
      });
  std::vector<Counted> ordered;
  for (auto& [name, field] : all) {
    field.summary.name = name;
    for (const std::string& kind : field.kinds) field.summary.kind += (field.summary.kind.empty() ? "" : " or ") + kind;
    ordered.push_back(std::move(field));
  }
  std::ranges::sort(ordered, {}, [](const Counted& field) { return std::pair(field.first, field.place); });
  std::vector<FieldSummary> fields;
  for (Counted& field : ordered) fields.push_back(std::move(field.summary));
  return fields;
}

LengthSummary summary_of(const std::map<std::int64_t, std::int64_t>& lengths) {
  LengthSummary summary;
  if (lengths.empty()) return summary;
  summary.least = lengths.begin()->first;
  summary.most = lengths.rbegin()->first;
  for (const auto& [length, examples] : lengths) {
    summary.examples += examples;
    summary.sum += length * examples;
  }
  std::int64_t before = 0;
  for (const auto& [length, examples] : lengths) {
    before += examples;
    if (2 * before < summary.examples) continue;
    summary.median = length;
    break;
  }
  return summary;
}

std::vector<LengthBin> bins_of(const std::map<std::int64_t, std::int64_t>& lengths, int most_bins) {
  KEEL_CHECK(most_bins >= 2, "lengths cannot be told in ", most_bins, " bins");
  std::vector<LengthBin> bins;
  if (lengths.empty()) return bins;
  const std::int64_t least = lengths.begin()->first, most = lengths.rbegin()->first;
  std::int64_t width = 1;
  for (int step = 0; most / width - least / width + 1 > most_bins; ++step)
    width = step % 3 == 1 ? width / 2 * 5 : width * 2;
  for (std::int64_t from = least / width * width; from <= most; from += width)
    bins.push_back({from, from + width - 1, 0});
  for (const auto& [length, examples] : lengths)
    bins[static_cast<std::size_t>(length / width - least / width)].examples += examples;
  return bins;
}

}  // namespace keel
