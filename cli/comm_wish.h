#pragma once
// What `keel comm` is asked to measure: the words of its options, and what they mean.

#include <string>
#include <vector>

#include "common_options.h"
#include "keel/dist/lab/contestant.h"
#include "keel/dist/lab/report.h"
#include "network.h"

namespace keel::cli {

// As typed.
struct CommArguments {
  std::vector<std::string> collectives = {"all_reduce"}, algorithms = {"ordered", "backend"}, dtypes = {"f32"},
                           ops = {"sum"};
  std::string begin = "8", end = "64M", step, root = "0";
  double factor = kFactor;
  int at_once = 1, polls = kNoOverlap;
  bool barrier = false;
  int calls = 0, warmup = 5;
  bool check = true;
  std::string device = "cpu";
  bool through_host = false;
  int ranks_per_node = 0;
  LinkArguments network;
  std::string late, corrupt;
  std::string json, csv, plot;
  std::string draw, out;
  std::vector<std::string> sum;  // a number of each rank
  int ranks = 1;
  bool threads = false;
  std::vector<std::string> from;
  std::vector<int> predict;
  std::vector<std::string> compare;
  int columns = 0;

  static constexpr double kFactor = 2;
  static constexpr int kNoOverlap = -1;

  int width() const { return columns > 0 ? columns : columns_of_output(); }
};

// The same, understood; an Error where it makes no sense.
struct CommWish {
  std::vector<const lab::Exercise*> exercises;
  std::vector<const lab::Contestant*> contestants;
  std::vector<DType> dtypes;
  std::vector<CombineOp> ops;
  int root = 0;  // -1: each
  std::vector<std::int64_t> sizes;
  Link link = {};
  // -1: none
  int late_rank = -1, corrupted_rank = -1;
  double late_ms = 0;
  std::int64_t corrupted_element = 0;
};
CommWish read_wish(const CommArguments& arguments);
// For the report.
lab::Texts texts_of(const CommArguments& arguments);

}  // namespace keel::cli
