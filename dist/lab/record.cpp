#include "keel/dist/lab/record.h"

#include "keel/dist/lab/sizes.h"
#include "keel/runtime/error.h"

namespace keel::lab {

std::span<const Field<Record>> record_fields() {
  static constexpr Field<Record> kFields[] = {
      {"collective", "as in Communicator; sendrecv: to the next rank, from the one before", &Record::collective},
      {"algorithm", "who did it", &Record::algorithm},
      {"dtype", "of the elements", &Record::dtype},
      {"ranks", "n", &Record::ranks},
      {"bytes", "S: of the whole tensor, the larger of what a rank gives and gets", &Record::bytes},
      {"count", "elements of the whole tensor", &Record::count},
      {"wire_inside_bytes",
       "that a call sends inside nodes, of the rank that sends most; null: the library does not say",
       &Record::wire_inside_bytes},
      {"wire_between_bytes", "the same between nodes", &Record::wire_between_bytes},
      {"wire_total_bytes", "of all ranks together, inside and between nodes", &Record::wire_total_bytes},
      {"op", "by which numbers are combined; empty: they are moved", &Record::op, 2},
      {"root", "who gives or gets all; null: nobody", &Record::root, 2},
      {"at_once", "calls that begin together; times and bytes are those of one", &Record::at_once, 2},
  };
  return kFields;
}

std::span<const Field<Timing>> timing_fields() {
  static constexpr Field<Timing> kFields[] = {
      {"calls", "that were timed", &Timing::calls},
      {"time_us", "of a call: each rank's mean, averaged over ranks", &Timing::time_us},
      {"min_us", "the mean of the fastest rank", &Timing::min_us},
      {"max_us", "the mean of the slowest rank", &Timing::max_us},
      {"p25_us", "first quartile of calls, each as its slowest rank saw it", &Timing::p25_us},
      {"p50_us", "median of them", &Timing::p50_us},
      {"p75_us", "third quartile", &Timing::p75_us},
      {"p95_us", "95th percentile", &Timing::p95_us},
      {"algbw", "S / time_us, in 10^9 bytes a second", &Timing::algbw},
      {"busbw", "algbw times the collective's factor", &Timing::busbw},
      {"wrong", "elements that are not what they must be, on all ranks; null: not checked", &Timing::wrong},
      {"skew_us", "from the first rank's asking to the last's, median over calls", &Timing::skew_us},
      {"straggler", "the rank that asked last most often; -1: a rank alone", &Timing::straggler},
      {"straggler_share", "of the calls in which it did", &Timing::straggler_share},
      {"first_us", "the very first call, which makes connections, of the slowest rank; not in the others",
       &Timing::first_us},
      {"computing_us", "of computing that takes a rank about as long as a call, mean over ranks; null: not measured",
       &Timing::computing_us, 2},
      {"together_us", "of a call under which a rank computes that", &Timing::together_us, 2},
      {"overlap", "share of a call's time that a rank has for computing, in percent", &Timing::overlap, 2},
  };
  return kFields;
}

std::span<const Variant> variants() {
  static constexpr Variant kVariants[] = {
      {"out_of_place", "from one tensor into another; null: not offered", "out_", &Record::out_of_place},
      {"in_place", "where the result lies over what was given; null: not offered", "in_", &Record::in_place},
  };
  return kVariants;
}

std::string asked_of(const Record& record) {
  std::string details;
  const auto add = [&](const std::string& detail) { details += concat(details.empty() ? "" : ", ", detail); };
  if (!record.op.empty() && record.op != name_of(CombineOp::sum)) add(record.op);
  if (record.root && *record.root != 0) add(concat("root ", *record.root));
  if (record.at_once > 1) add(concat(record.at_once, " at once"));
  return details.empty() ? record.collective : concat(record.collective, " (", details, ')');
}

std::string describe(const Record& record) {
  return concat(asked_of(record), ' ', record.algorithm, ' ', record.dtype, ' ', size_text(record.bytes));
}

}  // namespace keel::lab
