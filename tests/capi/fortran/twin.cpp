// The C side of fortran_test.f90: the same training in row-major order, and what it and others have written.

#include <string>

#include "keel/capi/keel.h"
#include "keel/runtime/file.h"

namespace {

constexpr std::int64_t kFeatures = 4, kSamples = 8, kOutputs = 2;

}  // namespace

extern "C" {

// Three steps on x (samples, features) and y (samples, outputs), saved to `folder`. Whether all went well.
int twin_trains(float* x, float* y, const char* folder) {
  keel_context* context = nullptr;
  keel_array *in = nullptr, *out = nullptr;
  keel_model* model = nullptr;
  const std::int64_t inputs[] = {kSamples, kFeatures}, outputs[] = {kSamples, kOutputs},
                     widths[] = {kFeatures, 16, kOutputs};
  bool is_well = keel_context_create(nullptr, &context) == KEEL_OK;
  is_well = is_well && keel_array_create(context, x, KEEL_F32, KEEL_HOST, 2, inputs, nullptr, &in) == KEEL_OK;
  is_well = is_well && keel_array_create(context, y, KEEL_F32, KEEL_HOST, 2, outputs, nullptr, &out) == KEEL_OK;
  is_well = is_well && keel_model_create_mlp(context, nullptr, widths, 3, "tanh", "mse", &model) == KEEL_OK;
  for (int step = 0; step < 3; ++step)
    is_well = is_well && keel_train_step(model, in, out, 1e-2, nullptr, nullptr, nullptr) == KEEL_OK;
  is_well = is_well && keel_model_save(model, folder) == KEEL_OK;
  keel_model_destroy(&model);
  keel_array_destroy(&in);
  keel_array_destroy(&out);
  keel_context_destroy(&context);
  return is_well ? 1 : 0;
}

// Whether two folders hold the same weights and optimizer state, byte for byte.
int twin_has_same(const char* one, const char* other) {
  for (const char* name : {"/model.safetensors", "/optimizer.safetensors"})
    if (keel::read_text_file(std::string(one) + name) != keel::read_text_file(std::string(other) + name)) return 0;
  return 1;
}
}
