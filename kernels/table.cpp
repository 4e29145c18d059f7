#include "keel/kernels/table.h"

#include <mutex>

#include "keel/kernels/cpu/backend.h"
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
#include "keel/kernels/cuda/backend.h"
#endif

namespace keel {
namespace {

struct OwnedTable {
  KernelTable table;
  std::once_flag filled;
};

void fill_cpu_table(KernelTable& table, KernelChoice choice) {
  cpu::add_elementwise(table);
  cpu::add_copy(table);
  cpu::add_dropout(table);
  cpu::add_reduce(table);
  cpu::add_matmul(table);
  cpu::add_attention(table);
  cpu::add_softmax(table);
  cpu::add_cross_entropy(table);
  cpu::add_blocked_loss(table);
  cpu::add_norm(table);
  cpu::add_embedding(table);
  cpu::add_gated(table);
  cpu::add_rotary(table);
  cpu::add_select(table);
  cpu::add_combine(table);
  cpu::add_codec(table);
  cpu::add_update(table);
  cpu::add_update_blocks(table);
  cpu::add_norms_of_updates(table);
  cpu::add_factors(table);
#ifdef KEEL_HAVE_ONEDNN
  if (choice == KernelChoice::automatic) cpu::add_onednn(table);
#else
  (void)choice;
#endif
}

void fill_table(KernelTable& table, const Context& context) {
  if (context.device().type == DeviceType::cpu) return fill_cpu_table(table, context.kernel_choice());
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
  cuda::fill_table(table, context.kernel_choice());
#endif
}

}  // namespace

const KernelTable& kernel_table(const Context& context) {
  if (const KernelTable* table = context.kernel_table().load(std::memory_order_acquire)) return *table;
  auto& owned = context.resource<OwnedTable>();
  std::call_once(owned.filled, [&] { fill_table(owned.table, context); });
  context.kernel_table().store(&owned.table, std::memory_order_release);
  return owned.table;
}

}  // namespace keel
