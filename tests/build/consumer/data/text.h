#pragma once
// The embedding code's own data layer.

namespace consumer {
inline int answer() { return 42; }
}  // namespace consumer
