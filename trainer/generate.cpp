#include "keel/trainer/generate.h"

#include "keel/autograd/variable.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/trainer/pass_group.h"
#include "keel/trainer/trained_model.h"

namespace keel {

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text, Communicator& ranks,
              const std::shared_ptr<const ConfigKeys>& keys) {
  TrainedModel trained({.path = options.run,
                        .strategy = options.strategy,
                        .changes = {concat("device=", options.device)},
                        .is_exported = true,
                        .keys = keys},
                       ranks, [](LogLevel, std::string_view) {});
  trained.load();
  trained.check_finite();
  const NoGrad no_grad;
  PassGroup group(ranks);
  Forward pass{.training = false, .random = {}, .sample_ids = {}, .dtype = trained.dtype(), .group = &group};
  // What fails on the first rank alone, such as an output that is closed, ends the others with it.
  const auto speak = [&](std::string_view text) {
    together(ranks, [&] {
      if (ranks.rank() == 0) on_text(text);
    });
  };
  trained.task().answer(
      options.prompt,
      {.tokens = options.tokens, .temperature = options.temperature, .top_k = options.top_k, .seed = options.seed},
      pass, speak);
}

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
              const std::shared_ptr<const ConfigKeys>& keys) {
  const std::unique_ptr<Communicator> alone = make_communicator(ThreadHub(1).connect(0));
  generate(options, on_text, *alone, keys);
}

}  // namespace keel
