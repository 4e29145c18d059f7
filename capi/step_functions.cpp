// keel_train_..., keel_evaluate, keel_infer..., and whole parameters

#include "keel/capi/batch.h"
#include "keel/capi/handles.h"
#include "keel/capi/model.h"

namespace keel::capi {
namespace {

// The array, which must be of the model's context.
std::shared_ptr<Array> array_for(const Model& model, const keel_array* array) {
  auto object = object_of(array);
  KEEL_CHECK(object->site.get() == &model.site(), "the array belongs to another context than the model");
  return object;
}

// The one input and output of a model that has no others.
Arrays pair_for(const Model& model, const keel_array* input, const keel_array* target) {
  const auto inputs = model.network().inputs().size(), outputs = model.network().outputs().size();
  KEEL_CHECK(inputs == 1 && outputs == 1, "the model has ", inputs, inputs == 1 ? " input" : " inputs", " and ",
             outputs, outputs == 1 ? " output" : " outputs", "; give its arrays in a keel_batch");
  return {{array_for(model, input)}, {array_for(model, target)}};
}

Arrays arrays_for(const Model& model, const keel_batch* batch) {
  const auto object = object_of(batch);
  KEEL_CHECK(object->site.get() == &model.site(), "the batch belongs to another context than the model");
  return object->arrays_for(model.network());
}

template <class T>
void give(T* place, T value) {
  if (place != nullptr) *place = value;
}

void update(Model& model, double lr, double* grad_norm, int* taken) {
  const StepResult result = model.step(lr);
  give(grad_norm, result.grad_norm);
  give(taken, result.taken ? 1 : 0);
}

void train(Model& model, const Arrays& arrays, double lr, double* loss, double* grad_norm, int* taken) {
  const Turn turn(model.site());
  model.check_rate(lr);
  const double before = model.backward(arrays, true);
  update(model, lr, grad_norm, taken);
  give(loss, before);
}

}  // namespace
}  // namespace keel::capi

using namespace keel;
using namespace keel::capi;

extern "C" {

keel_status keel_train_step(keel_model* model, const keel_array* input, const keel_array* target, double lr,
                            double* loss, double* grad_norm, int* taken) {
  return call("keel_train_step", [&] {
    const auto object = object_of(model);
    train(*object, pair_for(*object, input, target), lr, loss, grad_norm, taken);
  });
}

keel_status keel_train_batch(keel_model* model, const keel_batch* batch, double lr, double* loss, double* grad_norm,
                             int* taken) {
  return call("keel_train_batch", [&] {
    const auto object = object_of(model);
    train(*object, arrays_for(*object, batch), lr, loss, grad_norm, taken);
  });
}

keel_status keel_train_accumulate(keel_model* model, const keel_array* input, const keel_array* target, double* loss) {
  return call("keel_train_accumulate", [&] {
    const auto object = object_of(model);
    const Arrays arrays = pair_for(*object, input, target);
    const Turn turn(object->site());
    give(loss, object->backward(arrays, false));
  });
}

keel_status keel_train_backward(keel_model* model, const keel_batch* batch, int last, double* loss) {
  return call("keel_train_backward", [&] {
    const auto object = object_of(model);
    const Arrays arrays = arrays_for(*object, batch);
    const Turn turn(object->site());
    give(loss, object->backward(arrays, last != 0));
  });
}

keel_status keel_train_update(keel_model* model, double lr, double* grad_norm, int* taken) {
  return call("keel_train_update", [&] {
    const auto object = object_of(model);
    const Turn turn(object->site());
    object->check_rate(lr);
    object->check_complete();
    update(*object, lr, grad_norm, taken);
  });
}

keel_status keel_evaluate(keel_model* model, const keel_batch* batch, double* loss) {
  return call("keel_evaluate", [&] {
    const auto object = object_of(model);
    double& place = given(loss, "loss");
    const Arrays arrays = arrays_for(*object, batch);
    const Turn turn(object->site());
    place = object->evaluate(arrays);
  });
}

keel_status keel_infer(keel_model* model, const keel_array* input, const keel_array* output) {
  return call("keel_infer", [&] {
    const auto object = object_of(model);
    const Arrays arrays = pair_for(*object, input, output);
    const Turn turn(object->site());
    object->infer(arrays);
  });
}

keel_status keel_infer_batch(keel_model* model, const keel_batch* batch) {
  return call("keel_infer_batch", [&] {
    const auto object = object_of(model);
    const Arrays arrays = arrays_for(*object, batch);
    const Turn turn(object->site());
    object->infer(arrays);
  });
}

keel_status keel_parameter_name(const keel_model* model, int64_t index, const char** name) {
  return call("keel_parameter_name", [&] {
    const auto object = object_of(model);
    const char*& place = given(name, "name");
    const std::vector<std::string>& names = object->names();
    KEEL_CHECK(index >= 0, "index is ", index, "; parameters count from 0");
    place = index < static_cast<std::int64_t>(names.size()) ? names[static_cast<std::size_t>(index)].c_str() : nullptr;
  });
}

keel_status keel_parameter_shape(const keel_model* model, const char* name, int* rank, int64_t* shape) {
  return call("keel_parameter_shape", [&] {
    const auto object = object_of(model);
    int& its_rank = given(rank, "rank");
    const Dims& its_shape = object->shape_of(&given(name, "name"));
    std::int64_t* to = &given(shape, "shape");
    for (const std::int64_t extent : its_shape) *to++ = extent;
    its_rank = its_shape.size();
  });
}

keel_status keel_get_weights(keel_model* model, const char* name, const keel_array* array) {
  return call("keel_get_weights", [&] {
    const auto object = object_of(model);
    const std::string parameter = &given(name, "name");
    const auto to = array_for(*object, array);
    const Turn turn(object->site());
    object->get_weights(parameter, *to);
  });
}

keel_status keel_set_weights(keel_model* model, const char* name, const keel_array* array) {
  return call("keel_set_weights", [&] {
    const auto object = object_of(model);
    const std::string parameter = &given(name, "name");
    const auto from = array_for(*object, array);
    const Turn turn(object->site());
    object->set_weights(parameter, *from);
  });
}

keel_status keel_get_gradient(keel_model* model, const char* name, const keel_array* array) {
  return call("keel_get_gradient", [&] {
    const auto object = object_of(model);
    const std::string parameter = &given(name, "name");
    const auto to = array_for(*object, array);
    const Turn turn(object->site());
    object->get_gradient(parameter, *to);
  });
}
}
