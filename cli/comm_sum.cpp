#include "comm_sum.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>

#include "keel/dist/comm/algorithms.h"
#include "keel/runtime/tensor.h"
#include "ranks.h"
#include "schedule_play.h"
#include "table.h"

namespace keel::cli {
namespace {

constexpr int kMostTerms = 32;  // an order of more cannot be read

std::vector<double> terms_of(const CommArguments& arguments) {
  const std::vector<double> terms = numbers_of(arguments.sum, "--sum");
  KEEL_CHECK(terms.size() >= 2 && terms.size() <= kMostTerms, "--sum takes a number of each rank, of 2 to ", kMostTerms,
             " ranks, and there ", terms.size() == 1 ? "is " : "are ", terms.size());
  KEEL_CHECK(arguments.ranks == 1 || arguments.ranks == std::ssize(terms), "--sum has ", terms.size(),
             " numbers, one of each rank, and -N is ", arguments.ranks);
  return terms;
}

// Those with a schedule.
std::vector<const lab::Contestant*> adders_of(const CommArguments& arguments, const CommWish& wish) {
  std::vector<const lab::Contestant*> adders;
  for (const lab::Contestant* const each : wish.contestants) {
    KEEL_CHECK(!each->algorithm.empty() || std::ranges::count(arguments.algorithms, "all") > 0, "--sum cannot show ",
               each->name, ": in which order a library adds, it does not say");
    if (!each->algorithm.empty()) adders.push_back(each);
  }
  return adders;
}

// A number with as many digits as tell it from its neighbours.
template <class T>
std::string text_of(T value) {
  const auto wide = static_cast<Accumulator<T>>(value);
  return std::isnan(wide) ? "nan" : fmt::format("{}", wide);
}

// Adds as the text of an element says, such as "((1+2)+3)+0" of ranks.
template <class T>
class TextSum {
 public:
  TextSum(std::string_view order, const std::vector<T>& terms) : order_(order), terms_(terms), result_(sum()) {}

  T result() const { return result_; }
  // "1 + 1 = 2, 2 + 256 = 258, 258 + 1 = 259 -> 260"
  const std::string& steps() const { return steps_; }

 private:
  using Wide = Accumulator<T>;

  bool take(char wanted) {
    if (at_ == order_.size() || order_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  T sum() {
    const T first = term();
    auto total = static_cast<Wide>(first);
    std::string words = text_of(first);
    while (take('+')) {
      const T next = term();
      total += static_cast<Wide>(next);
      words += concat(" + ", text_of(next));
    }
    const auto rounded = static_cast<T>(total);
    steps_ += concat(steps_.empty() ? "" : ", ", words, " = ", text_of(total));
    if (text_of(rounded) != text_of(total)) steps_ += concat(" -> ", text_of(rounded));
    return rounded;
  }
  T term() {
    if (take('(')) {
      const T inner = sum();
      take(')');
      return inner;
    }
    std::size_t rank = 0;
    const auto [end, error] = std::from_chars(order_.data() + at_, order_.data() + order_.size(), rank);
    KEEL_CHECK(error == std::errc{} && rank < terms_.size(), "there is no order of additions in '", order_, "'");
    at_ = static_cast<std::size_t>(end - order_.data());
    return terms_[rank];
  }

  std::string_view order_;
  const std::vector<T>& terms_;
  std::size_t at_ = 0;
  std::string steps_;
  T result_;
};

// Of each algorithm what rank 0 gets, an element for each shard.
template <class T>
std::vector<std::vector<T>> add_by(const std::vector<const lab::Contestant*>& adders, const std::vector<T>& terms,
                                   const std::vector<int>& nodes, int& code) {
  std::vector<std::vector<T>> sums(adders.size());
  code = on_ranks(static_cast<int>(terms.size()), [&](Communicator& ranks) {
    ContextOptions options;
    options.threads = 1;
    const Context context = Context::create(options);
    for (std::size_t i = 0; i < adders.size(); ++i) {
      std::string why_not;
      const auto group = lab::enter(*adders[i], {.ranks = ranks, .context = context, .nodes = nodes}, why_not);
      KEEL_CHECK(group != nullptr, adders[i]->name, ": ", why_not);
      const T own = terms[static_cast<std::size_t>(ranks.rank())];
      const Tensor x = from_values(context, std::vector<T>(terms.size(), own), {std::ssize(terms)});
      group->all_reduce(x).wait();
      if (ranks.rank() == 0) sums[i] = x.to_vector<T>();
    }
    return 0;
  });
  return sums;
}

// "all", or "0", "1, 3".
std::string shards_text(const std::vector<std::size_t>& shards, std::size_t all) {
  if (shards.size() == all) return "all";
  std::string text;
  for (const std::size_t shard : shards) text += concat(text.empty() ? "" : ", ", shard);
  return text;
}

class SumTable {
 public:
  // A row for each order in which the algorithm adds an element. `sums`: what came out, by shard.
  template <class T>
  void add(const lab::Contestant& adder, const Play& played, const std::vector<T>& terms, const std::vector<T>& sums) {
    const std::vector<std::string>& orders = played.states.back().front()[static_cast<std::size_t>(Place::output)];
    std::vector<std::pair<std::string, std::vector<std::size_t>>> rows;
    for (std::size_t shard = 0; shard < orders.size(); ++shard) {
      auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& each) { return each.first == orders[shard]; });
      if (row == rows.end()) row = rows.insert(rows.end(), {orders[shard], {}});
      row->second.push_back(shard);
    }
    for (const auto& [order, shards] : rows) {
      const TextSum<T> said(order, terms);
      for (const std::size_t shard : shards)
        if (text_of(said.result()) != text_of(sums[shard]))
          throw Error(concat(adder.name, " adds shard ", shard, " to ", text_of(sums[shard]), ", and the order ", order,
                             " of its schedule to ", text_of(said.result())),
                      ErrorKind::internal);
      const std::string cells[] = {std::string(adder.name), shards_text(shards, orders.size()), order, said.steps(),
                                   text_of(said.result())};
      for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].cells.push_back(cells[i]);
    }
  }
  std::string text(int width) const { return table_text(columns_, width); }

 private:
  std::vector<TableColumn> columns_ = {{"", "algorithm", 0, true},
                                       {"", "shard", 0, true},
                                       {"", "order of ranks", 0, true},
                                       {"", "sums", 1, true},
                                       {"", "result"}};
};

template <class T>
int print_sums_of(const CommArguments& arguments, const std::vector<const lab::Contestant*>& adders,
                  const std::vector<double>& wanted) {
  const auto n = static_cast<int>(wanted.size());
  std::vector<T> terms;
  std::string words;
  double whole = 0;
  for (const double each : wanted) {
    terms.push_back(T(static_cast<Accumulator<T>>(each)));
    words += concat(words.empty() ? "" : ", ", text_of(terms.back()));
    whole += static_cast<double>(static_cast<Accumulator<T>>(terms.back()));
  }
  std::vector<Play> plays;
  for (const lab::Contestant* const each : adders)
    plays.push_back(play("all_reduce", each->algorithm, n, n, 0, arguments.ranks_per_node));
  int code = 0;
  const std::vector<std::vector<T>> sums = add_by(adders, terms, plays.front().nodes, code);
  if (code != 0) return code;
  SumTable table;
  for (std::size_t i = 0; i < adders.size(); ++i) table.add(*adders[i], plays[i], terms, sums[i]);
  std::cout << fmt::format("# all_reduce among {} ranks, in {}; by rank they bring {}; added in f64: {}\n", n,
                           name_of(keel::dtype_of<T>()), words, text_of(whole))
            << table.text(arguments.width()) << std::flush;
  return 0;
}

}  // namespace

int print_sums(const CommArguments& arguments) {
  const std::vector<double> terms = terms_of(arguments);
  KEEL_CHECK(arguments.collectives == Words{"all_reduce"}, "--sum adds by all_reduce alone");
  const CommWish wish = read_wish(arguments);
  KEEL_CHECK(wish.ops == std::vector{CombineOp::sum}, "--sum adds, and --op asks for something else");
  const std::vector<const lab::Contestant*> adders = adders_of(arguments, wish);
  for (const DType dtype : wish.dtypes)
    KEEL_CHECK(is_floating(dtype), "--sum is for f32, bf16, f16 and f64: in ", dtype,
               " the order of additions makes no difference");
  for (const DType dtype : wish.dtypes) {
    const int code = visit_floating(
        dtype, [&](auto tag) { return print_sums_of<typename decltype(tag)::type>(arguments, adders, terms); });
    if (code != 0) return code;
  }
  for (const lab::Contestant* const each : adders)
    std::cout << fmt::format("# {}: {}\n", each->name, find_algorithm(each->algorithm).order);
  std::cout << "# a sum in brackets is rounded before the next one; a + b = c -> d: c was rounded to d\n" << std::flush;
  return 0;
}

}  // namespace keel::cli
