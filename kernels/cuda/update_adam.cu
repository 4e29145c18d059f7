// The update kernels of Adam and its relatives.

#include "keel/kernels/cuda/update_kernel.h"

namespace keel::cuda {

template void update_by(const AdamSettings&, const UpdateArgs&);
template void update_by(const AdamaxSettings&, const UpdateArgs&);
template void update_by(const NAdamSettings&, const UpdateArgs&);
template void update_by(const RAdamSettings&, const UpdateArgs&);
template void update_by(const ScheduleFreeSettings&, const UpdateArgs&);

}  // namespace keel::cuda
