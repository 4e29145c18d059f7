#include "keel/dist/lab/exercise.h"

#include <utility>

#include "keel/dist/comm/schedule.h"
#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

double once(int) { return 1; }
double all_but_own(int n) { return static_cast<double>(n - 1) / n; }
double there_and_back(int n) { return 2 * all_but_own(n); }

constexpr std::string_view kAllButOwn = "(n - 1) / n";
using enum CollectiveKind;
constexpr Exercise kExercises[] = {
    // By counts, out of place, in place.
    {"all_reduce", all_reduce, false, true, true, "2 (n - 1) / n", there_and_back},
    {"reduce_scatter", reduce_scatter, false, true, true, kAllButOwn, all_but_own},
    {"all_gather", all_gather, false, true, true, kAllButOwn, all_but_own},
    {"broadcast", broadcast, false, false, true, "1", once},
    {"reduce", reduce, false, true, true, "1", once},
    {"gather", gather, false, true, true, kAllButOwn, all_but_own},
    {"scatter", scatter, false, true, true, kAllButOwn, all_but_own},
    {"all_to_all", all_to_all, false, true, false, kAllButOwn, all_but_own},
    {"reduce_scatter_v", reduce_scatter, true, true, true, kAllButOwn, all_but_own},
    {"all_gather_v", all_gather, true, true, true, kAllButOwn, all_but_own},
    {"all_to_all_v", all_to_all, true, true, false, kAllButOwn, all_but_own},
    {"sendrecv", send, false, true, false, "1", once},
    {"barrier", barrier, false, true, false, "1", once},
};

// Equal parts as far as that goes, or uneven ones; empty where the exercise names none.
Counts counts_of(const Exercise& exercise, std::int64_t count, int ranks) {
  if (exercise.by_counts) return uneven_counts(count, ranks);
  Counts counts;
  if (exercise.kind == gather || exercise.kind == scatter)
    for (int r = 0; r < ranks; ++r) counts.push_back(part({0, count}, ranks, r).count());
  return counts;
}

}  // namespace

std::span<const Exercise> exercises() { return kExercises; }

const Exercise& find_exercise(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Exercise& exercise : kExercises) {
    if (exercise.name == name) return exercise;
    names.push_back(exercise.name);
  }
  std::string list;
  for (const std::string_view one : names) list += concat(list.empty() ? "" : ", ", one);
  const std::string near = nearest(name, names);
  throw Error(concat("there is no collective '", name.substr(0, 60), "'",
                     near.empty() ? concat("; there are ", list) : concat(", did you mean '", near, "'?")));
}

std::int64_t count_in(const Exercise& exercise, std::int64_t bytes, DType dtype, int ranks) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype));
  if (exercise.kind == CollectiveKind::barrier) return 0;
  return exercise.kind == CollectiveKind::all_to_all && !exercise.by_counts ? count / ranks * ranks : count;
}

Counts uneven_counts(std::int64_t count, int ranks) {
  const std::int64_t all = std::int64_t{ranks} * (ranks + 1);
  const auto end_of = [&](std::int64_t r) {
    return count / all * (r * (r + 1)) + count % all * (r * (r + 1)) / all;  // without a large product
  };
  Counts counts;
  for (int r = 0; r + 1 < ranks; ++r) counts.push_back(end_of(r + 1) - end_of(r));
  counts.push_back(count - end_of(ranks - 1));
  return counts;
}

double algorithm_bandwidth(std::int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds * 1e-3 : 0;
}

Call make_call(const Exercise& exercise, const Communicator& ranks, std::int64_t count, bool in_place,
               const Tensor& first, const Tensor& second, const CallOptions& options) {
  KEEL_CHECK(in_place ? exercise.in_place : exercise.out_of_place, exercise.name, " is not offered ",
             in_place ? "in place" : "out of place");
  const int rank = ranks.rank(), n = ranks.size();
  const Tensor given = first.slice(0, 0, count), gotten = second.slice(0, 0, count), nothing = first.slice(0, 0, 0);
  Call call{&exercise, rank, n, count, in_place, given, in_place ? given : gotten};
  Collective collective{.kind = exercise.kind, .counts = counts_of(exercise, count, n)};
  if (exercise.adds()) collective.op = options.op;
  if (exercise.has_root()) collective.peer = options.root;
  const Span own = Cut(count, n, collective.counts).of(rank);
  const bool is_root = rank == options.root;
  const auto own_place = [&](const Tensor& whole) { return whole.slice(0, own.begin, own.end); };
  switch (exercise.kind) {
    case reduce_scatter: call.output = in_place ? own_place(given) : gotten.slice(0, 0, own.count()); break;
    case all_gather:
      call.output = gotten;
      call.input = in_place ? own_place(gotten) : given.slice(0, 0, own.count());
      break;
    case reduce:
      if (!is_root) call.output = nothing;
      break;
    case gather:
      call.output = is_root ? gotten : nothing;
      call.input = in_place && is_root ? own_place(gotten) : given.slice(0, 0, own.count());
      break;
    case scatter:
      call.output = in_place && is_root ? own_place(given) : gotten.slice(0, 0, own.count());
      if (!is_root) call.input = nothing;
      break;
    case all_to_all: {
      if (!exercise.by_counts) break;
      // Rank s gets the part (s - r) modulo n of rank r.
      const Counts lengths = std::exchange(collective.counts, {});
      for (int r = 0; r < n; ++r) {
        collective.counts.push_back(lengths[static_cast<std::size_t>((r - rank + n) % n)]);
        collective.incoming.push_back(lengths[static_cast<std::size_t>((rank - r + n) % n)]);
      }
      break;
    }
    case send:
      KEEL_CHECK(n > 1, "sendrecv needs two ranks: none sends to itself");
      call.parts = {{.kind = send, .input = call.input, .peer = (rank + 1) % n},
                    {.kind = receive, .output = call.output, .peer = (rank + n - 1) % n}};
      return call;
    case barrier:
      call.input = call.output = nothing;
      call.parts = {collective};
      return call;
    default: break;
  }
  const CollectiveTraits& traits = traits_of(exercise.kind);
  if (traits.given != Held::whole_at_root || is_root || traits.gotten == Held::whole) collective.input = call.input;
  if (traits.gotten != Held::whole_at_root || is_root) collective.output = call.output;
  call.parts = {collective};
  return call;
}

std::vector<Work> begin(Communicator& ranks, std::span<const Call> calls) {
  std::vector<Work> works;
  for (const Call& call : calls)
    for (const Collective& part : call.parts) works.push_back(ranks.begin(part));
  return works;
}

void make(Communicator& ranks, std::span<const Call> calls) {
  if (calls.size() == 1 && calls.front().parts.size() == 1) return ranks.begin(calls.front().collective()).wait();
  for (const Work& work : begin(ranks, calls)) work.wait();
}

}  // namespace keel::lab
