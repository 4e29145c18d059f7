#pragma once
// Ways to do the same training, to be compared: combinations of what is tried.

#include <string>
#include <vector>

#include "keel/trainer/config.h"

namespace keel {

// One way to train.
struct Variant {
  std::string name;
  Config config;
  std::string base = name;                // its name without the compression
  std::vector<std::string> changes = {};  // KEY=VALUE, those of CompareAxes::changes
};

// What is tried, on its own axis: the variants are all combinations. An empty axis stays as the configuration has it.
struct CompareAxes {
  std::vector<std::string> strategies = {};  // names of strategies that say their precision
  std::vector<std::string> algorithms = {};  // of collectives, as sharding.algorithm
  std::vector<std::string> buckets = {};     // sizes, "4M"
  // Compressions of gradients: "none", "int8", "topk:0.01", "powersgd:4". "none" is tried in any case, to measure the
  // others by.
  std::vector<std::string> compressions = {};
  // "NAME: KEY=VALUE KEY=VALUE", keys of the configuration; a space inside of quotes, braces or brackets is part of its
  // value. "plain", which changes nothing, is tried in any case, to measure the others by.
  std::vector<std::string> changes = {};
};
// The first axis varies slowest. An Error where a name is none; without any axis there is one variant, the
// configuration's own.
std::vector<Variant> variants_of(const Config& config, const CompareAxes& axes);

}  // namespace keel
