#include "keel/nn/layer_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "keel/autograd/checkpoint.h"
#include "keel/autograd/functions.h"

namespace keel {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 30;
constexpr std::string_view kBlanks = " \t\r";

struct Word {
  std::string_view text;
  std::size_t at = 0;  // its first character, counted from 1
};

[[noreturn]] void complain(std::size_t at, const std::string& what) {
  throw Error(concat("the model's text, character ", at, ": ", what));
}

// The words of each item that has some.
std::vector<std::vector<Word>> items_of(std::string_view text) {
  std::vector<std::vector<Word>> items(1);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ';' || text[i] == '\n') {
      items.emplace_back();
      ++i;
    } else if (kBlanks.find(text[i]) != std::string_view::npos) {
      ++i;
    } else {
      const std::size_t end = std::min(text.find_first_of(" \t\r;\n", i), text.size());
      items.back().push_back({text.substr(i, end - i), i + 1});
      i = end;
    }
  }
  std::erase_if(items, [](const auto& words) { return words.empty(); });
  return items;
}

std::optional<ActivationKind> activation_of(std::string_view name) {
  try {
    return parse_activation(name);
  } catch (const Error&) { return std::nullopt; }
}

std::int64_t whole_number(const Word& word) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(word.text.data(), word.text.data() + word.text.size(), value);
  if (failure != std::errc() || end != word.text.data() + word.text.size() || value < 1 || value > kLargest)
    complain(word.at, concat("'", word.text, "' is no whole number in [1, ", kLargest, "]"));
  return value;
}

double probability(const Word& word) {
  double value = 0;
  const auto [end, failure] = std::from_chars(word.text.data(), word.text.data() + word.text.size(), value);
  if (failure != std::errc() || end != word.text.data() + word.text.size() || !(value >= 0 && value < 1))
    complain(word.at, concat("'", word.text, "' is no probability in [0, 1)"));
  return value;
}

std::string name_in(const Word& word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (!std::all_of(word.text.begin(), word.text.end(), is_plain) || (word.text[0] >= '0' && word.text[0] <= '9'))
    complain(word.at, concat("'", word.text, "' is no name; names are letters, digits and _, and begin with no digit"));
  return std::string(word.text);
}

// A linear layer and, if it has one, its activation.
class Dense : public Linear {
 public:
  Dense(std::int64_t in, std::int64_t out, std::optional<ActivationKind> activation) : Linear(in, out) {
    if (activation) activation_.emplace(*activation);
  }
  Variable forward(const Variable& x, Forward& pass) const override {
    const Variable h = Linear::forward(x, pass);
    return activation_ ? (*activation_)(h, pass) : h;
  }

 private:
  std::optional<Activation> activation_;
};

// What has been read so far.
struct Reading {
  std::vector<TextModel::Input> inputs;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<TextModel::Output> outputs;
  std::int64_t width = 0;  // that the next layer gets

  template <class L, class... A>
  void add(A&&... arguments) {
    layers.push_back(std::make_unique<L>(std::forward<A>(arguments)...));
  }
  template <class Ports>
  static std::string new_name(const Ports& ports, const Word& word) {
    std::string name = name_in(word);
    if (std::ranges::any_of(ports, [&](const auto& port) { return port.name == name; }))
      complain(word.at, concat("there are two of the name '", name, "'"));
    return name;
  }
  void add_input(const Word& name, std::int64_t its_width, std::unique_ptr<Embedding> table) {
    inputs.push_back({new_name(inputs, name), its_width, std::move(table)});
    width += its_width;
  }
};

enum class Part : unsigned char { input, layer, output };

struct ItemRow {
  std::string_view word, usage;
  Part part;
  std::size_t least, most;  // words behind the first
  void (*read)(Reading& reading, std::span<const Word> words);
};
using Words = std::span<const Word>;
constexpr std::array<ItemRow, 7> kItems = {{
    {"input", "input NAME WIDTH", Part::input, 2, 2,
     [](Reading& r, Words w) { r.add_input(w[0], whole_number(w[1]), nullptr); }},
    {"embedding", "embedding NAME CLASSES WIDTH", Part::input, 3, 3,
     [](Reading& r, Words w) {
       const std::int64_t width = whole_number(w[2]);
       r.add_input(w[0], width, std::make_unique<Embedding>(whole_number(w[1]), width));
     }},
    {"dense", "dense WIDTH [ACTIVATION]", Part::layer, 1, 2,
     [](Reading& r, Words w) {
       const std::int64_t width = whole_number(w[0]);
       std::optional<ActivationKind> activation;
       try {
         if (w.size() > 1) activation = parse_activation(w[1].text);
       } catch (const Error& error) { complain(w[1].at, error.what()); }
       r.add<Dense>(std::exchange(r.width, width), width, activation);
     }},
    {"layernorm", "layernorm", Part::layer, 0, 0, [](Reading& r, Words) { r.add<LayerNorm>(r.width); }},
    {"rmsnorm", "rmsnorm", Part::layer, 0, 0, [](Reading& r, Words) { r.add<RMSNorm>(r.width); }},
    {"dropout", "dropout PROBABILITY", Part::layer, 1, 1,
     [](Reading& r, Words w) { r.add<Dropout>(probability(w[0])); }},
    {"output", "output NAME WIDTH", Part::output, 2, 2,
     [](Reading& r, Words w) {
       const std::int64_t width = whole_number(w[1]);
       r.outputs.push_back({Reading::new_name(r.outputs, w[0]), width, std::make_unique<Linear>(r.width, width)});
       r.outputs.back().layer->is_head = true;
     }},
}};

[[noreturn]] void complain_of_word(const Word& word) {
  std::string known;
  std::vector<std::string_view> words;
  for (const ItemRow& row : kItems) {
    known += concat(known.empty() ? "" : ", ", row.word);
    words.push_back(row.word);
  }
  if (const std::string meant = nearest(word.text, words); !meant.empty())
    complain(word.at, concat("'", word.text, "' is none of ", known, "; did you mean '", meant, "'?"));
  std::string activations;
  try {
    parse_activation(word.text);
  } catch (const Error& error) { activations = error.what(); }
  complain(word.at, concat("'", word.text, "' is none of ", known, ", and also: ", activations));
}

void read_item(Reading& reading, const std::vector<Word>& words, Part& part) {
  const Word& first = words.front();
  const auto row = std::ranges::find_if(kItems, [&](const ItemRow& each) { return each.word == first.text; });
  const auto activation = row == kItems.end() ? activation_of(first.text) : std::nullopt;
  if (row == kItems.end() && !activation) complain_of_word(first);
  const Part its = row == kItems.end() ? Part::layer : row->part;
  if (its < part)
    complain(first.at, concat("'", first.text, "' comes too late: inputs first, then layers, then outputs"));
  part = its;
  if (its != Part::input && reading.inputs.empty())
    complain(first.at, "there is no input; begin with `input NAME WIDTH`, or say how many inputs there are");
  const Words rest = std::span(words).subspan(1);
  const std::size_t most = row == kItems.end() ? 0 : row->most, least = row == kItems.end() ? 0 : row->least;
  if (rest.size() < least || rest.size() > most)
    complain(rest.size() > most ? rest[most].at : first.at,
             concat("expects `", row == kItems.end() ? first.text : row->usage, "`"));
  if (activation) reading.add<Activation>(*activation);
  else row->read(reading, rest);
}

}  // namespace

TextModel::TextModel(std::string_view text, std::int64_t inputs) {
  KEEL_CHECK(inputs >= 0 && inputs <= kLargest, "a width of ", inputs, " is not in [0, ", kLargest, "]");
  Reading reading;
  auto part = Part::input;
  if (inputs > 0) {
    reading.inputs.push_back({"input", inputs, nullptr});
    reading.width = inputs;
    part = Part::layer;
  }
  const auto items = items_of(text);
  if (items.empty()) complain(1, "there is nothing; `dense 32 tanh; dense 1` is a model");
  for (const std::vector<Word>& words : items) read_item(reading, words, part);
  if (reading.outputs.empty()) {
    reading.outputs.push_back({"output", reading.width, nullptr});
    if (auto* const last = reading.layers.empty() ? nullptr : dynamic_cast<Linear*>(reading.layers.back().get()))
      last->is_head = true;
  }
  inputs_ = std::move(reading.inputs);
  layers_ = std::move(reading.layers);
  outputs_ = std::move(reading.outputs);
}

Variable TextModel::run_layers(const Variable& input, Forward& pass) const {
  const auto run = [this, &pass](std::size_t begin, std::size_t end, Variable h) {
    for (std::size_t i = begin; i < end; ++i) h = (*layers_[i])(h, pass);
    return h;
  };
  if (!recompute) return run(0, layers_.size(), input);
  Variable h = input;
  for (std::size_t begin = 0, end = 0; begin < layers_.size(); begin = end) {
    for (end = begin + 1; end < layers_.size() && dynamic_cast<const Dense*>(layers_[end].get()) == nullptr;) ++end;
    h = checkpoint([run, begin, end](const Variable& in) { return run(begin, end, in); }, h, &pass.random);
  }
  return h;
}

std::vector<Variable> TextModel::operator()(std::span<const Tensor> inputs, Forward& pass) const {
  KEEL_CHECK(inputs.size() == inputs_.size(), "the model has ", inputs_.size(), " inputs, and got ", inputs.size());
  std::vector<Variable> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    parts.push_back(inputs_[i].table ? (*inputs_[i].table)(inputs[i]) : Variable(inputs[i]));
  Variable h = parts.size() == 1 ? parts.front() : concat(std::span<const Variable>(parts), -1);
  const std::int64_t samples = h.dim(0);
  h = view(h, {samples, 1, h.dim(-1)});  // as dropout draws: a sample's numbers are channels of one position
  h = run_layers(h, pass);
  std::vector<Variable> results;
  for (const Output& output : outputs_)
    results.push_back(view(output.layer ? (*output.layer)(h, pass) : h, {samples, output.width}));
  return results;
}

void TextModel::visit(Visitor& v) {
  for (const Input& input : inputs_)
    if (input.table) v(concat("inputs.", input.name), *input.table);
  v("layers", layers_);
  for (const Output& output : outputs_)
    if (output.layer) v(concat("outputs.", output.name), *output.layer);
}

}  // namespace keel
