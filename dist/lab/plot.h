#pragma once
// Time and bus bandwidth over size, as a picture.

#include <string>

#include "keel/dist/lab/report.h"

namespace keel::lab {

// SVG: a row of two panels for each collective, with a curve for each algorithm, dtype and number of ranks, out of
// place where there is that. On the left medians of times, both axes logarithmic, with the middle half of the calls
// around them, on the right bus bandwidth. A curve has the same colour, dashes and marks in every row.
std::string plot(const Report& report);

}  // namespace keel::lab
