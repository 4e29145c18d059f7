#include "keel/dist/parallel/unit_parameters.h"

#include <exception>

#include "keel/kernels/elementwise.h"

namespace keel {
namespace {

// The same memory for a collective: what it reads and writes is no touch, and the numbers that it brings back are no
// change. It stays as long as the collective does: where this rank has failed, others may still read it.
Tensor alias_of(const Tensor& flat) {
  const auto keep = [storage = flat.storage()](void*) {};
  return from_external(flat.context(), flat.raw(), flat.shape(), flat.strides(), flat.dtype(), keep);
}

}  // namespace

UnitParameters::UnitParameters(const UnitSite& unit) : unit_(unit), gatherer_(make_gatherer(unit)) {
  const UnitSplit& split = unit.split;
  FlatBuffer& buffer = unit.buffer;
  const Span kept = split.keeps_own() ? split.owned : Span{0, split.whole};
  const Tensor values = split.pages_values
                            ? empty(unit_.context, {kept.count()}, split.values, Purpose::bucket)
                            : unit.axes.shards.allocate(unit_.context, kept.count(), split.values, Purpose::parameter);
  const Purpose of_state = split.files_state ? Purpose::bucket : Purpose::optimizer;
  const PrecisionPolicy& policy = unit.options.policy;
  if (split.trainable && policy.master()) {
    own_master_ = empty(unit.update_context(), {split.owned.count()}, policy.master_dtype(), of_state);
    initialise(buffer, unit.options.seed, split.owned.begin, own_master_);
  }
  initialise(buffer, unit.options.seed, kept.begin, values);
  if (split.shards_parameters) {
    own_values_ = values;
    buffer.values = empty(unit_.context, {split.whole}, split.values, Purpose::bucket);
    release();
  } else if (split.keeps_own()) {
    own_values_ = values;
    buffer.values = unit.axes.shards.allocate(unit_.context, split.whole, split.values, Purpose::parameter);
    begin_gather();
    wait_gathered();
  } else {
    buffer.values = values;
    own_values_ = values.slice(0, split.owned.begin, split.owned.end);
  }
  update_values_ = split.trainable ? kernels::to(own_values_, unit.update_context(), of_state) : own_values_;
  const auto page_of = [&](const Tensor& numbers, std::string_view what, bool in_file) {
    return std::make_unique<Page>(*unit.pager, numbers, concat(what, " of ", name_of_unit(buffer)), unit.number,
                                  in_file);
  };
  if (split.pages_values) values_page_ = page_of(values, "weights", split.files_values);
  if (split.files_state && own_master_.defined()) master_page_ = page_of(own_master_, "masters", true);
  if (split.files_state && update_values_.storage() != own_values_.storage())
    update_page_ = page_of(update_values_, "updated weights", true);
  if (reads_whole()) values_page_->when_touched([this] { return told_of_touch_ && told_of_touch_(); });
}

UnitParameters::~UnitParameters() {
  // The others still need what this rank sends.
  if (gathering_active_ && std::uncaught_exceptions() == 0) {
    try {
      wait_gathered();
    } catch (const std::exception& error) {
      unit_.context.log(LogLevel::error, concat("a gather of ", unit_.buffer.unit, " did not end: ", error.what()));
    }
  }
  if (unit_.buffer.values.defined() && !reads_whole()) unit_.buffer.values.storage()->set_touch_hook({});
}

std::vector<Page*> UnitParameters::pages() {
  std::vector<Page*> all;
  for (Page* page : {values_page_.get(), master_page_.get(), update_page_.get()})
    if (page != nullptr) all.push_back(page);
  return all;
}

void UnitParameters::fetch() {
  if (values_page_) values_page_->fetch();
}

void UnitParameters::adopt_weights() {
  if (own_master_.defined()) kernels::copy_into(update_values_, own_master_);
  send_values();
}

void UnitParameters::send_values() {
  if (update_values_.storage() == own_values_.storage()) return;
  send_values({0, own_values_.numel()}, update_values_);
}

void UnitParameters::send_values(Span part, const Tensor& values) {
  kernels::copy_across(own_values_.slice(0, part.begin, part.end), values);
}

void UnitParameters::gather() {
  if (reads_whole()) return fetch();
  Storage& storage = *unit_.buffer.values.storage();
  if (!unit_.split.shards_parameters || storage.resident()) return;
  storage.set_touch_hook({});
  storage.restore();
  begin_gather();
  storage.set_touch_hook([this](Storage&) { touch(); });
}

void UnitParameters::begin_gather() {
  if (values_page_) values_page_->wait();
  gathering_ = gatherer_->begin(alias_of(own_values_), alias_of(unit_.buffer.values));
  gathering_active_ = true;
}

void UnitParameters::wait_gathered() {
  if (!gathering_active_) {
    if (reads_whole()) values_page_->wait();
    return;
  }
  gathering_active_ = false;
  unit_.buffer.values.storage()->set_touch_hook({});
  unit_.times.wait(gathering_);
  gatherer_->finish();
  if (values_page_ && unit_.split.shards_parameters) values_page_->release();
}

// Whoever reads the values gets them whole and up to date.
void UnitParameters::touch() {
  if (told_of_touch_) told_of_touch_();
  gather();
  wait_gathered();
}

void UnitParameters::release() {
  if (reads_whole()) return values_page_->release();
  if (!unit_.split.shards_parameters) return;
  Storage& storage = *unit_.buffer.values.storage();
  if (!storage.resident()) {
    if (values_page_) values_page_->release();  // it was read ahead, and not gathered
    return;
  }
  wait_gathered();
  storage.drop();
  storage.set_touch_hook([this](Storage&) { touch(); });
}

void UnitParameters::share_updates() {
  if (unit_.split.owns_all() && !unit_.split.keeps_own()) return;
  Storage& storage = *unit_.buffer.values.storage();
  gatherer_->weights_change();
  if (unit_.split.shards_parameters) {
    if (storage.resident()) release();
    storage.bump_version();
    return;
  }
  begin_gather();
  storage.bump_version();
  if (!values_page_) storage.set_touch_hook([this](Storage&) { wait_gathered(); });
  if (unit_.split.keeps_own() || values_page_) wait_gathered();  // one unit's codes, or pages, at a time
}

}  // namespace keel
