#include "comm_wish.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <tuple>

#include "keel/dist/lab/sizes.h"
#include "keel/trainer/device.h"

namespace keel::cli {
namespace {

template <class T>
void add_once(std::vector<T>& to, T value) {
  if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

DType find_dtype(const std::string& name) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) names.push_back(name_of(static_cast<DType>(i)));
  const std::string near = nearest(name, names);
  if (std::find(names.begin(), names.end(), name) == names.end() && !near.empty())
    throw Error(concat("there is no dtype '", name, "', did you mean '", near, "'?"));
  return parse_dtype(name);
}

// As a word of --op: the names of nccl-tests serve, too.
CombineOp find_op(const std::string& name) {
  constexpr std::pair<std::string_view, CombineOp> kOthers[] = {
      {"min", CombineOp::minimum}, {"max", CombineOp::maximum}, {"prod", CombineOp::product}, {"avg", CombineOp::mean}};
  std::vector<std::string_view> names;
  for (int i = 0; i < kCombineOps; ++i) {
    const auto op = static_cast<CombineOp>(i);
    if (name_of(op) == name) return op;
    names.push_back(name_of(op));
  }
  for (const auto& [other, op] : kOthers)
    if (other == name) return op;
  std::string list;
  for (const std::string_view one : names) list += concat(list.empty() ? "" : ", ", one);
  const std::string near = nearest(name, names);
  throw Error(concat("there is no operation '", name.substr(0, 60), "'",
                     near.empty() ? concat("; there are ", list) : concat(", did you mean '", near, "'?")));
}

// A rank, or -1 for "all".
int read_root(const std::string& text) {
  if (text == "all") return -1;
  int root = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), root);
  KEEL_CHECK(error == std::errc{} && end == text.data() + text.size() && root >= 0,
             "--root expects a rank or all, got '", text.substr(0, 60), "'");
  return root;
}

// "2:50": a rank, and a number.
std::pair<int, double> rank_and_number(const std::string& text, const char* option) {
  int rank = -1, end = 0;
  double value = -1;
  const bool is_sound = std::sscanf(text.c_str(), "%d:%lf%n", &rank, &value, &end) == 2 &&
                        end == static_cast<int>(text.size()) && rank >= 0 && value >= 0 && value <= 1e9;
  KEEL_CHECK(is_sound, option, " expects a rank and a number, as in 2:50; got '", text.substr(0, 60), "'");
  return {rank, value};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

}  // namespace

CommWish read_wish(const CommArguments& arguments) {
  CommWish wish;
  for (const std::string& name : arguments.collectives) {
    if (name == "all")
      for (const lab::Exercise& exercise : lab::exercises()) add_once(wish.exercises, &exercise);
    else add_once(wish.exercises, &lab::find_exercise(name));
  }
  for (const std::string& name : arguments.algorithms) {
    if (name == "all")
      for (const AlgorithmName& one : algorithm_names()) add_once(wish.contestants, &one);
    else add_once(wish.contestants, &find_algorithm_name(name));
  }
  for (const std::string& name : arguments.dtypes) add_once(wish.dtypes, find_dtype(name));
  wish.link = link_of(arguments.network);
  for (const std::string& name : arguments.ops) {
    if (name == "all")
      for (int i = 0; i < kCombineOps; ++i) add_once(wish.ops, static_cast<CombineOp>(i));
    else add_once(wish.ops, find_op(name));
  }
  wish.root = read_root(arguments.root);
  const std::int64_t begin = lab::parse_size(arguments.begin), end = lab::parse_size(arguments.end);
  KEEL_CHECK(arguments.step.empty() || arguments.factor == CommArguments::kFactor,
             "sizes grow by --step or by --factor, not by both");
  wish.sizes = arguments.step.empty() ? lab::size_sweep(begin, end, arguments.factor)
                                      : lab::size_steps(begin, end, lab::parse_size(arguments.step));
  if (!arguments.late.empty()) std::tie(wish.late_rank, wish.late_ms) = rank_and_number(arguments.late, "--late");
  if (!arguments.corrupt.empty()) {
    double element = 0;
    std::tie(wish.corrupted_rank, element) = rank_and_number(arguments.corrupt, "--corrupt");
    wish.corrupted_element = static_cast<std::int64_t>(element);
    KEEL_CHECK(arguments.check, "--corrupt shows what the check finds, and --no-check switches it off");
    KEEL_CHECK(choose_device(arguments.device).type == DeviceType::cpu, "--corrupt is for results on the processor");
  }
  return wish;
}

lab::Texts texts_of(const CommArguments& arguments) {
  return {{"collectives", joined(arguments.collectives)},
          {"algorithms", joined(arguments.algorithms)},
          {"dtypes", joined(arguments.dtypes)},
          {"begin", arguments.begin},
          {"end", arguments.end},
          {"factor", arguments.step.empty() ? fmt::format("{}", arguments.factor) : ""},
          {"step", arguments.step},
          {"ops", joined(arguments.ops)},
          {"root", arguments.root},
          {"at_once", fmt::format("{}", arguments.at_once)},
          {"barrier", arguments.barrier ? "yes" : "no"},
          {"overlap", arguments.polls < 0 ? "" : fmt::format("{} polls", arguments.polls)},
          {"calls", arguments.calls == 0 ? "automatic" : fmt::format("{}", arguments.calls)},
          {"warmup", fmt::format("{}", arguments.warmup)},
          {"check", arguments.check ? "yes" : "no"},
          {"device", arguments.device},
          {"delay", arguments.network.delay_us == 0 ? "" : fmt::format("{} us", arguments.network.delay_us)},
          {"bandwidth", arguments.network.bandwidth},
          {"late", arguments.late},
          {"corrupt", arguments.corrupt}};
}

}  // namespace keel::cli
