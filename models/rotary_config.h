#pragma once
// Rotary positions in a config.json: rope_theta with rope_scaling, or rope_parameters, which newer programs write.

#include "keel/models/hub_config.h"
#include "keel/nn/rotary.h"

namespace keel {

// `standard`: head size, longest text, and theta where the file has none. A key that the kind of scaling does not have
// is an Error, and so is a part of a head that is not turned.
RotaryOptions read_rotary(HubConfig& config, RotaryOptions standard);

// Writes rope_theta and, where there is one, rope_scaling, which old and new programs read.
void write_rotary(Json& config, const RotaryOptions& options);

// The longest text that a model of such positions was meant for.
std::int64_t longest_text(const RotaryOptions& options);

}  // namespace keel
