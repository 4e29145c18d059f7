#include "keel/dist/checkpoint/weights_writer.h"

#include <algorithm>
#include <utility>

#include "keel/dist/checkpoint/export.h"
#include "keel/kernels/update.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

// As in a rank's own file of weights, so that both are the same bytes.
const Metadata kWeightsMetadata = {{"format", "keel"}};

SafetensorsLayout lay_out_weights(std::vector<SafetensorsEntry> tensors) {
  return lay_out_safetensors(std::move(tensors), kWeightsMetadata, SafetensorsOrder::sorted, kPageBytes);
}

template <class Read>
void read_numbers(const Read& read) {
  try {
    read();
  } catch (const Error& error) { throw UnreadableCheckpoint(error.what(), error.kind()); }
}

}  // namespace

WeightsWriter::WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section, DType dtype,
                             std::function<void(std::uint64_t bytes)> progress)
    : section_(section),
      dtype_(dtype),
      has_hashes_(manifest.has_hashes),
      progress_(std::move(progress)),
      reader_(folder, manifest) {
  KEEL_CHECK(is_floating(dtype), "weights cannot be written as ", dtype);
  for (const StoredTensor& tensor : manifest.tensors) {
    if (tensor.section != section) continue;
    tensors_.push_back({tensor.name, dtype, tensor.shape});
    stored_.emplace(tensor.name, tensor.dtype);
  }
  tensors_ = lay_out_weights(std::move(tensors_)).entries;
}

void WeightsWriter::verify() const {
  if (!has_hashes_) read_numbers([&] { reader_.verify(); });
}

void WeightsWriter::write(const std::string& target, std::vector<SafetensorsEntry> tensors) const {
  const SafetensorsLayout layout = lay_out_weights(std::move(tensors));
  const Context host = Context::create({.threads = 1});
  AtomicFile file(target);
  file.write(layout.head);
  for (const SafetensorsEntry& entry : layout.entries) {
    const DType before = stored_.at(entry.name);
    // Where extents are cut, so that each is read once.
    const std::int64_t step = kExtentBytes / static_cast<std::int64_t>(size_of(before));
    for (std::int64_t begin = 0, all = product(entry.shape); begin < all; begin += step) {
      const std::int64_t count = std::min(step, all - begin);
      const TensorPart part{entry.name, entry.shape, begin, empty(host, {count}, dtype_, Purpose::workspace)};
      read_numbers([&] { reader_.fill(section_, TensorParts{part}); });
      KEEL_CHECK(dtype_ == before || size_of(dtype_) > size_of(before) || kernels::all_finite(part.values), "'",
                 entry.name, "' has numbers that are not finite as ", dtype_, "; ", before, " keeps them as they are");
      file.write({part.values.raw(), part.values.bytes()});
      if (progress_) progress_(part.values.bytes());
    }
  }
  file.commit();
}

}  // namespace keel
