// The update kernels of the rules that are no relatives of Adam.

#include "keel/kernels/cuda/update_kernel.h"

namespace keel::cuda {

template void update_by(const SgdSettings&, const UpdateArgs&);
template void update_by(const AdagradSettings&, const UpdateArgs&);
template void update_by(const AdadeltaSettings&, const UpdateArgs&);
template void update_by(const RmspropSettings&, const UpdateArgs&);
template void update_by(const RpropSettings&, const UpdateArgs&);
template void update_by(const AsgdSettings&, const UpdateArgs&);
template void update_by(const LionSettings&, const UpdateArgs&);
template void update_by(const MuonSettings&, const UpdateArgs&);

}  // namespace keel::cuda
