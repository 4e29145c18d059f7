#include "keel/tasks/loss.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "keel/autograd/elementwise.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/xxh3.h"
#include "keel/tasks/names.h"

namespace keel {
namespace {

// What the message calls a term.
std::string named(const std::string& name) { return name.empty() ? "the loss" : concat("term '", name, "'"); }

// With as many digits as tell the number from all others.
std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

void check_name(std::string_view what, const std::string& name) {
  KEEL_CHECK(is_name(name), "'", printable(name, 64), "' is no name of a ", what,
             ": letters, digits and _ are possible");
  KEEL_CHECK(!is_record_name(name), "a ", what, " is called '", name,
             "', which is keel's own name in records; choose another one");
}

void check_one_number(const std::string& what, const Tensor& value) {
  KEEL_CHECK(value.defined() && value.numel() == 1 && is_floating(value.dtype()), what,
             " must be one floating number, ",
             value.defined() ? concat("not ", value.dtype(), ' ', value.shape()) : std::string("and has no tensor"));
}

}  // namespace

Loss::Loss(Variable mean, std::string weight) {
  append({.name = {}, .value = std::move(mean), .weight = std::move(weight)});
}

Loss::Loss(const CrossEntropyLoss& mean, std::string weight) {
  append({.name = {}, .value = mean.loss, .weight = std::move(weight), .counted = mean.count});
}

Loss& Loss::add(std::string name, Variable mean, std::string weight, double factor) {
  return append_named(
      {.name = std::move(name), .value = std::move(mean), .weight = std::move(weight), .factor = factor});
}

Loss& Loss::add(std::string name, const CrossEntropyLoss& mean, std::string weight, double factor) {
  return append_named({.name = std::move(name),
                       .value = mean.loss,
                       .weight = std::move(weight),
                       .factor = factor,
                       .counted = mean.count});
}

Loss& Loss::add_sum(std::string name, Variable sum, std::string weight, double factor) {
  return append_named({.name = std::move(name),
                       .value = std::move(sum),
                       .weight = std::move(weight),
                       .factor = factor,
                       .is_sum = true});
}

Loss& Loss::add_regularizer(std::string name, Variable mean, double factor) {
  return add(std::move(name), std::move(mean), std::string(kRowWeight), factor);
}

Loss& Loss::across_rows() {
  KEEL_CHECK(!terms_.empty(), "across_rows() is about the term that was added last, and there is none");
  terms_.back().crosses_rows = true;
  return *this;
}

Loss& Loss::log(std::string name, Tensor mean, std::string weight) {
  check_new(name, "value");
  check_one_number(concat("value '", name, "'"), mean);
  logged_.push_back({std::move(name), std::move(mean), std::move(weight)});
  return *this;
}

Loss& Loss::append_named(LossTerm term) {
  check_new(term.name, "term");
  KEEL_CHECK(terms_.empty() || !terms_.front().name.empty(),
             "the loss has a term without a name, which is all of it; begin with an empty Loss to add several");
  return append(std::move(term));
}

Loss& Loss::append(LossTerm term) {
  const std::string name = named(term.name);
  KEEL_CHECK(term.value.defined(), name, " has no tensor");
  check_one_number(name, term.value.value());
  KEEL_CHECK(grad_mode() == GradMode::off || term.value.requires_grad(), name,
             " does not depend on any trained parameter");
  KEEL_CHECK(std::isfinite(term.factor), name, " has the factor ", term.factor, "; it must be finite");
  KEEL_CHECK(!term.weight.empty(), name, " names no weight that it is a mean over");
  if (size_of(term.value.dtype()) == 2) term.value = cast(term.value, DType::f32);
  terms_.push_back(std::move(term));
  return *this;
}

void Loss::check_new(const std::string& name, std::string_view what) const {
  check_name(what, name);
  const auto has_name = [&](const auto& each) { return each.name == name; };
  KEEL_CHECK(std::ranges::none_of(terms_, has_name) && std::ranges::none_of(logged_, has_name), "the loss has '", name,
             "' already");
}

std::string Loss::description() const {
  std::string text;
  for (const LossTerm& term : terms_)
    text += concat(named(term.name), ", a ", term.is_sum ? "sum" : "mean", " over ", term.weight,
                   term.crosses_rows ? ", across rows" : "", ", times ", shortest(term.factor), '\n');
  for (const Logged& value : logged_) text += concat("'", value.name, "', logged as a mean over ", value.weight, '\n');
  return text;
}

std::uint64_t Loss::signature() const {
  const std::string text = description();
  return xxh3(std::as_bytes(std::span(text))).low;
}

double LossTerm::factor_of(double own_weight, double total, double divisor) const {
  if (own_weight == 0 || total == 0) return 0;
  const double share = divisor / total;
  return is_sum ? factor * share : factor * own_weight * share;
}

}  // namespace keel
