#include "keel/trainer/hub_form.h"

#include <algorithm>

#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/runtime/error.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/stack_models.h"

namespace keel {
namespace {

// PEFT has a copy of a module that is trained as a whole at each place, such as an embedding and a head, and reads
// both.
std::vector<HubTensor> with_each_place(const std::vector<HubTensor>& tensors) {
  std::vector<HubTensor> all;
  for (const HubTensor& tensor : tensors) {
    all.push_back(tensor);
    for (const std::string& name : tensor.also) {
      all.push_back(tensor);
      all.back().name = name;
    }
  }
  return all;
}

}  // namespace

HubForm hub_form_of(const Checkpoint& checkpoint, const std::string& run, const std::string& model, HubFormat format,
                    DType dtype, const std::shared_ptr<const ConfigKeys>& keys) {
  check_has_configuration(checkpoint);
  const Config config = parse_stored_config(keys, checkpoint.state.config, checkpoint.path);
  const std::unique_ptr<TaskBase> task = make_task(config, Context::create({.threads = 1}), run);
  const StackModels models(*task);
  const auto trained = models.trained();
  const auto found = std::ranges::find(trained, model, &StackModel::name);
  KEEL_CHECK(found != trained.end(), "the task ", config.task, " trains no model '", model, "'");
  HubFiles files = task->hub_files(dtype);
  if (!found->hub || !files.why_not.empty())
    throw Error(
        concat("--format ", format == HubFormat::whole ? "hf" : "peft", ": '", checkpoint.path, "' is of the task ",
               config.task, ": ", files.why_not.empty() ? "this model has no form of Hugging Face's" : files.why_not),
        ErrorKind::unsupported);
  if (format == HubFormat::whole) return {found->hub->tensors, kHubWeights, std::move(files)};
  KEEL_CHECK(found->adapters, "--format peft: the model of '", checkpoint.path,
             "' has no adapters; --format hf writes all of it");
  return {with_each_place(found->adapters->names.tensors),
          kAdapterWeights,
          {.files = {{kAdapterConfig, found->adapters->config}}}};
}

}  // namespace keel
