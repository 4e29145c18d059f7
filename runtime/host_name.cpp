#include "keel/runtime/host_name.h"

#include <unistd.h>

namespace keel {

std::string host_name() {
  std::string name(256, '\0');
  ::gethostname(name.data(), name.size() - 1);
  name.resize(name.find('\0'));
  return name;
}

}  // namespace keel
