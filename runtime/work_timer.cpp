#include "keel/runtime/work_timer.h"

namespace keel {

WorkTimer::~WorkTimer() {
  if (begun_ != nullptr) context_.api().destroy_event(begun_);
  for (const auto& [begin, end] : under_way_)
    for (const NativeEvent event : {begin, end}) context_.api().destroy_event(event);
}

void WorkTimer::start() {
  if (std::exchange(runs_, true)) return;
  if (!context_.stream().is_asynchronous()) {
    begin_ = Clock::now();
    return;
  }
  count_passed();  // so that the list stays short where nobody asks
  begun_ = context_.api().record_time(context_.stream().native());
}

void WorkTimer::stop() {
  if (!std::exchange(runs_, false)) return;
  if (begun_ == nullptr) {
    milliseconds_ += std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
    return;
  }
  under_way_.emplace_back(begun_, context_.api().record_time(context_.stream().native()));
  begun_ = nullptr;
}

double WorkTimer::milliseconds() const {
  count_passed();
  return milliseconds_;
}

void WorkTimer::count_passed() const {
  DeviceApi& api = context_.api();
  for (; !under_way_.empty() && api.has_passed(under_way_.front().second); under_way_.pop_front()) {
    const auto [begin, end] = under_way_.front();
    milliseconds_ += api.milliseconds_between(begin, end);
    for (const NativeEvent event : {begin, end}) api.destroy_event(event);
  }
}

}  // namespace keel
