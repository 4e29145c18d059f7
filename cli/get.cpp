// `keel get`: the weights of a checkpoint as one file, or several, or as a folder of Hugging Face's form, for other
// programs.

#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "bar.h"
#include "commands.h"
#include "keel/dist/checkpoint/export.h"
#include "keel/dist/checkpoint/hub_export.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/hub_form.h"
#include "keel/trainer/run_folder.h"
#include "program_keys.h"
#include "trained_options.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGetFooter = R"(
Examples:
  keel get runs/mine --out mine.safetensors                the newest checkpoint that is whole
  keel get runs/mine --step 500 --out step-500.safetensors
  keel get runs/mine --out mine.safetensors --dtype bf16   rounded to the nearest, to even where two are
  keel get runs/mine/checkpoints/step-00000500 --out step-500.safetensors
  keel get runs/mine --best --ema --out mine.safetensors   the average of weights, of the best checkpoint
  keel get runs/mine --out mine --max-shard 5GB            a folder of files, with model.safetensors.index.json
  keel get runs/mine --format hf --out mine --dtype bf16   a folder that transformers loads: config.json, tokenizer
  keel get runs/mine --format peft --out adapters          adapters of LoRA alone, for PEFT

The file holds every tensor whole, whatever number of ranks has trained it. Without --step, a checkpoint that is damaged
is passed over, and the reason is told.)";

constexpr std::int64_t kNewest = TrainedArguments::kNewest, kHighestStep = TrainedArguments::kHighestStep;

struct GetArguments {
  std::string source, out;
  std::string dtype = "f32", max_shard, format = "keel";
  std::int64_t step = kNewest;
  bool force = false;
  bool best = false, ema = false, swa = false;
  std::string stack;
  std::string average() const { return ema ? "ema" : swa ? "swa" : ""; }
  bool is_adapter() const { return format == "peft"; }
  bool is_hub() const { return format == "hf" || is_adapter(); }
  bool is_folder() const { return is_hub() || !max_shard.empty(); }
};

DType dtype_of(const std::string& name) {
  for (const DType each : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(each)) return each;
  throw Error(concat("--dtype is f32, bf16 or f16, not '", name, "'"));
}

// What was asked for; of a run without a step, the newest of fewer steps than `below`.
Checkpoint choose(const GetArguments& arguments, std::int64_t below) {
  if (arguments.best) return find_best_checkpoint(arguments.source, program_keys());
  const auto complain = [](std::string_view what) { std::cerr << concat("keel: warning: ", printable(what), '\n'); };
  const auto step = arguments.step == kNewest ? std::nullopt : std::optional(arguments.step);
  return find_checkpoint(arguments.source, step, complain, below, program_keys());
}

// "5GB": powers of 1000, and with "iB" of 1024.
std::uint64_t bytes_of_shard(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = error == std::errc() ? text.substr(static_cast<std::size_t>(end - text.data())) : "?";
  double bytes = number;
  if (const std::size_t power = std::string_view("KMGT").find(unit.substr(0, 1)); !unit.empty() && power < 4) {
    unit.remove_prefix(1);
    bytes *= std::pow(unit == "iB" ? 1024 : 1000, static_cast<double>(power + 1));
    if (unit == "iB") unit.remove_prefix(1);
  }
  KEEL_CHECK((unit == "B" || unit.empty()) && bytes >= 1 && bytes <= 0x1p60,
             "--max-shard is a size as 5GB or 500MB, not '", printable(text, 64), "'");
  return static_cast<std::uint64_t>(bytes);
}

// Whether a folder of the format has files of this name.
bool is_of_folder(const GetArguments& arguments, const std::string& name) {
  return is_of_shards(name) || (arguments.is_hub() && is_hub_file(name));
}

// A folder may be replaced that has nothing but such files.
void check_target_folder(const GetArguments& arguments) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(arguments.out, ignored))) return;
  KEEL_CHECK(fs::is_directory(arguments.out, ignored), "--out '", arguments.out, "' is a file, and ",
             arguments.is_hub() ? concat("--format ", arguments.format) : "--max-shard",
             " writes a folder; name another one");
  KEEL_CHECK(arguments.force, "'", arguments.out, "' is there already; --force replaces it");
  for (const fs::directory_entry& entry : fs::directory_iterator(arguments.out, ignored))
    KEEL_CHECK(is_of_folder(arguments, entry.path().filename().string()), "'", arguments.out, "' has '",
               printable(entry.path().filename().string(), 64),
               "', too, and --force would remove it; name another folder");
}

void check_target(const GetArguments& arguments) {
  std::error_code ignored;
  if (arguments.is_folder()) {
    check_target_folder(arguments);
  } else {
    KEEL_CHECK(!fs::is_directory(arguments.out, ignored), "--out '", arguments.out,
               "' is a folder; name a file, or give --max-shard");
    KEEL_CHECK(arguments.force || !fs::exists(fs::symlink_status(arguments.out, ignored)), "'", arguments.out,
               "' is there already; --force replaces it");
  }
  const fs::path folder = fs::path(arguments.out).parent_path();
  KEEL_CHECK(!is_checkpoint(folder.empty() ? "." : folder.string()), "--out '", arguments.out,
             "' lies in a checkpoint, which is to stay as it is; name another folder");
}

HubForm form_of(const Checkpoint& checkpoint, const GetArguments& arguments, DType dtype) {
  const std::string meant = run_meant_by(arguments.source),
                    run = meant.empty() ? RunFolder::around(checkpoint.path) : meant;
  KEEL_CHECK(!run.empty(), "--format ", arguments.format, ": '", arguments.source,
             "' lies in no folder of a run, which has the model's config.json and its tokenizer; name the run");
  return hub_form_of(checkpoint, run, arguments.stack, arguments.is_adapter() ? HubFormat::adapters : HubFormat::whole,
                     dtype, program_keys());
}

void get(const Checkpoint& checkpoint, const GetArguments& arguments, DType dtype) {
  std::uint64_t done = 0, numbers = 0;
  std::size_t files = 0;
  const std::string section = section_of_weights(checkpoint, arguments.average(), arguments.stack);
  TensorParts tensors = checkpoint.manifest.tensors_of(section);
  const IfExists if_exists = arguments.force ? IfExists::replace : IfExists::refuse;
  const std::uint64_t most = arguments.max_shard.empty() ? UINT64_MAX : bytes_of_shard(arguments.max_shard);
  std::optional<HubForm> form;
  if (arguments.is_hub()) form = form_of(checkpoint, arguments, dtype);
  if (form) {
    tensors.clear();
    for (const HubTensor& each : form->tensors) tensors.push_back({each.name, each.shape, 0, {}});
  }
  for (const TensorPart& tensor : tensors) numbers += static_cast<std::uint64_t>(product(tensor.shape));
  {
    Bar bar("exporting");
    const auto progress = [&](std::uint64_t bytes) { bar.show(done += bytes, numbers * size_of(dtype)); };
    if (form)
      files = export_hub(checkpoint.path, checkpoint.manifest, arguments.out,
                         {.tensors = form->tensors,
                          .files = form->files.files,
                          .weights = form->weights,
                          .dtype = dtype,
                          .most = most,
                          .if_exists = if_exists,
                          .section = section,
                          .progress = progress});
    else if (arguments.max_shard.empty())
      export_weights(checkpoint.path, checkpoint.manifest, arguments.out, dtype, progress, section);
    else
      files =
          export_shards(checkpoint.path, checkpoint.manifest, arguments.out, most, if_exists, dtype, progress, section);
  }
  std::cout << printable(arguments.out) << ": " << tensors.size() << " tensors, " << numbers << " numbers in " << dtype
            << ", of step " << checkpoint.state.step;
  if (files > 0) std::cout << ", in " << files << (files == 1 ? " file" : " files");
  std::cout << '\n';
  if (!form) return;
  std::string names;
  for (const auto& [name, text] : form->files.files) names += concat(names.empty() ? "" : ", ", name);
  std::cout << "  beside them: " << names << '\n';
  for (const std::string& note : form->files.notes) std::cerr << concat("keel: note: ", printable(note), '\n');
}

int run(const GetArguments& arguments) {
  const DType dtype = dtype_of(arguments.dtype);
  KEEL_CHECK(arguments.is_hub() || arguments.format == "keel", "--format is keel, hf or peft, not '",
             printable(arguments.format, 64), "'");
  KEEL_CHECK(!arguments.is_adapter() || arguments.max_shard.empty(),
             "--format peft writes one file; leave --max-shard out");
  if (!arguments.max_shard.empty()) (void)bytes_of_shard(arguments.max_shard);
  check_target(arguments);
  KEEL_CHECK(!arguments.ema || !arguments.swa, "--ema and --swa: one file holds one of them; leave one out");
  KEEL_CHECK(!arguments.best || arguments.step == kNewest, "--best says which step; leave --step out");
  const bool is_run = !run_meant_by(arguments.source).empty();
  const bool may_have_others = is_run && arguments.step == kNewest && !arguments.best;
  for (std::int64_t below = std::numeric_limits<std::int64_t>::max();;) {
    const Checkpoint checkpoint = choose(arguments, below);
    try {
      get(checkpoint, arguments, dtype);
      return 0;
    } catch (const UnreadableCheckpoint& error) {
      if (!may_have_others) throw;
      below = checkpoint.state.step;
      std::cerr << concat("keel: warning: the checkpoint of step ", below, " is not usable: ", printable(error.what()),
                          '\n');
    }
  }
}

}  // namespace

Command get_command() {
  const auto arguments = std::make_shared<GetArguments>();
  return {.name = "get",
          .help = "Write the weights of a checkpoint into one safetensors file, or several, or for transformers.",
          .positionals = {{"RUN", "", &arguments->source, "Folder of a run, or of one checkpoint.", kRequired}},
          .options =
              {{"--out", "FILE", &arguments->out, "The file to write, or the folder of --max-shard or --format hf.",
                kRequired},
               {"--format", "NAME", &arguments->format,
                "keel: tensors alone, by keel's names; hf: a folder that Hugging Face's programs load, with adapters "
                "added to the weights; peft: one of the adapters alone."},
               {"--max-shard", "SIZE", &arguments->max_shard,
                "Several files in a folder, of at most so many bytes of numbers each, with an index."},
               {"--step", "N", {&arguments->step, 0, kHighestStep}, "Of this step."},
               {"--best", "", &arguments->best, "The best checkpoint, as checkpoint.best has found it."},
               {"--ema", "", &arguments->ema, "The moving average of the weights (ema.decay)."},
               {"--swa", "", &arguments->swa, "The mean of the weights (swa.start)."},
               {"--stack", "NAME", &arguments->stack, "The model of this name, of a task that trains several."},
               {"--dtype", "NAME", &arguments->dtype, "Of the numbers: f32, bf16 or f16."},
               {"--force", "", &arguments->force, "Replace the file where it is there already."}},
          .footer = kGetFooter,
          .run = [arguments](const Call&) { return run(*arguments); }};
}

}  // namespace keel::cli
