#include "keel/dist/lab/comparison.h"

#include <algorithm>

#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

bool belong_together(const Record& a, const Record& b) {
  return asked_of(a) == asked_of(b) && a.algorithm == b.algorithm && a.dtype == b.dtype && a.bytes == b.bytes &&
         a.ranks == b.ranks;
}

const Record* find_counterpart(const Record& record, const Report& among) {
  const auto found = std::find_if(among.records.begin(), among.records.end(),
                                  [&](const Record& other) { return belong_together(record, other); });
  return found == among.records.end() ? nullptr : &*found;
}

std::string lonely(const Record& record) { return concat(describe(record), " on ", record.ranks, " ranks"); }

}  // namespace

Comparison compare(const Report& first, const Report& second) {
  Comparison comparison;
  for (const Record& record : first.records) {
    const Record* other = find_counterpart(record, second);
    if (other == nullptr) {
      comparison.only_first.push_back(lonely(record));
      continue;
    }
    for (const Variant& variant : variants()) {
      const std::optional<Timing>&a = record.*variant.place, &b = other->*variant.place;
      if (!a || !b) continue;
      comparison.timings.push_back({&record, variant.name, a->p50_us, b->p50_us,
                                    a->p50_us == b->p50_us ? 1 : b->p50_us / a->p50_us,
                                    a->p75_us < b->p25_us || b->p75_us < a->p25_us});
    }
  }
  for (const Record& record : second.records)
    if (find_counterpart(record, first) == nullptr) comparison.only_second.push_back(lonely(record));
  return comparison;
}

}  // namespace keel::lab
