#include "keel/trainer/strategies.h"

#include <algorithm>

#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"

namespace keel {
namespace {

KeyRow every(std::string_view standard) {
  return {.key = "outer.every",
          .type = KeyType::integer,
          .standard = standard,
          .help = "Steps of a group between two outer steps.",
          .low = 1};
}
KeyRow rate(std::string_view standard) {
  return {.key = "outer.rate",
          .type = KeyType::number,
          .standard = standard,
          .help = "Learning rate of outer steps.",
          .low = 0,
          .low_open = true};
}
KeyRow momentum() {
  return {.key = "outer.momentum",
          .type = KeyType::number,
          .standard = "0.9",
          .help = "Nesterov's momentum of outer steps.",
          .low = 0,
          .high = 1,
          .high_open = true};
}

OuterStepOptions diloco_of(const Settings& settings) {
  return {.every = settings.integer("outer.every"),
          .rate = settings.number("outer.rate"),
          .momentum = settings.number("outer.momentum"),
          .nesterov = true,
          .repeats = drops_groups(settings)};
}

}  // namespace

std::span<const StrategyEntry> keel_strategies() {
  static const StrategyEntry entries[] = {
      {.name = "local_sgd",
       .summary = "all groups get the mean of their weights (Stich 2018)",
       .rows = {every("16")},
       .make =
           [](const Settings& s) {
             return make_outer_steps({.every = s.integer("outer.every"), .repeats = drops_groups(s)});
           }},
      {.name = "diloco",
       .summary =
           "how far the weights have come, in the mean, is the gradient of a step of SGD with Nesterov's momentum "
           "(Douillard et al. 2023)",
       .rows = {every("50"), rate("0.7"), momentum()},
       .make = [](const Settings& s) { return make_outer_steps(diloco_of(s)); }},
      {.name = "streaming_diloco",
       .summary = "the same for a part of the blocks at a time, while training goes on (Douillard et al. 2025)",
       .rows = {every("50"),
                rate("0.7"),
                momentum(),
                {.key = "outer.fragments",
                 .type = KeyType::integer,
                 .standard = "4",
                 .help = "Parts of about equal size that the blocks are dealt to; each has an outer step every "
                         "outer.every steps, "
                         "spread over them.",
                 .low = 1},
                {.key = "outer.delay",
                 .type = KeyType::integer,
                 .standard = "1",
                 .help = "Steps from sending a part to using what has come, less than outer.every.",
                 .low = 0},
                {.key = "outer.blend",
                 .type = KeyType::number,
                 .standard = "0.5",
                 .help = "Share of what has come in the weights that are used; the rest are the group's own.",
                 .low = 0,
                 .high = 1,
                 .low_open = true}},
       .make =
           [](const Settings& s) {
             OuterStepOptions options = diloco_of(s);
             options.fragments = s.integer("outer.fragments");
             options.delay = s.integer("outer.delay");
             options.blend = s.number("outer.blend");
             return make_outer_steps(options);
           }},
      {.name = "sparse_loco",
       .summary = "the largest of how far the weights have come and of what was not sent before, in two bits each "
                  "(SparseLoCo: Sarfi et al. 2025)",
       .rows = {every("30"),
                rate("1"),
                {.key = "outer.decay",
                 .type = KeyType::number,
                 .standard = "0.95",
                 .help = "What is kept, from one outer step to the next, of what a group has not sent.",
                 .low = 0,
                 .high = 1},
                {.key = "outer.chunk",
                 .type = KeyType::integer,
                 .standard = "4096",
                 .help = "Neighbouring numbers of which the largest are sent.",
                 .low = 1,
                 .high = 1 << 20},
                {.key = "outer.keep",
                 .type = KeyType::integer,
                 .standard = "64",
                 .help = "Numbers of a chunk that are sent.",
                 .low = 1,
                 .high = 1 << 20},
                {.key = "outer.bits",
                 .type = KeyType::choice,
                 .standard = "2",
                 .help = "Bits of a number that is sent, beside those of its place. 2: its sign, and whether it is one "
                         "of the larger ones of its chunk. 32: the number.",
                 .choices = "2|32"}},
       .make =
           [](const Settings& s) {
             return make_sparse_outer_steps({.every = s.integer("outer.every"),
                                             .rate = s.number("outer.rate"),
                                             .decay = s.number("outer.decay"),
                                             .chunk = s.integer("outer.chunk"),
                                             .keep = s.integer("outer.keep"),
                                             .bits = s.text("outer.bits") == "2" ? 2 : 32});
           }},
      {.name = "demo",
       .summary =
           "in every step the components of each group's momentum that move fastest, as the gradient of all; for an "
           "optimizer that takes its sign, {type: Lion, betas: [0, 0]} (DeMo: Peng et al. 2024)",
       .rows = {{.key = "outer.decay",
                 .type = KeyType::number,
                 .standard = "0.999",
                 .help = "What is kept of a group's momentum from step to step.",
                 .low = 0,
                 .high = 1},
                {.key = "outer.chunk",
                 .type = KeyType::integer,
                 .standard = "64",
                 .help = "Neighbouring numbers that are transformed together.",
                 .low = 1,
                 .high = 4096},
                {.key = "outer.keep",
                 .type = KeyType::integer,
                 .standard = "8",
                 .help = "Components of a chunk that are sent, 8 bytes each.",
                 .low = 1,
                 .high = 4096}},
       .make =
           [](const Settings& s) {
             return make_fast_components({.decay = s.number("outer.decay"),
                                          .chunk = s.integer("outer.chunk"),
                                          .keep = s.integer("outer.keep")});
           }},
  };
  return entries;
}

bool drops_groups(const Settings& settings) {
  return settings.text("outer.type") != "none" && settings.text("outer.on_failure") == "drop";
}

const StrategyEntry* find_strategy(std::span<const StrategyEntry> entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &StrategyEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace keel
