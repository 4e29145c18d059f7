#pragma once
// Time and bus bandwidth over size, as a picture.

#include <string>
#include <string_view>

#include "keel/dist/lab/report.h"

namespace keel::lab {

// Colours of curves that are told apart without colour vision, too (Okabe and Ito 2008; the grey is ours).
inline constexpr std::string_view kCurveColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                     "#56b4e9", "#e69f00", "#000000", "#999999"};

// SVG: a row of two panels for each collective, with a curve for each algorithm, dtype and number of ranks, out of
// place where there is that. On the left medians of times, both axes logarithmic, with the middle half of the calls
// around them, on the right bus bandwidth. A curve has the same colour, dashes and marks in every row.
std::string plot(const Report& report);

}  // namespace keel::lab
