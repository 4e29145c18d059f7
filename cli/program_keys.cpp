#include "program_keys.h"

#include <utility>

namespace keel::cli {
namespace {

std::shared_ptr<const ConfigKeys>& stored() {
  static std::shared_ptr<const ConfigKeys> keys = keel_keys();
  return keys;
}

CallbackFactory& stored_factory() {
  static CallbackFactory factory;
  return factory;
}

}  // namespace

const std::shared_ptr<const ConfigKeys>& program_keys() { return stored(); }
void set_program_keys(std::shared_ptr<const ConfigKeys> keys) { stored() = std::move(keys); }

Callbacks program_callbacks(const Config& config) { return stored_factory() ? stored_factory()(config) : Callbacks(); }
void set_program_callbacks(CallbackFactory factory) { stored_factory() = std::move(factory); }

}  // namespace keel::cli
