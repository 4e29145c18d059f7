// Single rows of other trainers' files, and what a user says beside them.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/config/values.h"
#include "keel/runtime/file.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/load.h"
#include "keel/trainer/foreign/translation.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"
#include "tests/trainer/foreign_support.h"

namespace keel {
namespace {

using testing::golden;
using testing::kAdditions;
using testing::small;
using testing::TemporaryFolder;
using testing::Words;

struct ForeignRows : ::testing::Test {
  TemporaryFolder folder;

  std::string written(std::string_view text) const {
    write_text_file(folder / "other", text);
    return folder / "other";
  }
  Config read(std::string_view text, Words more = {}) const {
    return load_any_config(keel_keys(), {written(text)}, small(std::move(more)));
  }
  std::string refusal(std::string_view text, Words more = {}) const {
    return testing::error_of([&] { (void)read(text, std::move(more)); });
  }
};

TEST_F(ForeignRows, OfRanksAreThoseOfOneMachineWhereNothingSaysOtherwise) {
  const std::string params = "transformers-params: {mode: train}\n";
  const auto ranks_of = [&](const std::string& more) { return launch_of(written(params + more)).ranks; };
  EXPECT_EQ(ranks_of("dist-params: {gpus: 3}\n"), 3);
  EXPECT_EQ(ranks_of("dist-params: {gpus: 3, nodes: 1}\n"), 3);
  EXPECT_EQ(ranks_of("dist-params: {gpus: 3, nodes: 2}\n"), 6);
  EXPECT_EQ(ranks_of("dist-params: {gpus: 100000, nodes: 2}\n"), 100000) << "as many as there may be";
  EXPECT_EQ(ranks_of("dist-params: {nodes: 2}\n"), std::nullopt);
}

TEST_F(ForeignRows, OfABatchAreAtLeastOne) {
  const std::string needed = ": must be at least 1";
  for (const char* zero : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    std::string text =
        "{\"train_batch_size\": 1,\n\"train_micro_batch_size_per_gpu\": 1,\n"
        "\"gradient_accumulation_steps\": 1}";
    EXPECT_EQ(read(text).batch.micro, 1);
    EXPECT_EQ(read(text).batch.global, 1);
    const std::size_t at = text.find(':', text.find(zero)) + 2;
    text[at] = '0';
    EXPECT_NE(refusal(text).find(needed), std::string::npos) << zero << ": " << refusal(text);
    text.replace(at, 1, "-1");
    EXPECT_NE(refusal(text), "") << zero;
  }
}

// DeepSpeed's Adam decouples the decay unless it is told not to; its own options have no decay.
TEST_F(ForeignRows, OfAdamAreAdamWUnlessTheySayOtherwise) {
  const auto optimizer_of = [&](const std::string& type, const std::string& params) {
    const auto read_one = read(concat("{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"", type,
                                      "\", \"params\": {\"lr\": 0.1", params, "}}}"))
                              .optimizer;
    return concat(read_one.type, ' ', read_one.weight_decay);
  };
  const std::string adam = optimizer_of("Adam", ", \"adam_w_mode\": false"), plain = optimizer_of("Adam", "");
  EXPECT_TRUE(adam.starts_with("Adam ")) << adam;
  EXPECT_EQ(plain, "AdamW 0");
  EXPECT_EQ(optimizer_of("Adam", ", \"adam_w_mode\": true"), "AdamW 0");
  EXPECT_EQ(optimizer_of("AdamW", ""), "AdamW 0");
  EXPECT_EQ(optimizer_of("AdamW", ", \"weight_decay\": 0.5"), "AdamW 0.5");
  EXPECT_EQ(optimizer_of("Adam", ", \"weight_decay\": 0.5, \"adam_w_mode\": true"), "AdamW 0.5");
  EXPECT_NE(refusal("{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.1,\n"
                    "\"adam_w_mode\": \"perhaps\"}}}")
                .find(":2: optimizer.params.adam_w_mode: expects true or false, got 'perhaps'"),
            std::string::npos);
}

TEST_F(ForeignRows, OfLambHaveAnEpsilonOfTheirOwn) {
  const auto eps_of = [&](const std::string& type, const std::string& params) {
    return read(concat("{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"", type, "\", \"params\": {", params,
                       "}}}"))
        .optimizer.eps;
  };
  EXPECT_EQ(eps_of("Lamb", "\"lr\": 0.1"), 1e-8) << "DeepSpeed's, and not the optimizer's own";
  EXPECT_EQ(eps_of("Lamb", "\"eps\": 1e-3"), 1e-3);
  EXPECT_EQ(eps_of("AdamW", "\"eps\": 1e-3"), 1e-3);
}

// A folder counts where the optimizer's state or the parameters lie in files; words for none are none.
TEST_F(ForeignRows, OfAFolderForFilesCountWhereSomethingLiesInThem) {
  const auto folder_of = [&](const std::string& text) {
    const ForeignTranslation file = translate_file(keel_keys(), written(text), kAdditions, 1);
    EXPECT_FALSE(file.is_refused()) << file.problems();
    const std::string yaml = file.yaml(keel_keys()->schema("language"), {}), key = "offload_folder: ";
    const std::size_t at = yaml.find(key);
    return at == std::string::npos ? "" : yaml.substr(at + key.size(), yaml.find('\n', at) - at - key.size());
  };
  const auto deepspeed = [&](const std::string& optimizer, const std::string& parameters, const std::string& path) {
    return folder_of(
        concat("{\"train_batch_size\": 4, \"zero_optimization\": {\"stage\": 3,\n"
               "\"offload_optimizer\": {\"device\": \"",
               optimizer, "\", \"nvme_path\": ", path,
               "},\n"
               "\"offload_param\": {\"device\": \"",
               parameters, "\"}}}"));
  };
  const auto accelerate = [&](const std::string& optimizer, const std::string& parameters, const std::string& path) {
    return folder_of(
        concat("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
               "  offload_optimizer_device: ",
               optimizer, "\n  offload_param_device: ", parameters, "\n  offload_param_nvme_path: ", path, "\n"));
  };
  EXPECT_EQ(deepspeed("cpu", "cpu", "\"/local/files\""), "") << "nothing lies in files";
  EXPECT_EQ(accelerate("cpu", "none", "/local/files"), "");
  for (const auto& [optimizer, parameters] :
       {std::pair("nvme", "none"), {"nvme", "nvme"}, {"nvme", "cpu"}, {"cpu", "nvme"}}) {
    SCOPED_TRACE(concat(optimizer, ", ", parameters));
    EXPECT_EQ(deepspeed(optimizer, parameters, "\"/local/files\""), "/local/files");
    EXPECT_EQ(accelerate(optimizer, parameters, "/local/files"), "/local/files");
  }
  for (const std::string none : {"none", "\"null\"", "\"\""}) {
    EXPECT_EQ(deepspeed("nvme", "nvme", none == "none" ? "\"none\"" : none), "") << none;
    EXPECT_EQ(accelerate("nvme", "nvme", none), "") << none;
  }
}

TEST_F(ForeignRows, OfAcceleratesOffloadAreBothPlacesOrNone) {
  const auto places_of = [&](const char* flag) {
    const Config config = read(concat("distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: ", flag, "\n"));
    return std::pair(config.sharding.offload_optimizer, config.sharding.offload_parameters);
  };
  EXPECT_EQ(places_of("true"), std::pair(Residence::host, Residence::host));
  EXPECT_EQ(places_of("false"), std::pair(Residence::device, Residence::device));
}

TEST_F(ForeignRows, OfAutoTakeAPrecisionFromAStrategyAndNothingElseFromIt) {
  const std::string bf16 = "{\"train_batch_size\": 4,\n \"bf16\": {\"enabled\": \"auto\"}}";
  EXPECT_EQ(to_string(read(bf16, {"strategy=zero1-bf16"}).strategy), "zero1-bf16");
  EXPECT_EQ(to_string(read(bf16, {"precision=bf16"}).strategy), "bf16");
  EXPECT_EQ(refusal(bf16),
            concat(folder / "other", ":2: bf16.enabled: auto: nothing says what it is; give precision=VALUE"));
  EXPECT_EQ(
      refusal("{\"train_batch_size\": 4,\n \"train_micro_batch_size_per_gpu\": \"auto\"}", {"strategy=zero1-bf16"}),
      concat(folder / "other",
             ":2: train_micro_batch_size_per_gpu: auto: nothing says what it is; give batch.micro=VALUE"));
}

TEST_F(ForeignRows, OfASectionThatTheUserGivesWholeAreAnswered) {
  const std::string hps = "hps:\n  max_steps: 2\n  batch_size: 4\n  optimizer: {type: SGD, momentum: 0.5}\n";
  const auto told_with = [&](const Words& more) {
    std::string momentum;
    for (const ForeignTold& told : translate_file(keel_keys(), written(hps), small(more), 1).told)
      if (told.key == "hps.optimizer.momentum") momentum = concat(name_of(told.verdict), ": ", told.text);
    return momentum;
  };
  EXPECT_EQ(told_with({}), "mapped: optimizer.momentum: 0.5; the optimizer's options by PyTorch's names");
  EXPECT_EQ(told_with({"optimizer={type: Adam, lr: 0.1}"}), "yours: your own optimizer.* stands instead");
  EXPECT_EQ(read(hps, {"optimizer={type: Adam, lr: 0.1}"}).optimizer.type, "Adam");
}

// What is printed for a file is the configuration that the file means.
TEST_F(ForeignRows, ArePrintedAsKeelsOwnFile) {
  for (const char* name : {"hps.yaml", "parameters.yml", "deepspeed.json", "accelerate_old.yaml"}) {
    const Words words =
        small({"run=here", "seed=12", "optimizer.lr=3e-3", "strategy=zero2-bf16", "log={every: 3, peak_flops: 1e9}"});
    const ForeignTranslation file = translate_file(keel_keys(), golden(name), words, 2);
    const std::string yaml = file.yaml(keel_keys()->schema("language"), words);
    EXPECT_EQ(to_yaml(parse_config(yaml, "c.yaml")), to_yaml(config_of(keel_keys(), file, golden(name), words)))
        << yaml;
    EXPECT_EQ(testing::error_of([&] { (void)file.yaml(keel_keys()->schema("language"), {"seed"}); }),
              "'seed': expects KEY=VALUE, as in optimizer.lr=3e-4");
  }
}

// A name of 42 characters is within a third of 64 from what has 22 more, and not within a third of 63 or 65.
TEST_F(ForeignRows, OfALongNameHaveTheNearestKeyToItsFirst64Characters) {
  static const std::string name = "s." + std::string(39, 'a') + 'b';
  static const ForeignRow rows[] = {foreign::taken(name, "a row of a test"), foreign::taken("q", "another")};
  const ForeignKind kind = {.name = "made", .title = "a made-up kind", .signs = "s", .about = "", .rows = rows};
  const auto told_of = [&](const std::string& key) {
    const YamlNode root = read_foreign("made.yaml", concat("s:\n  ", key, ": 1\n"));
    return translate(kind, "made.yaml", root, {keel_keys()->schema("language")}).problems();
  };
  const std::string a(39, 'a'), known = "is no key of a made-up kind that keel knows";
  const auto likely = [&](const std::string& key) {
    return concat("made.yaml:2: s.", key, ": ", known, ", did you mean '", name, "'?");
  };
  const auto none = [&](const std::string& key) {
    return concat("made.yaml:2: s.", key, ": ", known, ", and may change results; remove it");
  };
  const std::string near = a + std::string(22, 'x') + 'b', far = a + std::string(23, 'x') + 'b';
  EXPECT_EQ(told_of(near), likely(near));
  EXPECT_EQ(told_of(near + std::string(500, 'y')), likely(near + std::string(500, 'y')));
  EXPECT_EQ(told_of(far), none(far));
}

// The same of the last word of a key in a section that no key of that name has.
TEST_F(ForeignRows, OfALongWordHaveTheNearestWordToItsFirst64Characters) {
  const std::string a(41, 'a'), name = concat("elsewhere.", a, 'b');
  const ForeignRow rows[] = {foreign::taken("s.q", "a row of a test"), foreign::taken(name, "another")};
  const ForeignKind kind = {.name = "made", .title = "a made-up kind", .signs = "s", .about = "", .rows = rows};
  const auto is_likely = [&](const std::string& word) {
    const YamlNode root = read_foreign("made.yaml", concat("s:\n  ", word, ": 1\n"));
    const std::string told = translate(kind, "made.yaml", root, {keel_keys()->schema("language")}).problems();
    return told.ends_with(concat(", did you mean '", a, "b'?"));
  };
  const std::string near = a + std::string(22, 'x') + 'b';
  EXPECT_TRUE(is_likely(near));
  EXPECT_TRUE(is_likely(near + std::string(500, 'y')));
  EXPECT_FALSE(is_likely(a + std::string(23, 'x') + 'b'));
}

// Of kinds with `auto` and sections that become sections, of which keel has none of its own.
TEST_F(ForeignRows, OfSectionsWithAutoTakeTheKeyOfTheSameWord) {
  const ForeignRow rows[] = {foreign::mapped("s.*", "optimizer.*"),
                             foreign::mapped("batch", "batch.micro|batch.global"), foreign::mapped("clip_it", "clip"),
                             foreign::mapped("clip_too", "clip")};
  const ForeignKind kind = {
      .name = "made", .title = "a made-up kind", .signs = "s", .about = "", .rows = rows, .has_auto = true};
  const auto told = [&](const std::string& text, ForeignRequest request) {
    std::string all;
    for (const ForeignTold& each : translate(kind, "m", read_foreign("m", text), request).told)
      all += concat(each.key, ' ', name_of(each.verdict), ": ", each.text, '\n');
    return all;
  };
  const Schema& schema = keel_keys()->schema("language");
  EXPECT_EQ(told("s: {lr: auto, nesterov: 3}\nbatch: auto\n", {schema}),
            "s.lr refused: auto: nothing says what it is; give optimizer.lr=VALUE\n"
            "s.nesterov mapped: optimizer.nesterov: 3\n"
            "batch refused: auto: nothing says what it is; give batch.micro=VALUE\n");
  EXPECT_EQ(told("s: {lr: auto}\nbatch: auto\n", {schema, {"optimizer.lr=2", "batch.micro=3"}}),
            "s.lr yours: optimizer.lr: 2, as is said beside it\nbatch yours: batch.micro: 3, as is said beside it\n");
  EXPECT_EQ(told("s: {lr: 4}\nclip_it: auto\n", {schema, {"clip=2"}}),
            "s.lr mapped: optimizer.lr: 4\nclip_it yours: clip: 2, as is said beside it\n");
  EXPECT_EQ(told("s: {learning_rate: 4}\nbatch: 1\n", {schema, {"batch.micro=3"}}),
            "s.learning_rate mapped: optimizer.lr: 4\nbatch taken: asks for nothing that keel does otherwise\n");
  EXPECT_EQ(told("s: {lr: 4}\nclip_it: 0.5\nclip_too: auto\n", {schema}),
            "s.lr mapped: optimizer.lr: 4\nclip_it mapped: clip: 0.5\n"
            "clip_too yours: clip: 0.5, as is said beside it\n");
  // A configuration beside it is not contradicted, unless the file is there to replace it.
  ForeignRequest beside = {schema};
  beside.own_yaml = "clip: 3\n";
  beside.own_name = "own";
  EXPECT_EQ(told("clip_it: 3.0\n", beside), "clip_it taken: asks for nothing that keel does otherwise\n");
  EXPECT_EQ(told("clip_it: 4\n", beside), "clip_it refused: makes clip 4, and own says 3; remove one of the two\n");
  beside.replaces = true;
  EXPECT_EQ(told("clip_it: 4\n", beside), "clip_it mapped: clip: 4\n");
}

TEST_F(ForeignRows, OfJsonMayBeIndentedByTabsAndThoseOfYamlMayNot) {
  const auto value_of = [](const YamlNode& root, std::size_t entry) { return flow_text(root.entries.at(entry).value); };
  const YamlNode root = read_foreign("m", "\t \n{\n\t\"a\": \"x\ty\",\n \t \t\"b\": {\n\t\t\"c\": 1},\n\"d\": 2}\n");
  ASSERT_EQ(root.entries.size(), 3u);
  EXPECT_EQ(root.entries[0].value.text, "x\ty") << "a tab that is no indentation stays one";
  EXPECT_EQ(value_of(root, 1), "{c: 1}");
  EXPECT_EQ(value_of(root, 2), "2");
  EXPECT_EQ(root.entries[2].line, 6);
  EXPECT_EQ(testing::error_of([] { (void)read_foreign("m", "a:\n\tb: 1\n"); }),
            "m:2: a tab is used as indentation; use spaces");
  EXPECT_EQ(testing::error_of([] { (void)read_foreign("m", "a: 1\na: 2\nb: [\n"); }).substr(0, 2), "m:");
  for (const char* nothing : {"", " \t\n"}) EXPECT_TRUE(read_foreign("m", nothing).entries.empty());
}

}  // namespace
}  // namespace keel
