#include "keel/tasks/supervised_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "keel/data/csv.h"
#include "keel/data/walk.h"
#include "keel/runtime/error.h"
#include "keel/runtime/json.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/class_labels.h"

namespace keel {
namespace {

// All numbers of a field; an Error where it has others.
void append_numbers(const Example& example, const std::string& name, std::vector<double>& numbers) {
  const Value& value = example[name];
  const std::size_t before = numbers.size();
  if (const auto* number = std::get_if<double>(&value)) numbers.push_back(*number);
  else if (const auto* whole = std::get_if<std::int64_t>(&value)) numbers.push_back(static_cast<double>(*whole));
  else if (const auto* list = std::get_if<Numbers>(&value))
    numbers.insert(numbers.end(), list->values.begin(), list->values.end());
  else if (const auto* wholes = std::get_if<Integers>(&value))
    for (const std::int64_t each : wholes->values) numbers.push_back(static_cast<double>(each));
  else throw Error(concat("the field '", printable(name, 64), "' is ", kind_of(value), ", and numbers are asked for"));
  KEEL_CHECK(std::ranges::all_of(std::span(numbers).subspan(before), [](double each) { return std::isfinite(each); }),
             "the field '", printable(name, 64), "' has a number that is not finite");
}

// Which columns there are, where one that is asked for is not.
void require_columns(const Example& first, const std::vector<std::string>& names, std::string_view who,
                     std::string_view instead) {
  constexpr std::size_t kMostListed = 24;
  std::vector<std::string_view> known;
  std::string all;
  for (const auto& [name, value] : first.fields()) {
    if (known.size() < kMostListed) all += concat(known.empty() ? "" : ", ", printable(name, 64));
    known.push_back(name);
  }
  if (known.size() > kMostListed) all += concat(" and ", known.size() - kMostListed, " more");
  for (const std::string& name : names) {
    if (first.has(name)) continue;
    const std::string likely = nearest(std::string_view(name).substr(0, 64), known);
    throw Error(concat(who, ": there is no column '", printable(name, 64), "'",
                       likely.empty() ? "" : concat(", did you mean '", printable(likely, 64), "'?"),
                       "; the columns are ", all, instead));
  }
}

std::vector<double> numbers_of(const Example& example, const std::vector<std::string>& names) {
  std::vector<double> numbers;
  for (const std::string& name : names) append_numbers(example, name, numbers);
  return numbers;
}

std::optional<std::int64_t> whole_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Calls `take` with every example, in order.
void each_example(const Dataset& data, const std::function<void(const Example& example)>& take) {
  std::mutex mutex;
  std::map<std::int64_t, std::vector<Example>> round;
  walk(
      data,
      [&](std::int64_t first, std::vector<Example> examples) {
        const std::lock_guard lock(mutex);
        round[first] = std::move(examples);
      },
      [&](std::int64_t, std::int64_t) {
        for (const auto& [first, examples] : round)
          for (const Example& example : examples) take(example);
        round.clear();
      });
}

// Means and deviations of numbers that come row by row (Welford 1962).
class Moments {
 public:
  void add(const std::vector<double>& row) {
    ++rows_;
    mean_.resize(row.size());
    squares_.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double difference = row[i] - mean_[i];
      mean_[i] += difference / rows_;
      squares_[i] += difference * (row[i] - mean_[i]);
    }
  }
  // What does not vary has the deviation 1.
  ColumnScale scale() const {
    ColumnScale scale = {mean_, {}};
    for (const double squares : squares_) {
      const double deviation = std::sqrt(squares / rows_);
      scale.deviation.push_back(deviation > 0 ? deviation : 1);
    }
    return scale;
  }

 private:
  double rows_ = 0;
  std::vector<double> mean_, squares_;
};

Json json_of(const ColumnScale& scale) { return {{"mean", scale.mean}, {"deviation", scale.deviation}}; }

ColumnScale scale_of(const Json& json) {
  ColumnScale scale;
  for (const Json& each : json.at("mean").items()) scale.mean.push_back(each.number());
  for (const Json& each : json.at("deviation").items()) scale.deviation.push_back(each.number());
  return scale;
}

std::vector<std::string> texts_of(const Json& json) {
  std::vector<std::string> texts;
  for (const Json& each : json.items()) texts.push_back(each.string());
  return texts;
}

std::map<std::string, std::int64_t, std::less<>> numbered(const std::vector<std::string>& classes) {
  std::map<std::string, std::int64_t, std::less<>> numbers;
  for (std::size_t i = 0; i < classes.size(); ++i) numbers[classes[i]] = static_cast<std::int64_t>(i);
  return numbers;
}

std::vector<SupervisedHead> expanded(std::vector<SupervisedHead> heads) {
  for (SupervisedHead& head : heads) head.columns = expanded_columns(head.columns);
  return heads;
}

class Prepared final : public Dataset {
 public:
  Prepared(DatasetPtr below, std::shared_ptr<const SupervisedColumns> columns, std::string path, bool has_targets)
      : below_(std::move(below)), columns_(std::move(columns)), path_(std::move(path)), has_targets_(has_targets) {}

  std::int64_t size() const override { return below_->size(); }
  Example example(std::int64_t i) const override { return made(below_->example(i), i); }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    std::vector<Example> all = below_->examples(indices);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = made(all[i], indices[i]);
    return all;
  }
  std::string fingerprint() const override {
    return concat(below_->fingerprint(), " as ", columns_->json(), has_targets_);
  }

 private:
  Example made(const Example& example, std::int64_t i) const {
    try {
      return columns_->prepared(example, has_targets_);
    } catch (const Error& error) { throw Error(concat("'", path_, "', example ", i, " (from 0 on): "), error); }
  }

  DatasetPtr below_;
  std::shared_ptr<const SupervisedColumns> columns_;
  std::string path_;
  bool has_targets_;
};

}  // namespace

SupervisedColumns::SupervisedColumns(const Dataset& data, const std::vector<std::string>& inputs,
                                     const std::vector<SupervisedHead>& heads, const std::string& left_out)
    : heads_(expanded(heads)), inputs_(expanded_columns(inputs)), numbers_(heads.size()) {
  const Example first = data.example(0);
  for (const SupervisedHead& head : heads_) {
    require_columns(first, head.columns, concat("model.heads: head '", head.name, "'"),
                    head.columns.size() == 1 && head.columns.front() == head.name ? "; name them by columns" : "");
    add_head(first, head);
  }
  require_columns(first, inputs_, "data.inputs", "");
  const auto is_a_heads = [&](const std::string& name) {
    return std::ranges::any_of(heads_, [&](const SupervisedHead& head) {
      return std::ranges::find(head.columns, name) != head.columns.end();
    });
  };
  for (const std::string& name : inputs_)
    KEEL_CHECK(!is_a_heads(name), "data.inputs: '", printable(name, 64), "' is what a head learns");
  if (inputs_.empty())
    for (const auto& [name, value] : first.fields())
      if (text_or_json(value) == nullptr && !is_a_heads(name) && name != left_out) inputs_.push_back(name);
  width_ = std::ssize(numbers_of(first, inputs_));
  KEEL_CHECK(width_ > 0, "there are no numbers beside what the heads learn, so nothing for the model to read");
}

void SupervisedColumns::add_head(const Example& first, const SupervisedHead& head) {
  HeadColumns& made = columns_.emplace_back();
  if (!head.has_classes()) {
    made.width = std::ssize(numbers_of(first, head.columns));
    return;
  }
  if (head.columns.size() == 1 && text_or_json(first[head.columns.front()]) != nullptr) return;
  made.width = std::ssize(numbers_of(first, head.columns));  // one of each class
  if (made.width == 1) made.width = head.classes;
  KEEL_CHECK(made.width < 2 || head.classes == 0 || made.width == head.classes, "model.heads: head '", head.name,
             "' has ", head.classes, " classes, and the data ", made.width, " columns of them; leave classes out");
}

void SupervisedColumns::find_classes(const Dataset& data) {
  std::vector<std::set<std::string>> found(heads_.size());
  const auto is_asked = [&](std::size_t head) {
    return heads_[head].has_classes() && heads_[head].classes == 0 && columns_[head].width == 0;
  };
  bool is_any = false;
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    if (heads_[i].has_classes() && columns_[i].width == 0) columns_[i].width = heads_[i].classes;
    is_any = is_any || is_asked(i);
  }
  if (!is_any) return;
  each_example(data, [&](const Example& example) {
    for (std::size_t i = 0; i < heads_.size(); ++i)
      if (is_asked(i)) found[i].insert(class_text(example, heads_[i].columns.front()));
  });
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    if (!is_asked(i)) continue;
    std::vector<std::string> classes = in_order_of_classes(found[i]);
    KEEL_CHECK(classes.size() >= 2, "model.heads: head '", heads_[i].name, "': the data has one class alone, '",
               printable(classes.front(), 64), "', and nothing is to be learnt");
    columns_[i].width = std::ssize(classes);
    numbers_[i] = numbered(classes);
    columns_[i].classes = std::move(classes);
  }
}

void SupervisedColumns::find_scales(const Dataset& trained, bool of_inputs) {
  const bool of_heads = std::ranges::any_of(heads_, &SupervisedHead::is_scaled);
  if (!of_inputs && !of_heads) return;
  Moments inputs;
  std::vector<Moments> heads(heads_.size());
  each_example(trained, [&](const Example& example) {
    if (of_inputs) {
      const std::vector<double> row = numbers_of(example, inputs_);
      KEEL_CHECK(std::ssize(row) == width_, "the first example has ", width_, " inputs, and another one ", row.size());
      inputs.add(row);
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      if (!heads_[i].is_scaled) continue;
      const std::vector<double> row = numbers_of(example, heads_[i].columns);
      KEEL_CHECK(std::ssize(row) == columns_[i].width, "the first example has ", columns_[i].width,
                 " numbers for the head '", heads_[i].name, "', and another one ", row.size());
      heads[i].add(row);
    }
  });
  if (of_inputs) scale_ = inputs.scale();
  for (std::size_t i = 0; i < heads_.size(); ++i)
    if (heads_[i].is_scaled) columns_[i].scale = heads[i].scale();
}

SupervisedColumns::SupervisedColumns(std::string_view json, const std::vector<SupervisedHead>& heads)
    : heads_(expanded(heads)) {
  const Json all = Json::parse(json);
  inputs_ = texts_of(all.at("inputs"));
  width_ = all.at("width").integer();
  scale_ = scale_of(all.at("scale"));
  const auto has_room = [](const ColumnScale& scale, std::int64_t width) {
    return std::ssize(scale.mean) == std::ssize(scale.deviation) &&
           (!scale.is_set() || std::ssize(scale.mean) == width);
  };
  KEEL_CHECK(width_ > 0 && has_room(scale_, width_), "the scale of the inputs is not one of ", width_, " numbers");
  std::vector<std::string> names;
  for (const Json& json_head : all.at("heads").items()) {
    names.push_back(json_head.at("name").string());
    const HeadColumns& head = columns_.emplace_back(HeadColumns{
        json_head.at("width").integer(), scale_of(json_head.at("scale")), texts_of(json_head.at("classes"))});
    KEEL_CHECK(head.width > 0 && has_room(head.scale, head.width) &&
                   (head.classes.empty() || std::ssize(head.classes) == head.width),
               "scale or classes of the head '", printable(names.back(), 64), "' are not of its width ", head.width);
    numbers_.push_back(numbered(head.classes));
  }
  KEEL_CHECK(std::ranges::equal(names, heads_, {}, {}, &SupervisedHead::name), "has other heads than model.heads");
}

std::string SupervisedColumns::json() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < heads_.size(); ++i)
    list.push_back({{"name", heads_[i].name},
                    {"width", columns_[i].width},
                    {"scale", json_of(columns_[i].scale)},
                    {"classes", columns_[i].classes}});
  return Json{{"inputs", inputs_}, {"width", width_}, {"scale", json_of(scale_)}, {"heads", list}}.dump(1);
}

std::int64_t SupervisedColumns::class_of(const Example& example, std::size_t head) const {
  const std::vector<std::string>& names = heads_[head].columns;
  const std::int64_t classes = columns_[head].width;
  if (names.size() == 1 && (std::holds_alternative<double>(example[names.front()]) ||
                            std::holds_alternative<std::int64_t>(example[names.front()]) ||
                            text_or_json(example[names.front()]) != nullptr)) {
    const std::string text = class_text(example, names.front());
    if (!numbers_[head].empty()) {
      const auto found = numbers_[head].find(text);
      KEEL_CHECK(found != numbers_[head].end(), "'", printable(text, 64), "' is none of the ", classes,
                 " classes that the head '", heads_[head].name,
                 "' learns from data.path; add such examples there, or remove this one");
      return found->second;
    }
    const std::optional<std::int64_t> number = whole_of(text);
    KEEL_CHECK(number && *number >= 0 && *number < classes, "the field '", printable(names.front(), 64), "' is ",
               printable(text, 64), "; classes of the head '", heads_[head].name, "' are the numbers from 0 to ",
               classes - 1);
    return *number;
  }
  const std::vector<double> shares = numbers_of(example, names);
  const auto one = std::ranges::find(shares, 1.0);
  const bool is_one_hot =
      std::ssize(shares) == classes && one != shares.end() && std::ranges::count(shares, 0.0) == classes - 1;
  KEEL_CHECK(is_one_hot, "the head '", heads_[head].name, "' expects ", classes,
             " numbers of which one is 1 and the others 0");
  return one - shares.begin();
}

Example SupervisedColumns::prepared(const Example& example, bool has_targets) const {
  const auto numbers = [&](const std::vector<std::string>& names, const ColumnScale& scale, std::int64_t width,
                           std::string_view what) {
    const std::vector<double> row = numbers_of(example, names);
    KEEL_CHECK(std::ssize(row) == width, what, " are ", row.size(), " numbers, and the first example had ", width);
    Numbers made = {{width}, {}};
    made.values.reserve(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      made.values.push_back(static_cast<float>(scale.scaled(row[i], i)));
      KEEL_CHECK(std::isfinite(made.values.back()), what, ": ", row[i], " is beyond the numbers of fp32");
    }
    return made;
  };
  Example made;
  made.set(std::string(kInputs), numbers(inputs_, scale_, width_, "inputs"));
  for (std::size_t i = 0; has_targets && i < heads_.size(); ++i) {
    if (heads_[i].has_classes()) made.set(heads_[i].name, class_of(example, i));
    else made.set(heads_[i].name, numbers(heads_[i].columns, columns_[i].scale, columns_[i].width, heads_[i].name));
  }
  return made;
}

void read_all(const Dataset& data) {
  each_example(data, [](const Example&) {});
}

DatasetPtr prepared(const DatasetPtr& data, std::shared_ptr<const SupervisedColumns> columns, const std::string& path,
                    bool has_targets) {
  return std::make_shared<Prepared>(data, std::move(columns), path, has_targets);
}

}  // namespace keel
