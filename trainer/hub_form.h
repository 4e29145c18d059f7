#pragma once
// A run's model in the form that Hugging Face's programs read, for `keel get --format hf` and `--format peft`.

#include <memory>
#include <string>
#include <vector>

#include "keel/tasks/task.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"

namespace keel {

enum class HubFormat : unsigned char {
  whole,     // with what adapters add
  adapters,  // these alone, with what is trained beside them, as PEFT has them
};

struct HubForm {
  std::vector<HubTensor> tensors;
  std::string weights;  // the file's name, where there is one
  HubFiles files;
};

// Of the model of this name ("": the only one) that the checkpoint has, with weights of the dtype. `run`: the folder of
// its run, whose files stand for those of the data. An Error where the task or the model has no such form.
HubForm hub_form_of(const Checkpoint& checkpoint, const std::string& run, const std::string& model, HubFormat format,
                    DType dtype, const std::shared_ptr<const ConfigKeys>& keys);

}  // namespace keel
