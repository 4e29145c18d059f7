// Table look-up and its gradient.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rows_by_index.h"

namespace keel::cuda {
namespace {

void embedding(const EmbeddingArgs& args) {
  copy_rows("embedding", args.table.unsqueeze(0), args.ids, args.out.unsqueeze(0), FaultKind::embedding_id);
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  add_rows("embedding_backward", args.grad_output.unsqueeze(0), args.ids, args.grad_table.unsqueeze(0), args.add,
           FaultKind::embedding_id);
}

}  // namespace

void add_embedding(KernelTable& table) {
  table.embedding = embedding;
  table.embedding_backward = embedding_backward;
}

}  // namespace keel::cuda
