#include "program_keys.h"

#include <utility>

namespace keel::cli {
namespace {

std::shared_ptr<const ConfigKeys>& stored() {
  static std::shared_ptr<const ConfigKeys> keys = keel_keys();
  return keys;
}

}  // namespace

const std::shared_ptr<const ConfigKeys>& program_keys() { return stored(); }
void set_program_keys(std::shared_ptr<const ConfigKeys> keys) { stored() = std::move(keys); }

}  // namespace keel::cli
