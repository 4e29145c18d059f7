// Rows of keys that are options of the engine, made from its tables.

#include <cmath>
#include <type_traits>
#include <variant>

#include "keel/config/values.h"
#include "keel/dist/parallel/engine_keys.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

constexpr std::string_view kAutomatic = "auto";
constexpr std::string_view kNone = "none";  // an empty text

// Where a configuration keeps an option: in the struct that the engine gets whole, or in a member of its own.
template <class T>
T& kept_at(Config& config, T ShardingOptions::*member) {
  return config.sharding.*member;
}
template <class T>
T& kept_at(Config& config, T Compression::*member) {
  return config.gradient_compression.*member;
}
template <class T>
T& kept_at(Config& config, T LossScaling::*member) {
  return config.loss_scale.*member;
}
template <class T>
T& kept_at(Config& config, T ShardedOptions::*member) {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (member == &ShardedOptions::seed) return config.seed;
  } else if constexpr (std::is_same_v<T, double>) {
    if (member == &ShardedOptions::clip) return config.clip;
    if (member == &ShardedOptions::loss_scale) return config.loss_scale.initial;
  } else if constexpr (std::is_same_v<T, ClipBy>) {
    if (member == &ShardedOptions::clip_by) return config.clip_by;
  } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
    if (member == &ShardedOptions::wire) return config.sharding.wire;
  }
  throw Error("an option of the engine has no place in configurations", ErrorKind::internal);
}
template <class T, class Options>
const T& kept_at(const Config& config, T Options::*member) {
  return kept_at(const_cast<Config&>(config), member);  // which is only read
}

template <class T>
const std::string& choices_of() {
  static const std::string choices = [] {
    std::string text;
    for (const std::string_view name : names_of(T{})) text += concat(text.empty() ? "" : "|", name);
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

template <class Options>
class OptionField : public KeyField {
  // f(a value of the member's type)
  template <class F>
  auto visit(const F& f) const {
    return std::visit([&]<class T>(T Options::*) { return f(T{}); }, key_.member);
  }

 public:
  explicit OptionField(const OptionKey<Options>& key) : key_(key) {}

  std::string values(const SchemaRow& row) const override {
    return visit([&]<class T>(T value) {
             if constexpr (has_names<T>) return listed(choices_of<T>());
             else return key_.unit == 1 ? words_for(value, row.range) : words_for(double{}, row.range);
           }) +
           (key_.automatic ? concat(", or ", kAutomatic) : "");
  }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    std::visit([&](auto member) { read(row, node, kept_at(config_of(settings), member)); }, key_.member);
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return std::visit([&](auto member) { return text_of(kept_at(config_of(settings), member)); }, key_.member);
  }
  std::string_view choices() const override {
    return visit([]<class T>(T) -> std::string_view {
      if constexpr (has_names<T>) return choices_of<T>();
      else return {};
    });
  }

  // Of the struct's own value.
  std::string standard_text() const {
    if (!key_.standard.empty()) return std::string(key_.standard);
    return std::visit([&](auto member) { return text_of(Options{}.*member); }, key_.member);
  }

 private:
  template <class T>
  std::string text_of(const T& value) const {
    if constexpr (has_names<T>) {
      return std::string(names_of(value)[name_index(value)]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return value.empty() ? std::string(kNone) : yaml_of(value);
    } else {
      if constexpr (std::is_integral_v<T>)
        if (key_.automatic && static_cast<std::int64_t>(value) == *key_.automatic) return std::string(kAutomatic);
      return key_.unit == 1 ? yaml_of(value) : in_units(static_cast<std::int64_t>(value), key_.unit);
    }
  }
  template <class T>
  void read(const SchemaRow& row, const YamlNode& node, T& value) const {
    if constexpr (has_names<T>) {
      set_by_index(value, static_cast<std::size_t>(read_choice(row, node, choices_of<T>(), other_words_of(T{}))));
    } else if constexpr (std::is_same_v<T, std::string>) {
      read_value(row, node, value);
      if (value == kNone) value.clear();
    } else if (key_.automatic && node.kind == YamlNode::Kind::scalar && node.text == kAutomatic) {
      value = static_cast<T>(*key_.automatic);
    } else if (key_.unit == 1) {
      read_value(row, node, value);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      double units = 0;
      read_value(row, node, units);
      value = std::llround(units * static_cast<double>(key_.unit));
    }
  }

  const OptionKey<Options>& key_;
};

template <class Options>
SchemaRow row_of(std::string_view section, const OptionKey<Options>& key) {
  const auto field = std::make_shared<OptionField<Options>>(key);
  return {.key = kept(concat(section, key.key)),
          .field = field,
          .standard = kept(field->standard_text()),
          .range = {.low = key.low, .high = key.high, .low_open = key.low_open},
          .when = {key.when.key, key.when.values},
          .help = key.help,
          .known_as = key.known_as,
          .on_resume = key.same_numbers ? OnResume::ignores : OnResume::warns};
}

}  // namespace

std::vector<SchemaRow> engine_rows(std::string_view wanted) {
  std::vector<SchemaRow> rows;
  visit_options({}, [&](std::string_view section, const auto& keys, const auto&) {
    for (const auto& key : keys)
      if (section.empty() ? key.key == wanted : section == wanted) rows.push_back(row_of(section, key));
  });
  KEEL_CHECK(!rows.empty(), "the engine has no options '", wanted, "'");
  return rows;
}

void take_engine_options(const Config& config, ShardedOptions& options) {
  options.sharding = config.sharding;
  options.compression = config.gradient_compression;
  options.scaling = config.loss_scale;
  for (const OptionKey<ShardedOptions>& key : engine_keys())
    std::visit([&](auto member) { options.*member = kept_at(config, member); }, key.member);
}

}  // namespace keel
