#include "keel/trainer/logged.h"

#include <cmath>

#include "keel/runtime/error.h"

namespace keel {

std::string_view name_of_nonfinite(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

void add_values(Json& record, std::span<const Logged> values) {
  Json nonfinite = Json::object();
  for (const Logged& each : values) {
    KEEL_CHECK(!record.contains(each.name) && each.name != "nonfinite", "metric '", each.name,
               "' is given twice, or is reserved");
    const double* number = std::get_if<double>(&each.value);
    if (number != nullptr && !std::isfinite(*number)) {
      record[each.name] = nullptr;
      nonfinite[each.name] = name_of_nonfinite(*number);
    } else {
      std::visit([&](const auto& value) { record[each.name] = value; }, each.value);
    }
  }
  if (!nonfinite.members().empty()) record["nonfinite"] = nonfinite;
}

}  // namespace keel
