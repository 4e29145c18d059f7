// The keys of sequences that grow with the steps.

#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

constexpr Condition kInEveryRun = {};
constexpr Condition kGrows = {"curriculum.type", "fixed_linear|fixed_root"};
constexpr Condition kGrowsByRoot = {"curriculum.type", "fixed_root"};
constexpr Condition kJumps = {"curriculum.type", "fixed_discrete"};
constexpr Range kOneAtLeast = {.low = 1};
constexpr Range kZeroAtLeast = {.low = 0};

}  // namespace

std::vector<SchemaRow> curriculum_rows() {
  return {
      {"curriculum.type",
       choice_field([](const Config& c) { return static_cast<int>(c.curriculum.type); },
                    [](Config& c, int index) { c.curriculum.type = static_cast<CurriculumConfig::Type>(index); },
                    "none|fixed_linear|fixed_root|fixed_discrete"),
       "none", kAny, kInEveryRun,
       "How the sequences of training grow with the steps, from their beginning: in proportion to the steps, to a root "
       "of them, or by a list. Evaluations are of whole sequences.",
       "schedule_type"},
      {"curriculum.min_length", member(+[](Config& c) -> std::int64_t& { return c.curriculum.min_length; }), "8",
       kOneAtLeast, kGrows, "Positions of the first sequences.", "min_difficulty"},
      {"curriculum.max_length", member(+[](Config& c) -> std::int64_t& { return c.curriculum.max_length; }), "0",
       kZeroAtLeast, kGrows, "Positions of the last ones; 0: all that there are.", "max_difficulty"},
      {"curriculum.steps", member(+[](Config& c) -> Length& { return c.curriculum.steps; }), "", kOneAtLeast, kGrows,
       "The step that is the first with curriculum.max_length, in steps, epochs or a part of the run.",
       "total_curriculum_step"},
      {"curriculum.multiple", member(+[](Config& c) -> std::int64_t& { return c.curriculum.multiple; }), "8",
       kOneAtLeast, kGrows, "Lengths below the last are multiples of it.", "difficulty_step"},
      {"curriculum.root", member(+[](Config& c) -> double& { return c.curriculum.root; }), "2", kOneAtLeast,
       kGrowsByRoot, "2: the square root of the steps, and so on.", "root_degree"},
      {"curriculum.lengths", member(+[](Config& c) -> std::vector<std::int64_t>& { return c.curriculum.lengths; }), "",
       kOneAtLeast, kJumps, "Positions, one after the other.", "difficulty"},
      {"curriculum.until", member(+[](Config& c) -> std::vector<Length>& { return c.curriculum.until; }), "",
       kOneAtLeast, kJumps,
       "The last step of each length but the last, which has none; in steps, epochs or parts of the run.", "max_step"},
  };
}

}  // namespace keel
