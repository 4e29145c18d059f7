#include "keel/trainer/curve_file.h"

#include "keel/runtime/error.h"
#include "keel/runtime/json.h"

namespace keel {
namespace {

constexpr const char* kKind = "keel loss curves";
constexpr std::int64_t kVersion = 1;

// A column of the points.
template <class F>
Json column(const std::vector<LossPoint>& points, const F& value_of) {
  Json values = Json::array();
  for (const LossPoint& point : points) values.push_back(value_of(point));
  return values;
}

Json curve_json(const LossCurve& curve) {
  const auto of = [&](const auto& value_of) { return column(curve.points, value_of); };
  return {{"variant", curve.variant},
          {"seed", curve.seed},
          {"step", of([](const LossPoint& point) { return Json(point.step); })},
          {"loss", of([](const LossPoint& point) { return Json(point.loss); })},
          {"bytes", of([](const LossPoint& point) { return Json(point.bytes); })},
          {"seconds", of([](const LossPoint& point) { return Json(point.seconds); })},
          {"validation_loss", of([](const LossPoint& point) {
             return point.validation_loss ? Json(*point.validation_loss) : Json(nullptr);
           })},
          {"skipped", curve.skipped.count},
          {"skipped_by_all", curve.skipped.by_all},
          {"none_taken", curve.skipped.none_taken}};
}

LossCurve read_curve(const Json& json) {
  LossCurve curve{.variant = json.at("variant").string(),
                  .seed = static_cast<std::uint64_t>(json.at("seed").integer())};
  const std::size_t count = json.at("step").items().size();
  for (const char* name : {"loss", "bytes", "seconds", "validation_loss"})
    KEEL_CHECK(json.at(name).items().size() == count, "a curve of ", curve.variant, " has ", count, " steps and ",
               json.at(name).items().size(), " values of ", name);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](const char* name) -> const Json& { return json.at(name).items()[i]; };
    LossPoint point{.step = value("step").integer(),
                    .loss = value("loss").number(),
                    .bytes = value("bytes").integer(),
                    .seconds = value("seconds").number()};
    if (!value("validation_loss").is_null()) point.validation_loss = value("validation_loss").number();
    curve.points.push_back(point);
  }
  if (json.find("skipped") != nullptr)  // files of before have none
    curve.skipped = {json.at("skipped").integer(), json.at("skipped_by_all").boolean(), json.at("none_taken").string()};
  return curve;
}

Link read_link(const Json& json, std::string_view prefix) {
  return {.delay = std::chrono::microseconds(json.at(concat(prefix, "delay_us")).integer()),
          .bandwidth = json.at(concat(prefix, "bandwidth")).number()};
}

}  // namespace

std::string to_json(const CurveFile& file) {
  Json curves = Json::array();
  for (const LossCurve& curve : file.curves) curves.push_back(curve_json(curve));
  const Json json = {{"kind", kKind},
                     {"version", kVersion},
                     {"ranks", file.ranks},
                     {"delay_us", std::int64_t{file.network.link.delay.count()}},
                     {"bandwidth", file.network.link.bandwidth},
                     {"group", file.network.group},
                     {"outer_delay_us", std::int64_t{file.network.outer.delay.count()}},
                     {"outer_bandwidth", file.network.outer.bandwidth},
                     {"curves", std::move(curves)}};
  return json.dump() + '\n';
}

CurveFile parse_curve_file(std::string_view text) {
  const Json json = Json::parse(text);
  const Json* const kind = json.find("kind");
  KEEL_CHECK(kind != nullptr && kind->is_string() && kind->string() == kKind, "this is no file of loss curves");
  const std::int64_t version = json.at("version").integer();
  KEEL_CHECK(version == kVersion, "this file of loss curves has version ", version, ", and not ", kVersion);
  CurveFile file{.ranks = static_cast<int>(json.at("ranks").integer()), .network = {.link = read_link(json, "")}};
  if (json.find("group") != nullptr) {
    file.network.group = static_cast<int>(json.at("group").integer());
    file.network.outer = read_link(json, "outer_");
  }
  for (const Json& curve : json.at("curves").items()) file.curves.push_back(read_curve(curve));
  return file;
}

}  // namespace keel
