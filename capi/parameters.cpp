// Whole parameters and gradients of a model whose ranks have parts of them.

#include <algorithm>
#include <cstring>

#include "keel/capi/model.h"
#include "keel/dist/comm/exchange.h"
#include "keel/kernels/elementwise.h"

namespace keel::capi {
namespace {

struct Place {
  ShardUnit& unit;
  const Segment& segment;
  // The owned elements of the segment, counted in the unit.
  Span owned() const {
    const Span span = unit.owned();
    return {std::clamp(segment.offset, span.begin, span.end),
            std::clamp(segment.offset + segment.numel, span.begin, span.end)};
  }
  // Those elements of a tensor of all that the rank owns of the unit.
  Tensor part(const Tensor& of_unit) const {
    return of_unit.slice(0, owned().begin - unit.owned().begin, owned().end - unit.owned().begin);
  }
};

Place find(const Sharded& engine, const std::string& name) {
  for (const auto& unit : engine.units())
    for (const Segment& segment : unit->layout().segments)
      if (segment.name == name) return {*unit, segment};
  throw Error(concat("the model has no parameter '", name, "'; keel_parameter_name() tells those that it has"));
}

// Whole numbers of parts that ranks have; each rank's bytes begin with the part's place.
Tensor join(Communicator& ranks, const Place& place, const Tensor& part, const Context& host) {
  const Tensor here = kernels::cast(kernels::to(kernels::contiguous(part), host), DType::f32);
  host.synchronize();
  const Tensor whole = zeros(host, {place.segment.numel}, DType::f32);
  const std::int64_t begin = place.owned().begin - place.segment.offset;
  std::string mine(sizeof begin + here.bytes(), 0);
  std::memcpy(mine.data(), &begin, sizeof begin);
  if (here.bytes() > 0) std::memcpy(mine.data() + sizeof begin, here.raw(), here.bytes());
  const bool has_all = place.owned().count() == place.segment.numel && ranks.size() == 1;
  for (const std::string& theirs : has_all ? std::vector{mine} : gather_texts(ranks, mine)) {
    std::int64_t at = 0;
    std::memcpy(&at, theirs.data(), sizeof at);
    const std::size_t bytes = theirs.size() - sizeof at;
    if (bytes > 0) std::memcpy(whole.data<float>() + at, theirs.data() + sizeof at, bytes);
  }
  return whole.view(place.segment.shape);
}

}  // namespace

const Dims& Model::shape_of(const std::string& name) const { return find(stack_->engine(), name).segment.shape; }

void Model::check_parameter(const std::string& name, const Array& array) const {
  together(site_->ranks(), [&] {
    const Dims& shape = shape_of(name);
    const Tensor& tensor = array.tensor;
    KEEL_CHECK(is_floating(tensor.dtype()) && tensor.shape() == shape, "the array is ", tensor, ", but ", name,
               " needs f32 or f64 ", shape);
    check_writable(array);
  });
}

void Model::get_weights(const std::string& name, const Array& to) {
  check_parameter(name, to);
  among_ranks([&] {
    const Place place = find(engine(), name);
    write_array(join(site_->ranks(), place, place.part(place.unit.parameters().own_weights()), site_->context.host()),
                to);
  });
}

void Model::set_weights(const std::string& name, const Array& from) {
  check_parameter(name, from);
  among_ranks([&] {
    const Place place = find(engine(), name);
    const Context host = site_->context.host();
    const Tensor mine = kernels::cast(kernels::to(kernels::contiguous(from.tensor), host), DType::f32);
    host.synchronize();
    const std::string bytes =
        broadcast_text(site_->ranks(), std::string(reinterpret_cast<const char*>(mine.raw()), mine.bytes()));
    const Tensor whole = empty(host, {place.segment.numel});
    std::memcpy(whole.raw(), bytes.data(), bytes.size());
    engine().wait_until_released();
    const Tensor part = place.part(place.unit.parameters().own_weights());
    const std::int64_t begin = place.owned().begin - place.segment.offset;
    if (part.numel() > 0)
      kernels::copy_into(part, kernels::to(whole.slice(0, begin, begin + part.numel()), part.context()));
    engine().adopt_weights();
    site_->context.synchronize();
  });
}

void Model::get_gradient(const std::string& name, const Array& to) {
  check_parameter(name, to);
  together(site_->ranks(), [&] {
    check_complete();
    const ShardUnit& unit = find(engine(), name).unit;
    if (!unit.trainable() || unit.sparse())
      throw Error(concat(name, unit.sparse() ? " has a gradient of single rows" : " is not trained"),
                  ErrorKind::unsupported);
  });
  among_ranks([&] {
    const Place place = find(engine(), name);
    if (site_->ranks().size() == 1) place.unit.gradient().begin_reduce(1);  // what no loss depends on becomes 0
    double weight = 0;
    for (const double each : gather_values(site_->ranks(), engine().weight())) weight += each;
    const Tensor sum = join(site_->ranks(), place, place.part(place.unit.gradient().own()), site_->context.host());
    // Until the step gradients are sums over the weight, times the loss scale.
    if (weight > 0) kernels::scale(sum, 1 / (weight * static_cast<double>(engine().state().loss_scale)));
    write_array(sum, to);
  });
}

}  // namespace keel::capi
