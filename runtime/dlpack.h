#pragma once
// Tensors to and from other frameworks in the same memory, by DLPack's C structures (https://dmlc.github.io/dlpack).

#include "keel/runtime/tensor.h"

// The structures of dlpack.h: that of version 1, and the one without "Versioned" of earlier versions. keel needs no
// copy of that header.
struct DLManagedTensorVersioned;
struct DLManagedTensor;

namespace keel {

// The tensor's memory lives until the receiver calls the deleter, once. On a GPU, work that is queued in the context's
// stream may still write the memory. Throws an Error for memory of an emulated device, which others do not know, and
// for a tensor whose memory comes and goes.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Takes ownership of `tensor`, even where it throws: the deleter is called once, when the last view is gone or with the
// Error. Throws an Error for a major version other than 1, a device other than the context's, a type of number that
// keel does not have, and read-only memory.
Tensor from_dlpack(const Context& context, DLManagedTensorVersioned* tensor);
Tensor from_dlpack(const Context& context, DLManagedTensor* tensor);

}  // namespace keel
