#pragma once
// Time and bus bandwidth over size, as a picture.

#include <string>

#include "keel/dist/lab/report.h"

namespace keel::lab {

// SVG: a curve for each collective, algorithm and dtype, out of place where there is that; on the left medians of
// times, both axes logarithmic, with the middle half of the calls around them, on the right bus bandwidth.
std::string plot(const Report& report);

}  // namespace keel::lab
