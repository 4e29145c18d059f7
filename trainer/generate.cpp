#include "keel/trainer/generate.h"

#include <filesystem>

#include "keel/data/addition.h"
#include "keel/data/safetensors.h"
#include "keel/kernels/update.h"
#include "keel/nn/state.h"
#include "keel/trainer/config.h"
#include "keel/trainer/device.h"
#include "keel/trainer/opened_data.h"
#include "keel/trainer/run_folder.h"

namespace keel {
namespace {

// A model whose weights belong to the run; computes in fp32.
struct TrainedModel {
  Context context;
  Config config;
  std::shared_ptr<const Tokenizer> tokenizer;
  Gpt model;
  std::vector<FlatBuffer> buffers;

  TrainedModel(const RunFolder& folder, std::string_view device)
      : context(Context::create({.device = choose_device(device)})),
        config(load_config(folder.config())),
        tokenizer(load_tokenizer(folder.tokenizer())),
        model(gpt_options(config, tokenizer->vocabulary_size())) {
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

  // Calls on_token with each new token; returning false stops.
  void continue_text(std::string_view prompt, const SamplingOptions& sampling,
                     const std::function<bool(std::uint32_t)>& on_token) const {
    const std::vector<std::uint32_t> tokens = tokenizer->encode(prompt);
    KEEL_CHECK(!tokens.empty(), "--prompt is empty; give the text that the model shall continue");
    const std::vector<std::int64_t> wide(tokens.begin(), tokens.end());
    generate(model, wide, sampling, [&](std::int64_t token) {
      // A vocabulary that was rounded up has numbers that mean nothing.
      return token >= tokenizer->vocabulary_size() || on_token(static_cast<std::uint32_t>(token));
    });
  }
};

void answer_sum(const TrainedModel& trained, const GenerateOptions& options,
                const std::function<void(std::string_view)>& on_text) {
  const AdditionTask addition(static_cast<int>(trained.config.data.digits));
  const std::string prompt = addition.prompt(addition.parse_prompt(options.prompt));
  std::string written;
  trained.continue_text(prompt, {.tokens = addition.digits() + 2, .temperature = 0}, [&](std::uint32_t token) {
    written += trained.tokenizer->decode(std::span(&token, 1));
    return written.back() != '\n';
  });
  const std::optional<std::int64_t> sum = addition.parse_answer(written);
  on_text(prompt);
  on_text(sum ? std::to_string(*sum) : written + " (no number)");
}

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text) {
  const RunFolder folder(options.run);
  KEEL_CHECK(std::filesystem::exists(folder.config()), "'", options.run,
             "' is not the folder of a run: it has no config.yaml");
  KEEL_CHECK(std::filesystem::exists(folder.model()), "'", options.run,
             "' has no model yet; it is written with the first checkpoint");
  const TrainedModel trained(folder, options.device);
  if (trained.config.data.type == DataConfig::Type::addition) {
    answer_sum(trained, options, on_text);
    return;
  }
  on_text(options.prompt);
  const SamplingOptions sampling{
      .tokens = options.tokens, .temperature = options.temperature, .top_k = options.top_k, .seed = options.seed};
  trained.continue_text(options.prompt, sampling, [&](std::uint32_t token) {
    on_text(trained.tokenizer->decode(std::span(&token, 1)));
    return true;
  });
}

}  // namespace keel
