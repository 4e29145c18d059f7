#include "keel/trainer/generate.h"

#include <filesystem>

#include "keel/data/safetensors.h"
#include "keel/kernels/update.h"
#include "keel/nn/state.h"
#include "keel/trainer/config.h"
#include "keel/trainer/device.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/run_folder.h"

namespace keel {
namespace {

// A model whose weights belong to the run; computes in fp32.
struct TrainedModel {
  Context context;
  std::unique_ptr<Task> task;
  std::vector<FlatBuffer> buffers;

  TrainedModel(const RunFolder& folder, std::string_view device, const std::shared_ptr<const ConfigKeys>& keys)
      : context(Context::create({.device = choose_device(device)})),
        task(make_task(load_config(keys, folder.config()), context.host(), folder.path())) {
    Module& model = task->model();
    for_each_parameter(model, [](const std::string&, Parameter& parameter) { parameter.set_trainable(false); });
    buffers = materialize(model, context);
    const SafetensorsFile file(folder.model());
    try {
      load_state(buffers, file.views(context.host()));
    } catch (const Error& error) { throw Error(concat("'", file.path(), "': ", error.what()), error.kind()); }
    for_each_parameter(model, [&](const std::string& name, Parameter& parameter) {
      KEEL_CHECK(kernels::all_finite(parameter.value()), "'", file.path(), "': ", name,
                 " has numbers that are not finite; an earlier checkpoint of the run may be sound");
    });
  }
};

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
              const std::shared_ptr<const ConfigKeys>& keys) {
  const RunFolder folder(options.run);
  KEEL_CHECK(std::filesystem::exists(folder.config()), "'", options.run,
             "' is not the folder of a run: it has no config.yaml");
  KEEL_CHECK(std::filesystem::exists(folder.model()), "'", options.run,
             "' has no model yet; it is written with the first checkpoint");
  const TrainedModel trained(folder, options.device, keys);
  trained.task->answer(
      options.prompt,
      {.tokens = options.tokens, .temperature = options.temperature, .top_k = options.top_k, .seed = options.seed},
      on_text);
}

}  // namespace keel
