// keel_context_...

#include "keel/capi/handles.h"
#include "keel/capi/mpi_ranks.h"
#include "keel/capi/site.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/trainer/assembly.h"

namespace keel::capi {
namespace {

LogSink sink_of(const Settings& settings) {
  if (settings.log == nullptr) return {};
  const auto one_at_a_time = std::make_shared<std::mutex>();
  return [=, function = settings.log, user = settings.log_user](LogLevel level, std::string_view message) {
    const std::lock_guard lock(*one_at_a_time);
    const HostCode host;
    function(static_cast<int>(level), std::string(message).c_str(), user);
  };
}

std::unique_ptr<Communicator> make_lone_rank() { return make_communicator(ThreadHub(1).connect(0)); }

}  // namespace

Settings settings_of(const keel_settings* settings) { return settings == nullptr ? Settings{} : *object_of(settings); }

Site::Site(const Settings& given, std::unique_ptr<Communicator> given_ranks)
    : settings(given), own(std::move(given_ranks)) {
  Config config;
  together(*own, [&] {
    config = settings.config();
    context = make_context(config, *own, sink_of(settings));
  });
  background = make_background(config, *own);
}

Turn::Turn(Site& site) : lock_(site.busy, std::try_to_lock) {
  KEEL_CHECK(lock_.owns_lock(),
             "the context is at work for another call; it and what is made from it are for one thread at a time");
  site.own->check_thread();
}

}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_context_create(const keel_settings* settings, keel_context** context) {
  return call("keel_context_create", [&] {
    create(context, "context", [&] { return std::make_shared<Site>(settings_of(settings), make_lone_rank()); });
  });
}

keel_status keel_context_create_mpi(int64_t communicator, const keel_settings* settings, keel_context** context) {
  return call("keel_context_create_mpi", [&] {
    create(context, "context",
           [&] { return std::make_shared<Site>(settings_of(settings), make_mpi_ranks(communicator)); });
  });
}

keel_status keel_context_ranks(const keel_context* context, int* rank, int* size) {
  return call("keel_context_ranks", [&] {
    const auto site = object_of(context);
    if (rank != nullptr) *rank = site->ranks().rank();
    if (size != nullptr) *size = site->ranks().size();
  });
}

keel_status keel_context_fail(keel_context* context, const char* reason) {
  return call("keel_context_fail", [&] {
    const auto site = object_of(context);
    const std::string text = &given(reason, "reason");
    const Turn turn(*site);
    site->ranks().fail(text);
  });
}

keel_status keel_context_destroy(keel_context** context) {
  return call("keel_context_destroy", [&] { destroy(context, "context"); });
}
}
