// A code in C with a loss of its own. It calibrates an instrument: a model learns a curve from measurements, of which
// every seventh is far off. The mean of squares is drawn away by those; log(cosh()) of the error hardly is.
//
// Two threads are two ranks, each with half of the measurements. No MPI is needed.

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "keel/capi/keel.h"

#define RANKS 2
#define SAMPLES 70  // of a rank
#define STEPS 600

// What keel says is wrong ends this program; a code with a way to go on would take it.
static void must(keel_status status) {
  if (status == KEEL_OK) return;
  fprintf(stderr, "embed_loss: %s: %s\n", keel_status_name(status), keel_last_error());
  exit(1);
}

// The mean of log(cosh(error)) over the samples, and its derivative by each output, tanh(error) / samples.
static int log_cosh(int outputs, const keel_view* output, const keel_view* target, const keel_view* weights,
                    const keel_view* gradient, double* loss, char message[KEEL_MESSAGE], void* user) {
  const float* answer = output->memory;   // dense, (samples, 1)
  const double* wanted = target->memory;  // the host's own array, as it lies
  float* slope = gradient->memory;        // as the output
  const int64_t samples = output->shape[0];
  (void)outputs, (void)weights, (void)user;  // one output, and each sample weighs 1
  *loss = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const double error = answer[i] - wanted[i * target->strides[0]];
    if (!isfinite(error)) {
      snprintf(message, KEEL_MESSAGE, "sample %d is no number", (int)i);
      return 1;  // ends the step on all ranks, with this text
    }
    *loss += log(cosh(error)) / (double)samples;
    slope[i] = (float)(tanh(error) / (double)samples);
  }
  return 0;
}

typedef struct {
  keel_team* team;
  int rank;
  double error[2];  // at the good measurements, learned by squares and by log_cosh
} Part;

static double curve(double x) { return sin(2 * x); }

static double learn(keel_context* context, const double* x, const double* y, int has_own_loss) {
  const int64_t shape[2] = {SAMPLES, 1};
  double answer[SAMPLES];
  keel_array *inputs = NULL, *targets = NULL, *answers = NULL;
  must(keel_array_create(context, (void*)x, KEEL_F64, KEEL_HOST, 2, shape, NULL, &inputs));
  must(keel_array_create(context, (void*)y, KEEL_F64, KEEL_HOST, 1, shape, NULL, &targets));
  must(keel_array_create(context, answer, KEEL_F64, KEEL_HOST, 1, shape, NULL, &answers));

  keel_model* model = NULL;
  must(keel_model_create_text(context, NULL, "dense 32 tanh; dense 32 tanh; dense 1", 1, "mse", &model));
  if (has_own_loss) must(keel_model_loss(model, log_cosh, NULL));
  for (int step = 0; step < STEPS; ++step)
    must(keel_train_step(model, inputs, targets, 1e-2 * (1 - step / (double)STEPS), NULL, NULL, NULL));
  must(keel_infer(model, inputs, answers));

  double sum = 0;
  int good = 0;
  for (int i = 0; i < SAMPLES; ++i) {
    if (i % 7 == 3) continue;
    sum += pow(answer[i] - curve(x[i]), 2);
    ++good;
  }
  must(keel_model_destroy(&model));
  must(keel_array_destroy(&inputs));
  must(keel_array_destroy(&targets));
  must(keel_array_destroy(&answers));
  return sqrt(sum / good);
}

static void* run(void* argument) {
  Part* part = argument;
  keel_settings* settings = NULL;
  must(keel_settings_create(&settings));
  must(keel_settings_set(settings, "threads", "1"));
  must(keel_settings_set(settings, "strategy", "zero2"));  // gradients and optimizer state are spread over the ranks
  keel_context* context = NULL;
  must(keel_context_create_thread(part->team, part->rank, settings, &context));

  double x[SAMPLES], y[SAMPLES];
  for (int i = 0; i < SAMPLES; ++i) {
    x[i] = -2 + 4 * (RANKS * i + part->rank) / (RANKS * SAMPLES - 1.0);
    y[i] = i % 7 == 3 ? 5 : curve(x[i]);
  }
  for (int has_own_loss = 0; has_own_loss < 2; ++has_own_loss)
    part->error[has_own_loss] = learn(context, x, y, has_own_loss);
  must(keel_context_destroy(&context));
  must(keel_settings_destroy(&settings));
  return NULL;
}

int main(void) {
  keel_team* team = NULL;
  must(keel_team_create(RANKS, 60, &team));
  pthread_t threads[RANKS];
  Part parts[RANKS];
  for (int rank = 0; rank < RANKS; ++rank) {
    parts[rank] = (Part){team, rank, {0, 0}};
    if (pthread_create(&threads[rank], NULL, run, &parts[rank]) != 0) return 1;
  }
  int is_well = 1;
  for (int rank = 0; rank < RANKS; ++rank) {
    pthread_join(threads[rank], NULL);
    printf("rank %d  error by squares %.3f, by log(cosh()) %.3f\n", rank, parts[rank].error[0], parts[rank].error[1]);
    is_well = is_well && parts[rank].error[1] < 0.3 && parts[rank].error[0] > 2 * parts[rank].error[1];
  }
  must(keel_team_destroy(&team));
  return is_well ? 0 : 1;
}
