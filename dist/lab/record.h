#pragma once
// One size of one algorithm, as it is written and read: the one list of its fields.

#include <span>
#include <string>
#include <variant>

#include "keel/dist/lab/measurement.h"

namespace keel::lab {

struct Record {
  std::string collective, algorithm, dtype;
  std::int64_t bytes = 0, count = 0, ranks = 0;
  std::string op = {};                    // of one that adds; else empty
  std::optional<std::int64_t> root = {};  // of one that has a root
  std::int64_t at_once = 1;               // calls that begin together
  std::optional<Timing> out_of_place = {}, in_place = {};
  // Bytes that one call sends: inside and between nodes those of the rank that sends most, in total those of all ranks.
  std::optional<std::int64_t> wire_inside_bytes = {}, wire_between_bytes = {}, wire_total_bytes = {};
};

// A field of T: its name in JSON and CSV, what it means, and where it is. An optional one is null where there is none.
template <class T>
struct Field {
  std::string_view name, meaning;
  std::variant<std::string T::*, std::int64_t T::*, double T::*, std::optional<std::int64_t> T::*,
               std::optional<double> T::*>
      place;
  int since = 1;  // the version of files that has it first
};

// The fields of a record but for its timings, and those of a timing.
std::span<const Field<Record>> record_fields();
std::span<const Field<Timing>> timing_fields();

// Where the two timings of a record are.
struct Variant {
  std::string_view name, meaning, prefix;  // the prefix of its columns in CSV
  std::optional<Timing> Record::*place;
};
std::span<const Variant> variants();

// "reduce (maximum, root 2, 4 at once)": what was measured, apart from who did it and on how much.
std::string asked_of(const Record& record);
// "all_reduce ring f32 1M", for messages and series.
std::string describe(const Record& record);

}  // namespace keel::lab
