#pragma once
// The measuring part of `keel comm`: it measures what was asked for, on the ranks that there are.

#include <functional>
#include <string>
#include <vector>

#include "common_options.h"
#include "keel/dist/lab/contestant.h"
#include "keel/dist/lab/report.h"
#include "network.h"

namespace keel::cli {

// As typed.
struct CommArguments {
  std::vector<std::string> collectives = {"all_reduce"}, algorithms = {"ordered", "backend"}, dtypes = {"f32"};
  std::string begin = "8", end = "64M";
  double factor = 2;
  int calls = 0, warmup = 5;
  bool check = true;
  std::string device = "cpu";
  bool through_host = false;
  int ranks_per_node = 0;
  NetworkArguments network;
  std::string late, corrupt;
  std::string json, csv, plot;
  int ranks = 1;
  bool threads = false;
  std::vector<std::string> from;
  std::vector<int> predict;
  std::vector<std::string> compare;
  int columns = 0;

  int width() const { return columns > 0 ? columns : columns_of_output(); }
};

// The same, understood; an Error where it makes no sense.
struct CommWish {
  std::vector<const lab::Exercise*> exercises;
  std::vector<const lab::Contestant*> contestants;
  std::vector<DType> dtypes;
  std::vector<std::int64_t> sizes;
  Link link = {};
  // -1: none
  int late_rank = -1, corrupted_rank = -1;
  double late_ms = 0;
  std::int64_t corrupted_element = 0;
};
CommWish read_wish(const CommArguments& arguments);

// Every rank calls it; what is measured is printed and written by rank 0. Returns the exit code: 1 where an element was
// wrong, that of a signal where one ended it.
int measure_ranks(Communicator& ranks, const CommArguments& arguments, const std::function<int()>& signal);

// Writes what was asked for.
void save_report(const lab::Report& report, const CommArguments& arguments);

}  // namespace keel::cli
