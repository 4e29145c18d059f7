#include "keel/dist/lab/report.h"

#include <fmt/format.h>

#include <cstdlib>

#include "keel/runtime/file.h"
#include "keel/runtime/json.h"

namespace keel::lab {
namespace {

constexpr std::string_view kFormat = "keel comm";

template <class T>
void write_fields(Json& to, std::span<const Field<T>> fields, const T& from) {
  for (const Field<T>& field : fields)
    std::visit(
        [&](auto place) {
          const auto& value = from.*place;
          if constexpr (requires { value.has_value(); }) to[field.name] = value ? Json(*value) : Json();
          else to[field.name] = value;
        },
        field.place);
}

Json write_texts(const Texts& texts) {
  Json object = Json::object();
  for (const auto& [name, text] : texts) object[name] = text;
  return object;
}

Json write_record(const Record& record) {
  Json object;
  write_fields(object, record_fields(), record);
  for (const Variant& variant : variants()) {
    const std::optional<Timing>& timing = record.*variant.place;
    Json& place = object[variant.name];
    if (timing) write_fields(place, timing_fields(), *timing);
  }
  return object;
}

// Reads values, and says where in the file one is not what it must be.
class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}
  // Of the file: what later versions have is not asked for.
  void set_version(int version) { version_ = version; }

  [[noreturn]] void refuse(const std::string& where, std::string_view what) const {
    throw Error(concat(source_, ": ", where, ' ', what));
  }
  const Json& member(const Json& object, std::string_view name, const std::string& where) const {
    const Json* const found = object.find(name);
    if (found == nullptr) refuse(concat(where, where.empty() ? "" : ".", name), "is missing");
    return *found;
  }
  const Json& object(const Json& value, const std::string& where) const {
    if (!value.is_object()) refuse(where, "must be an object");
    return value;
  }
  const Json::Array& array(const Json& in, std::string_view name) const {
    const Json& value = member(in, name, "");
    if (!value.is_array()) refuse(std::string(name), "must be a list");
    return value.items();
  }
  std::string text(const Json& value, const std::string& where) const {
    if (!value.is_string()) refuse(where, "must be a text");
    return value.string();
  }
  Texts texts(const Json& in, std::string_view name) const {
    Texts found;
    for (const auto& [key, value] : object(member(in, name, ""), std::string(name)).members())
      found.emplace_back(key, text(value, concat(name, '.', key)));
    return found;
  }

  template <class T>
  void fields(const Json& from, std::span<const Field<T>> all, T& to, const std::string& where) const {
    for (const Field<T>& field : all) {
      if (field.since > version_) continue;
      const std::string at = concat(where, '.', field.name);
      const Json& value = member(from, field.name, where);
      std::visit([&](auto place) { to.*place = read(value, to.*place, at); }, field.place);
    }
  }
  Record record(const Json& value, const std::string& where) const {
    Record record;
    fields(object(value, where), record_fields(), record, where);
    if (record.ranks < 1 || record.bytes < 0 || record.count < 0 || record.at_once < 1)
      refuse(where, "counts what cannot be");
    for (const Variant& variant : variants()) {
      const std::string at = concat(where, '.', variant.name);
      const Json& timing = member(value, variant.name, where);
      if (timing.is_null()) continue;
      fields(object(timing, at), timing_fields(), (record.*variant.place).emplace(), at);
    }
    return record;
  }

 private:
  std::string read(const Json& value, const std::string&, const std::string& at) const { return text(value, at); }
  double read(const Json& value, double, const std::string& at) const {
    if (!value.is_number()) refuse(at, "must be a number");
    return value.number();
  }
  std::int64_t read(const Json& value, std::int64_t, const std::string& at) const {
    if (!value.is_integer()) refuse(at, "must be a whole number");
    return value.integer();
  }
  template <class Value>
  std::optional<Value> read(const Json& value, const std::optional<Value>&, const std::string& at) const {
    if (value.is_null()) return {};
    return read(value, Value{}, at);
  }

  std::string_view source_;
  int version_ = Report::kVersion;
};

template <class T>
std::string column_names(std::span<const Field<T>> fields, std::string_view prefix) {
  std::string names;
  for (const Field<T>& field : fields) names += fmt::format("{}{}{}", names.empty() ? "" : ",", prefix, field.name);
  return names;
}

// "" where there is nothing.
template <class T>
std::string cells(std::span<const Field<T>> fields, const T* from) {
  std::string line;
  for (const Field<T>& field : fields) {
    if (&field != &fields.front()) line += ',';
    if (from == nullptr) continue;
    std::visit(
        [&](auto place) {
          const auto& value = from->*place;
          if constexpr (requires { value.has_value(); }) line += value ? fmt::format("{}", *value) : "";
          else line += fmt::format("{}", value);
        },
        field.place);
  }
  return line;
}

}  // namespace

std::span<const std::string_view> allowed_variables() {
  static constexpr std::string_view kNames[] = {
      "CUDA_VISIBLE_DEVICES",
      "FI_PROVIDER",
      "I_MPI_FABRICS",
      "KEEL_EMULATED_DEVICES",
      "KEEL_TIMEOUT",
      "MPICH_GPU_SUPPORT_ENABLED",
      "NCCL_ALGO",
      "NCCL_IB_DISABLE",
      "NCCL_NET",
      "NCCL_P2P_DISABLE",
      "NCCL_PROTO",
      "NCCL_SHM_DISABLE",
      "NCCL_SOCKET_IFNAME",
      "OMPI_MCA_btl",
      "OMPI_MCA_btl_vader_single_copy_mechanism",
      "OMPI_MCA_coll",
      "OMPI_MCA_hwloc_base_binding_policy",
      "OMPI_MCA_mpi_yield_when_idle",
      "OMPI_MCA_pml",
      "OMP_NUM_THREADS",
      "SLURM_JOB_NUM_NODES",
      "UCX_NET_DEVICES",
      "UCX_TLS",
  };
  return kNames;
}

Texts read_environment() {
  Texts found;
  for (const std::string_view name : allowed_variables())
    if (const char* value = std::getenv(std::string(name).c_str())) found.emplace_back(name, value);
  return found;
}

std::string to_json(const Report& report) {
  Json all;
  all["format"] = kFormat;
  all["version"] = Report::kVersion;
  all["started"] = report.started;
  all["complete"] = report.complete;
  all["software"] = write_texts(report.software);
  all["machine"] = write_texts(report.machine);
  all["options"] = write_texts(report.options);
  all["environment"] = write_texts(report.environment);
  all["nodes"] = report.nodes;
  all["skipped"] = report.skipped;
  all["records"] = Json::array();
  for (const Record& record : report.records) all["records"].push_back(write_record(record));
  return all.dump(1, BadUtf8::replace) + '\n';
}

Report parse_report(std::string_view text, std::string_view source) {
  Reader reader(source);
  Json all;
  try {
    all = Json::parse(text);
  } catch (const JsonError& error) { throw Error(concat(source, " is not whole, or no JSON: "), error); }
  const Json* const format = all.find("format");
  if (format == nullptr || !format->is_string() || format->string() != kFormat)
    throw Error(concat(source, " was not written by `keel comm --json`"));
  const Json& version = reader.member(all, "version", "");
  if (!version.is_integer() || version.integer() < 1) reader.refuse("version", "must be a number from 1 on");
  if (version.integer() > Report::kVersion)
    throw Error(concat(source, " has version ", version.integer(), ", and this keel reads version ", Report::kVersion,
                       ": a newer keel wrote it"));
  reader.set_version(static_cast<int>(version.integer()));
  Report report;
  report.started = reader.text(reader.member(all, "started", ""), "started");
  const Json& complete = reader.member(all, "complete", "");
  if (!complete.is_boolean()) reader.refuse("complete", "must be true or false");
  report.complete = complete.boolean();
  report.software = reader.texts(all, "software");
  report.machine = reader.texts(all, "machine");
  report.options = reader.texts(all, "options");
  report.environment = reader.texts(all, "environment");
  for (const Json& node : reader.array(all, "nodes")) {
    if (!node.is_integer()) reader.refuse("nodes", "must be whole numbers");
    report.nodes.push_back(static_cast<int>(node.integer()));
  }
  for (const Json& line : reader.array(all, "skipped")) report.skipped.push_back(reader.text(line, "skipped"));
  for (const Json& record : reader.array(all, "records"))
    report.records.push_back(reader.record(record, concat("records[", report.records.size(), ']')));
  return report;
}

Report load_report(const std::string& path) { return parse_report(read_text(path), path); }

std::string to_csv(const Report& report) {
  std::string text = column_names(record_fields(), "");
  for (const Variant& variant : variants()) text += ',' + column_names(timing_fields(), variant.prefix);
  text += '\n';
  for (const Record& record : report.records) {
    text += cells(record_fields(), &record);
    for (const Variant& variant : variants()) {
      const std::optional<Timing>& timing = record.*variant.place;
      text += ',' + cells(timing_fields(), timing ? &*timing : nullptr);
    }
    text += '\n';
  }
  return text;
}

}  // namespace keel::lab
