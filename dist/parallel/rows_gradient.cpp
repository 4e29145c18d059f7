// The gradient of a table, kept as rows: no memory for the whole one.

#include <optional>
#include <utility>

#include "keel/dist/parallel/row_sums.h"
#include "keel/dist/parallel/unit_gradient.h"

namespace keel {
namespace {

class RowsGradient : public UnitGradient {
 public:
  RowsGradient(FlatBuffer& buffer, const UnitSplit& split, const UnitSite& site)
      : buffer_(buffer), site_(site), wire_(split.wire), owned_(rows_of(buffer, split.owned)) {
    buffer.row_dtype = split.gradient;
  }

  void begin_reduce(double) override {
    buffer_.complete_gradient();
    const RowGradient& rows = buffer_.segments.front().parameter->variable.leaf()->rows;
    if (is_alone()) own_ = rows;
    else sums_.emplace(rows, wire_, site_.axes.shards, site_);
  }
  void continue_reduce() override {
    if (sums_) sums_->proceed();
  }
  // The sum inside the group, and then across groups.
  void finish_reduce() override {
    if (is_alone()) return;
    RowGradient sum = finish_sum();
    if (site_.axes.replicas != nullptr) {
      sums_.emplace(sum, wire_, *site_.axes.replicas, site_);
      sum = finish_sum();
    }
    const RowGradient rows = sum.cast(buffer_.row_dtype);
    if (std::exchange(begun_, true)) own_.add(rows.indices(), rows.values());
    else own_ = rows;
    buffer_.zero_grad();
  }
  void zero() override {
    buffer_.zero_grad();
    own_ = {};
    begun_ = false;
  }

  const Tensor& own() const override { return no_tensor_; }
  const RowGradient& own_rows() const override { return own_; }

 private:
  bool is_alone() const { return site_.axes.shards.size() == 1 && site_.axes.replicas == nullptr; }
  RowGradient finish_sum() {
    RowGradient sum = sums_->finish(owned_);
    sums_.reset();
    return sum;
  }

  FlatBuffer& buffer_;
  const UnitSite& site_;
  DType wire_;
  Span owned_;  // rows
  std::optional<RowSums> sums_;
  RowGradient own_;
  bool begun_ = false;  // own_ holds a sum of this step
  Tensor no_tensor_;
};

}  // namespace

std::unique_ptr<UnitGradient> make_rows_gradient(FlatBuffer& buffer, const UnitSplit& split, const UnitSite& site) {
  return std::make_unique<RowsGradient>(buffer, split, site);
}

}  // namespace keel
