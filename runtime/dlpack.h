#pragma once
// Tensors to and from other frameworks in the same memory, by DLPack's C structures (https://dmlc.github.io/dlpack).

#include "keel/runtime/tensor.h"

// Those of dlpack.h, version 1 and, without "Versioned", those before it; keel needs no copy of that header.
struct DLManagedTensorVersioned;
struct DLManagedTensor;

namespace keel {

// The tensor's memory lives until the deleter is called, which whoever has the result does once. Memory of a GPU: work
// that the context's stream holds may still write it. An Error for memory of an emulated device, which others do not
// know, and for tensors whose memory comes and goes.
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor);

// Takes it over, also where it throws: the deleter is called once, when the last view is gone, or with the Error. An
// Error for another major version than 1, another device than the context's, numbers that keel has no type for, and
// memory that is only for reading.
Tensor from_dlpack(const Context& context, DLManagedTensorVersioned* tensor);
Tensor from_dlpack(const Context& context, DLManagedTensor* tensor);

}  // namespace keel
