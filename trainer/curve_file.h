#pragma once
// Loss curves as JSON (docs/comm.md).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/link.h"
#include "keel/trainer/loss_curves.h"

namespace keel {

struct CurveFile {
  int ranks = 1;
  Network network = {};  // the network that they were trained on, if slower than what there is
  std::vector<LossCurve> curves = {};
};

std::string to_json(const CurveFile& file);
// An Error says what is wrong with a text that is no such file, or one of a later version.
CurveFile parse_curve_file(std::string_view text);

}  // namespace keel
