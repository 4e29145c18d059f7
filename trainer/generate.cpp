#include "keel/trainer/generate.h"

#include <algorithm>
#include <optional>

#include "keel/autograd/variable.h"
#include "keel/data/data_file.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/tokenizers/valid_text.h"
#include "keel/trainer/output_target.h"
#include "keel/trainer/pass_group.h"
#include "keel/trainer/trained_model.h"

namespace keel {
namespace {

// Calls `work` with the trained model's task and a pass.
void with_loaded_task(const GenerateOptions& options, Communicator& ranks,
                      const std::shared_ptr<const ConfigKeys>& keys,
                      const std::function<void(TaskBase&, Forward&)>& work) {
  const bool is_changed =
      std::ranges::any_of(options.changes, [](const std::string& change) { return change.starts_with("device="); });
  KEEL_CHECK(!is_changed || options.device == "auto", "the device is given twice, as --device ", options.device,
             " and as device=...; leave one out");
  std::vector<std::string> changes = {concat("device=", options.device)};
  changes.insert(changes.end(), options.changes.begin(), options.changes.end());
  TrainedModel trained({.path = options.run,
                        .strategy = options.strategy,
                        .changes = std::move(changes),
                        .is_exported = true,
                        .keys = keys},
                       ranks, [](LogLevel, std::string_view) {});
  trained.load();
  trained.check_finite();
  const NoGrad no_grad;
  PassGroup group(ranks);
  Forward pass{.training = false, .random = {}, .sample_ids = {}, .dtype = trained.dtype(), .group = &group};
  work(trained.task(), pass);
}

std::vector<std::string> prompts_of(const std::string& path) {
  const DatasetPtr records = open_data(path, {.empty_lines = EmptyLines::refused});
  KEEL_CHECK(records->size() > 0, "'", path, "' has no prompt");
  std::vector<std::string> prompts;
  for (std::int64_t i = 0; i < records->size(); ++i) {
    const Example record = records->example(i);
    KEEL_CHECK(record.has("prompt") || record.has("text"), "'", path, "', ", records->place(i),
               " has neither `prompt` nor `text`");
    const std::string_view field = record.has("prompt") ? "prompt" : "text";
    const Value& prompt = record[field];
    KEEL_CHECK(std::holds_alternative<std::string>(prompt), "'", path, "', ", records->place(i), ": `", field, "` is ",
               kind_of(prompt), "; a text is wanted, as in {\"prompt\": \"...\"}");
    prompts.push_back(std::get<std::string>(prompt));
    KEEL_CHECK(!prompts.back().empty(), "'", path, "', ", records->place(i), ": the prompt is empty");
  }
  return prompts;
}

}  // namespace

AnswerOptions GenerateOptions::answer() const {
  return {.tokens = tokens,
          .temperature = temperature,
          .top_k = top_k,
          .seed = seed,
          .top_p = top_p,
          .min_p = min_p,
          .repetition_penalty = repetition_penalty,
          .stop = stop};
}

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text, Communicator& ranks,
              const std::shared_ptr<const ConfigKeys>& keys) {
  // What fails on the first rank alone, such as an output that is closed, ends the others with it.
  const auto speak = [&](std::string_view text) {
    together(ranks, [&] {
      if (ranks.rank() == 0) on_text(text);
    });
  };
  with_loaded_task(options, ranks, keys,
                   [&](TaskBase& task, Forward& pass) { task.answer(options.prompt, options.answer(), pass, speak); });
}

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
              const std::shared_ptr<const ConfigKeys>& keys) {
  const std::unique_ptr<Communicator> alone = make_communicator(ThreadHub(1).connect(0));
  generate(options, on_text, *alone, keys);
}

std::int64_t generate_file(const GenerateOptions& options, const GenerateFiles& files, Communicator& ranks,
                           const std::shared_ptr<const ConfigKeys>& keys) {
  KEEL_CHECK(files.batch > 0, "a batch has at least one prompt, got ", files.batch);
  const bool is_first = ranks.rank() == 0;
  std::vector<std::string> prompts;
  std::optional<AtomicFile> file;
  together(ranks, [&] {
    prompts = prompts_of(files.prompts);
    if (!is_first) return;
    check_output_target(files.out, files.prompts, files.replaces);
    file.emplace(files.out);
  });
  with_loaded_task(options, ranks, keys, [&](TaskBase& task, Forward& pass) {
    const auto batch = static_cast<std::size_t>(files.batch);
    for (std::size_t begin = 0; begin < prompts.size(); begin += batch) {
      const auto some = std::span(prompts).subspan(begin, std::min(batch, prompts.size() - begin));
      std::vector<std::string> answers(some.size());
      AnswerOptions asked = options.answer();
      asked.first_row = begin;
      task.answer_all(some, asked, pass, [&](std::size_t i, std::string_view text) { answers[i] += text; });
      together(ranks, [&] {
        std::string storage;
        for (std::size_t i = 0; is_first && i < some.size(); ++i)
          file->write(Json({{"example", static_cast<std::int64_t>(begin + i)},
                            {"prompt", some[i]},
                            {"answer", std::string(valid_utf8(answers[i], storage))}})
                          .dump() +
                      "\n");
      });
    }
  });
  together(ranks, [&] {
    if (is_first) file->commit();
  });
  return std::ssize(prompts);
}

}  // namespace keel
