// keel_model_..., keel_export_weights

#include "keel/capi/handles.h"
#include "keel/capi/model.h"
#include "keel/dist/checkpoint/export.h"

namespace keel::capi {
namespace {

void create_model(keel_context* context, const keel_settings* settings, keel_model** model, const Model::Wish& wish) {
  create(model, "model", [&] {
    const auto site = object_of(context);
    const Settings chosen = settings == nullptr ? site->settings : *object_of(settings);
    const Turn turn(*site);
    return std::make_shared<Model>(site, chosen, wish);
  });
}

}  // namespace
}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_model_create_mlp(keel_context* context, const keel_settings* settings, const int64_t* widths,
                                  int count, const char* activation, const char* loss, keel_model** model) {
  return call("keel_model_create_mlp", [&] {
    KEEL_CHECK(count >= 0 && count <= 1000, "count is ", count, "; give how many entries widths has");
    const std::int64_t* first = &given(widths, "widths");
    const std::vector<std::int64_t> layers(first, first + count);
    const std::string kind = &given(activation, "activation"), goal = &given(loss, "loss");
    create_model(context, settings, model, {[&](const Config&) { return make_mlp_network(layers, kind); }, goal});
  });
}

keel_status keel_model_create_text(keel_context* context, const keel_settings* settings, const char* text,
                                   int64_t inputs, const char* loss, keel_model** model) {
  return call("keel_model_create_text", [&] {
    const std::string layers = &given(text, "text"), goal = &given(loss, "loss");
    create_model(context, settings, model, {[&](const Config&) { return make_text_network(layers, inputs); }, goal});
  });
}

keel_status keel_model_create(keel_context* context, const keel_settings* settings, keel_model** model) {
  return call("keel_model_create", [&] {
    create_model(context, settings, model, {make_gpt_network, "cross_entropy"});
  });
}

keel_status keel_model_loss(keel_model* model, keel_loss_function function, void* user) {
  return call("keel_model_loss", [&] {
    const auto object = object_of(model);
    const Turn turn(object->site());
    object->set_loss(function, user);
  });
}

keel_status keel_model_parameters(const keel_model* model, int64_t* count) {
  return call("keel_model_parameters", [&] {
    const auto object = object_of(model);
    given(count, "count") = object->parameters();
  });
}

keel_status keel_model_destroy(keel_model** model) {
  return call("keel_model_destroy", [&] { destroy(model, "model"); });
}

keel_status keel_model_save(const keel_model* model, const char* folder) {
  return call("keel_model_save", [&] {
    const auto object = object_of(model);
    const std::string path = given_path(folder, "folder");
    const Turn turn(object->site());
    object->save(path);
  });
}

keel_status keel_model_save_begin(keel_model* model, const char* folder) {
  return call("keel_model_save_begin", [&] {
    const auto object = object_of(model);
    const std::string path = given_path(folder, "folder");
    const Turn turn(object->site());
    object->begin_save(path);
  });
}

keel_status keel_model_save_poll(keel_model* model, int* state) {
  return call("keel_model_save_poll", [&] {
    const auto object = object_of(model);
    int& place = given(state, "state");
    const Turn turn(object->site());
    const bool is_there = object->poll_save().has_value();
    place = is_there ? KEEL_SAVE_THERE : object->is_saving() ? KEEL_SAVE_UNDER_WAY : KEEL_SAVE_NONE;
  });
}

keel_status keel_model_save_finish(keel_model* model) {
  return call("keel_model_save_finish", [&] {
    const auto object = object_of(model);
    const Turn turn(object->site());
    object->finish_save();
  });
}

keel_status keel_model_load(keel_model* model, const char* folder) {
  return call("keel_model_load", [&] {
    const auto object = object_of(model);
    const std::string path = given_path(folder, "folder");
    const Turn turn(object->site());
    object->load(path);
  });
}

keel_status keel_model_load_weights(keel_model* model, const char* safetensors_file) {
  return call("keel_model_load_weights", [&] {
    const auto object = object_of(model);
    const std::string path = given_path(safetensors_file, "safetensors_file");
    const Turn turn(object->site());
    object->load_weights(path);
  });
}

keel_status keel_export_weights(const char* folder, const char* safetensors_file) {
  return call("keel_export_weights", [&] {
    const std::string from = given_path(folder, "folder"), to = given_path(safetensors_file, "safetensors_file");
    publish_weights(from, to);
  });
}
}
