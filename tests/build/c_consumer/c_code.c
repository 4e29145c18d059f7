/* Makes a model, which takes all of keel below the interface for C. */
#include <keel/capi/keel.h>
#include <stdio.h>

int main(void) {
  const int64_t widths[] = {2, 3, 1};
  keel_settings* settings = NULL;
  keel_context* context = NULL;
  keel_model* model = NULL;
  if (keel_settings_create(&settings) != KEEL_OK || keel_settings_set(settings, "threads", "1") != KEEL_OK ||
      keel_context_create(settings, &context) != KEEL_OK ||
      keel_model_create_mlp(context, settings, widths, 3, "tanh", "mse", &model) != KEEL_OK) {
    puts(keel_last_error());
    return 1;
  }
  keel_model_destroy(&model);
  keel_context_destroy(&context);
  keel_settings_destroy(&settings);
  return 0;
}
