#include "keel/capi/batch.h"

#include <algorithm>

#include "keel/capi/handles.h"

namespace keel::capi {
namespace {

std::vector<std::shared_ptr<Array>> in_order(const HostBatch::Named& given, const std::vector<Port>& ports,
                                             const char* what) {
  std::vector<std::shared_ptr<Array>> arrays(ports.size());
  std::size_t next = 0;
  for (const auto& [name, array] : given) {
    std::size_t at = next;
    if (name.empty()) {
      ++next;
    } else {
      at = static_cast<std::size_t>(
          std::ranges::find_if(ports, [&name = name](const Port& port) { return port.name == name; }) - ports.begin());
    }
    if (at == ports.size()) {
      std::string known;
      for (const Port& port : ports) known += concat(known.empty() ? "" : ", ", port.name);
      throw Error(name.empty() ? concat("the batch has ", given.size(), " ", what, "s, but the model has ", known)
                               : concat("the model has no ", what, " '", name, "'; it has ", known));
    }
    KEEL_CHECK(arrays[at] == nullptr, "the ", what, " '", ports[at].name, "' is given twice, by its name and in order");
    arrays[at] = array;
  }
  return arrays;
}

// One that was given by its name before makes place.
void put(HostBatch::Named& named, const char* name, std::shared_ptr<Array> array) {
  const std::string text = name == nullptr ? "" : name;
  const auto at = std::ranges::find_if(named, [&](const auto& each) { return !text.empty() && each.first == text; });
  if (at == named.end()) named.emplace_back(text, std::move(array));
  else at->second = std::move(array);
}

std::shared_ptr<Array> array_of(const HostBatch& batch, const keel_array* array) {
  auto object = object_of(array);
  KEEL_CHECK(object->site == batch.site, "the array belongs to another context than the batch");
  return object;
}

}  // namespace

Arrays HostBatch::arrays_for(const Network& network) const {
  return {in_order(inputs, network.inputs(), "input"), in_order(targets, network.outputs(), "target"), weights};
}

}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_batch_create(const keel_context* context, keel_batch** batch) {
  return call("keel_batch_create", [&] {
    create(batch, "batch", [&] { return std::make_shared<HostBatch>(HostBatch{object_of(context)}); });
  });
}

keel_status keel_batch_input(keel_batch* batch, const char* name, const keel_array* array) {
  return call("keel_batch_input", [&] {
    const auto object = object_of(batch);
    put(object->inputs, name, array_of(*object, array));
  });
}

keel_status keel_batch_target(keel_batch* batch, const char* name, const keel_array* array) {
  return call("keel_batch_target", [&] {
    const auto object = object_of(batch);
    put(object->targets, name, array_of(*object, array));
  });
}

keel_status keel_batch_weights(keel_batch* batch, const keel_array* array) {
  return call("keel_batch_weights", [&] {
    const auto object = object_of(batch);
    object->weights = array_of(*object, array);
  });
}

keel_status keel_batch_destroy(keel_batch** batch) {
  return call("keel_batch_destroy", [&] { destroy(batch, "batch"); });
}
}
