#include "keel/dist/checkpoint/weights_writer.h"

#include <algorithm>
#include <utility>

#include "keel/dist/checkpoint/export.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/update.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

// As in a rank's own file of weights, so that both are the same bytes.
Metadata weights_metadata() { return {{"format", "keel"}}; }

SafetensorsLayout lay_out_weights(std::vector<SafetensorsEntry> tensors, const Metadata& metadata) {
  return lay_out_safetensors(std::move(tensors), metadata, SafetensorsOrder::sorted, kPageBytes);
}

WrittenTensors by_their_own_names(const Manifest& manifest, std::string_view section) {
  WrittenTensors written{.tensors = {}, .metadata = weights_metadata()};
  for (const StoredTensor& tensor : manifest.tensors)
    if (tensor.section == section) written.tensors.push_back({tensor.name, tensor.name, tensor.shape});
  return written;
}

template <class Read>
void read_numbers(const Read& read) {
  try {
    read();
  } catch (const Error& error) { throw UnreadableCheckpoint("", error); }
}

}  // namespace

WeightsWriter::WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section,
                             std::optional<DType> dtype, std::function<void(std::uint64_t bytes)> progress)
    : WeightsWriter(folder, manifest, section, dtype, std::move(progress), by_their_own_names(manifest, section)) {}

WeightsWriter::WeightsWriter(const std::string& folder, const Manifest& manifest, std::string_view section,
                             std::optional<DType> dtype, std::function<void(std::uint64_t bytes)> progress,
                             WrittenTensors written)
    : section_(section),
      has_hashes_(manifest.has_hashes),
      progress_(std::move(progress)),
      reader_(folder, manifest),
      metadata_(std::move(written.metadata)) {
  KEEL_CHECK(is_floating(dtype.value_or(DType::f32)), "weights cannot be written as ", *dtype);
  std::map<std::string_view, const StoredTensor*> stored;
  for (const StoredTensor& tensor : manifest.tensors)
    if (tensor.section == section) stored.emplace(tensor.name, &tensor);
  for (HubTensor& tensor : written.tensors) {
    const auto find = [&](const std::string& parameter) {
      const auto found = stored.find(parameter);
      KEEL_CHECK(found != stored.end(), "'", folder, "' has no weights of ", parameter);
      return found->second;
    };
    Source source{tensor, find(tensor.parameter)};
    tensors_.push_back({tensor.name, dtype.value_or(source.stored->dtype), tensor.shape});
    if (tensor.low_rank) {
      source.a = find(tensor.low_rank->a)->shape;
      source.b = find(tensor.low_rank->b)->shape;
      const Dims whole = tensor.transposed ? Dims{tensor.shape[1], tensor.shape[0]} : tensor.shape;
      KEEL_CHECK(source.a.size() == 2 && source.b.size() == 2 && source.a[0] == source.b[1] &&
                     whole == Dims({source.b[0], source.a[1]}),
                 "'", folder, "': the product of ", tensor.low_rank->b, ' ', source.b, " and ", tensor.low_rank->a, ' ',
                 source.a, " cannot be added to ", tensor.name, ' ', tensor.shape);
    }
    sources_.emplace(tensor.name, std::move(source));
  }
  tensors_ = lay_out_weights(std::move(tensors_), metadata_).entries;
}

void WeightsWriter::verify() const {
  if (!has_hashes_) read_numbers([&] { reader_.verify(); });
}

// Where extents are cut, so that each is read once; of what is transposed whole rows, which lie in all extents.
std::int64_t WeightsWriter::step_of(const Source& source) {
  const std::int64_t step = kExtentBytes / static_cast<std::int64_t>(size_of(source.stored->dtype));
  if (source.tensor.low_rank && !source.tensor.transposed) {
    const std::int64_t row = std::max<std::int64_t>(source.tensor.shape[1], 1);
    return std::max<std::int64_t>(1, step / row) * row;
  }
  if (!source.tensor.transposed) return step;
  const std::int64_t row = source.tensor.shape[1];
  return std::max<std::int64_t>(1, 4 * step / row) * row;
}

void WeightsWriter::read(const Source& source, std::int64_t begin, const Tensor& values) const {
  const HubTensor& tensor = source.tensor;
  const StoredTensor* stored = source.stored;
  if (!tensor.transposed) {
    const std::int64_t row =
        product(tensor.shape) / std::max<std::int64_t>(tensor.shape.empty() ? 1 : tensor.shape[0], 1);
    const TensorPart part{stored->name, stored->shape, tensor.first_row * row + begin, values};
    return read_numbers([&] { reader_.fill(section_, TensorParts{part}); });
  }
  const std::int64_t columns = tensor.shape[1], rows = values.numel() / columns;
  const Tensor turned = empty(values.context(), {columns, rows}, values.dtype(), Purpose::workspace);
  const TensorBlock block{stored->name, {columns, tensor.shape[0]}, {0, begin / columns}, turned};
  read_numbers([&] { reader_.fill(section_, std::span(&block, 1)); });
  kernels::copy_into(values.view({rows, columns}), turned.transpose(0, 1));
}

WeightsWriter::Factors WeightsWriter::read_factors(const Source& source, const Context& host) const {
  if (!source.tensor.low_rank) return {};
  const auto whole = [&](const std::string& name, const Dims& shape) {
    const Tensor values = empty(host, shape, DType::f32, Purpose::workspace);
    read_numbers([&] { reader_.fill(section_, TensorParts{{name, shape, 0, values.flatten()}}); });
    return values;
  };
  return {whole(source.tensor.low_rank->a, source.a), whole(source.tensor.low_rank->b, source.b)};
}

void WeightsWriter::add_product(const Source& source, const Factors& factors, std::int64_t begin,
                                const Tensor& values) {
  const std::int64_t columns = source.tensor.shape[1], first = begin / columns, rows = values.numel() / columns;
  const MatmulOptions options{.into = values.view({rows, columns}),
                              .accumulate = true,
                              .alpha = static_cast<float>(source.tensor.low_rank->scale),
                              .same_bits = true};
  if (source.tensor.transposed)
    kernels::matmul(factors.a.slice(1, first, first + rows).transpose(0, 1), factors.b.transpose(0, 1), options);
  else kernels::matmul(factors.b.slice(0, first, first + rows), factors.a, options);
}

void WeightsWriter::write(const std::string& target, std::vector<SafetensorsEntry> tensors) const {
  const SafetensorsLayout layout = lay_out_weights(std::move(tensors), metadata_);
  const Context host = Context::create({.threads = 1});
  AtomicFile file(target);
  file.write(layout.head);
  for (const SafetensorsEntry& entry : layout.entries) {
    const Source& source = sources_.at(entry.name);
    const DType before = source.stored->dtype, dtype = entry.dtype;
    const std::int64_t step = step_of(source);
    const Factors factors = read_factors(source, host);
    for (std::int64_t begin = 0, all = product(entry.shape); begin < all; begin += step) {
      const Tensor values = empty(host, {std::min(step, all - begin)}, dtype, Purpose::workspace);
      if (factors.a.defined()) {
        const Tensor sum = empty(host, values.shape(), DType::f32, Purpose::workspace);
        read(source, begin, sum);
        add_product(source, factors, begin, sum);
        kernels::copy_into(values, sum);
      } else {
        read(source, begin, values);
      }
      KEEL_CHECK(
          (dtype == before && !factors.a.defined()) || size_of(dtype) > size_of(before) || kernels::all_finite(values),
          "'", entry.name, "' has numbers that are not finite as ", dtype, "; ", before, " keeps them as they are");
      file.write({values.raw(), values.bytes()});
      if (progress_) progress_(values.bytes());
    }
  }
  file.commit();
}

}  // namespace keel
