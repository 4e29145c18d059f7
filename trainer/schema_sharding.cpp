// Rows of the section `sharding` that are options of the engine, made from its table.

#include <cmath>
#include <type_traits>
#include <variant>

#include "keel/config/values.h"
#include "keel/dist/parallel/sharding_keys.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

template <class Enum>
const std::string& choices_of() {
  static const std::string choices = [] {
    std::string text;
    for (const std::string_view name : names_of(Enum{})) text += concat(text.empty() ? "" : "|", name);
    return text;
  }();
  return choices;
}

// The shortest number that the row reads as so many units.
std::string in_units(std::int64_t count, std::int64_t unit) {
  const double exact = static_cast<double>(count) / static_cast<double>(unit);
  for (int digits = 1; digits < 17; ++digits) {
    const double scale = std::pow(10.0, digits), rounded = std::round(exact * scale) / scale;
    if (std::llround(rounded * static_cast<double>(unit)) == count) return yaml_of(rounded);
  }
  return yaml_of(exact);
}

class ShardingField : public KeyField {
  // f(a value of the member's type)
  template <class F>
  auto visit(const F& f) const {
    return std::visit([&](auto member) { return f(ShardingOptions{}.*member); }, key_.member);
  }

 public:
  explicit ShardingField(const ShardingKey& key) : key_(key) {}

  std::string values(const SchemaRow& row) const override {
    return visit([&](auto value) {
      if constexpr (std::is_enum_v<decltype(value)>) return listed(choices_of<decltype(value)>());
      else return key_.unit == 1 ? words_for(value, row.range) : words_for(double{}, row.range);
    });
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    std::visit([&](auto member) { read(row, node, config_of(settings).sharding.*member); }, key_.member);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return text_of(config_of(settings).sharding);
  }
  std::string_view choices() const override {
    return visit([](auto value) -> std::string_view {
      if constexpr (std::is_enum_v<decltype(value)>) return choices_of<decltype(value)>();
      else return {};
    });
  }

  std::string text_of(const ShardingOptions& options) const {
    return std::visit(
        [&](auto member) {
          const auto value = options.*member;
          if constexpr (std::is_enum_v<decltype(value)>) return std::string(name_of(value));
          else if constexpr (std::is_same_v<decltype(value), const std::string>) return yaml_of(value);
          else return key_.unit == 1 ? yaml_of(value) : in_units(static_cast<std::int64_t>(value), key_.unit);
        },
        key_.member);
  }

 private:
  template <class T>
  void read(const SchemaRow& row, const YamlNode& node, T& value) const {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(read_choice(row, node, choices_of<T>(), other_words_of(T{})));
    } else if (key_.unit == 1) {
      read_value(row, node, value);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      double units = 0;
      read_value(row, node, units);
      value = std::llround(units * static_cast<double>(key_.unit));
    }
  }

  const ShardingKey& key_;
};

}  // namespace

std::vector<SchemaRow> sharding_rows() {
  std::vector<SchemaRow> rows;
  for (const ShardingKey& key : sharding_keys()) {
    const auto field = std::make_shared<ShardingField>(key);
    rows.push_back({.key = kept(concat("sharding.", key.key)),
                    .field = field,
                    .standard = kept(field->text_of({})),
                    .range = {.low = key.low, .high = key.high, .low_open = key.low_open},
                    .when = {},
                    .help = key.help,
                    .known_as = key.known_as,
                    .on_resume = key.same_numbers ? OnResume::ignores : OnResume::warns});
  }
  return rows;
}

}  // namespace keel
