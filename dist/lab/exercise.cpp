#include "keel/dist/lab/exercise.h"

#include "keel/dist/comm/schedule.h"
#include "keel/runtime/error.h"

namespace keel::lab {
namespace {

double once(int) { return 1; }
double all_but_own(int n) { return static_cast<double>(n - 1) / n; }
double there_and_back(int n) { return 2 * all_but_own(n); }

constexpr Exercise kExercises[] = {
    {"all_reduce", CollectiveKind::all_reduce, true, true, true, "2 (n - 1) / n", there_and_back},
    {"reduce_scatter", CollectiveKind::reduce_scatter, true, true, true, "(n - 1) / n", all_but_own},
    {"all_gather", CollectiveKind::all_gather, false, true, true, "(n - 1) / n", all_but_own},
    {"broadcast", CollectiveKind::broadcast, false, false, true, "1", once},
    {"all_to_all", CollectiveKind::all_to_all, false, true, false, "(n - 1) / n", all_but_own},
    {"sendrecv", CollectiveKind::send, false, true, false, "1", once},
};

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
  return exercise.kind == CollectiveKind::all_to_all ? count / ranks * ranks : count;
}

double algorithm_bandwidth(std::int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds * 1e-3 : 0;
}

Call make_call(const Exercise& exercise, const Communicator& ranks, std::int64_t count, bool in_place,
               const Tensor& first, const Tensor& second) {
  KEEL_CHECK(in_place ? exercise.in_place : exercise.out_of_place, exercise.name, " is not offered ",
             in_place ? "in place" : "out of place");
  const int rank = ranks.rank(), n = ranks.size();
  const Span own = part({0, count}, n, rank);
  const Tensor given = first.slice(0, 0, count), gotten = second.slice(0, 0, count);
  Call call{&exercise, rank, n, count, in_place, given, in_place ? given : gotten};
  switch (exercise.kind) {
    case CollectiveKind::reduce_scatter:
      call.output = in_place ? given.slice(0, own.begin, own.end) : gotten.slice(0, 0, own.count());
      break;
    case CollectiveKind::all_gather:
      call.output = gotten;
      call.input = in_place ? gotten.slice(0, own.begin, own.end) : given.slice(0, 0, own.count());
      break;
    case CollectiveKind::send:
      KEEL_CHECK(n > 1, "sendrecv needs two ranks: none sends to itself");
      call.parts = {{.kind = CollectiveKind::send, .input = call.input, .peer = (rank + 1) % n},
                    {.kind = CollectiveKind::receive, .output = call.output, .peer = (rank + n - 1) % n}};
      return call;
    default: break;
  }
  call.parts = {{.kind = exercise.kind, .input = call.input, .output = call.output}};
  return call;
}

}  // namespace keel::lab
