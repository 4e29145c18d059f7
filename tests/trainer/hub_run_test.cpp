// Runs that begin with a model of Hugging Face's form, what becomes of it, and the way back: without Python, by a
// folder that the test writes itself.

#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/hub_export.h"
#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/kernels/elementwise.h"
#include "keel/models/gpt.h"
#include "keel/models/hub_tensors.h"
#include "keel/optim/optimizer.h"
#include "keel/runtime/random.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "keel/trainer/checkpoint_list.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/evaluate_run.h"
#include "keel/trainer/generate.h"
#include "keel/trainer/hub_form.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/tiny_gpt.h"
#include "tests/trainer/hub_support.h"
#include "tests/trainer/run_laws.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

TEST(HubRun, AGpt2OfTransformersFormHasPyTorchsLogits) {
  const TemporaryFolder place;
  const std::string folder = published(place);
  const SafetensorsFile golden(KEEL_SOURCE_DIR "/tests/golden/gpt2_tiny.safetensors");
  run_ranks(1, [&](Communicator& ranks) {
    const Context context = testing::context(1);
    Gpt model(tiny_gpt());
    Sharded engine(model, context, ranks, make_sgd(), {});
    EXPECT_TRUE(load_hub_weights(folder, describe_hub_weights(folder), *gpt_names(), engine, ranks).empty());
    Forward pass;
    const Tensor tokens = kernels::cast(golden.tensor("tokens", context), DType::i64);
    EXPECT_LT(relative_error(doubles(model(tokens, pass).value()), doubles(golden.tensor("logits", context))), 1e-5);
  });
}

TEST(HubRun, BeginsWithTheWeightsInEveryStageAndGivesThemBackToTheBit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TemporaryFolder place;
    const std::string folder = published(place, published_weights(dtype));
    for (const std::string stage : {"ddp", "zero1", "zero2", "zero3"}) {
      if (dtype != DType::f32 && stage != "zero3") continue;
      const Config config = hub_run(place, concat("run-", stage), {"model.from=" + folder, concat("strategy=", stage)});
      const auto told = train_by(dtype == DType::f32 ? 3 : 2, config);
      EXPECT_NE(told[0]->messages.find(concat("the model begins with the weights in '", folder, "'")),
                std::string::npos)
          << told[0]->messages;
      const std::string out = place / concat("out-", stage);
      const HubForm form = exported(config, out, dtype);
      EXPECT_TRUE(tensors_of(out) == tensors_of(folder)) << dtype << ' ' << stage;
      EXPECT_NE(form.files.notes.at(0).find("keel's tokenizer"), std::string::npos) << form.files.notes.at(0);
      const Json kept = Json::parse(read_text_file(out + "/config.json"));
      EXPECT_EQ(kept.at("torch_dtype").string(), dtype == DType::f32    ? "float32"
                                                 : dtype == DType::bf16 ? "bfloat16"
                                                                        : "float16");
      EXPECT_EQ(kept.at("eos_token_id").integer(), 5);
      EXPECT_EQ(kept.at("vocab_size").integer(), 61);
      EXPECT_EQ(Json::parse(read_text_file(out + "/generation_config.json")).at("eos_token_id").integer(), 5);
    }
    // And from there again.
    const Config again = hub_run(place, "again", {"model.from=" + (place / "out-zero3")});
    train_by(1, again);
    exported(again, place / "out-again", dtype);
    EXPECT_TRUE(tensors_of(place / "out-again") == tensors_of(folder)) << dtype;
  }
}

TEST(HubRun, GoesOnWithWhatItHasLearntAndTakesNoShapeButTheRuns) {
  const TemporaryFolder place;
  const std::string folder = published(place);
  const std::vector<std::string> settings = {"model.from=" + folder, "steps=4", "checkpoint.every=2",
                                             "optimizer.lr=1e-2"};
  const Config whole = hub_run(place, "whole", settings), broken = hub_run(place, "broken", settings);
  train_by(2, whole);
  train_by(2, broken, 2);
  std::vector<NamedTensor> other = published_weights();
  for (const auto& [name, values] : other) kernels::scale(values, 0.5);
  published(place, other);
  const auto told = train_by(2, hub_run(place, "broken", [&] {
                               std::vector<std::string> more = settings;
                               more.push_back("resume=auto");
                               return more;
                             }()));
  EXPECT_EQ(told[0]->messages.find("begins with"), std::string::npos) << told[0]->messages;
  EXPECT_EQ(weights_of(broken).size(), weights_of(whole).size());
  EXPECT_TRUE(weights_of(broken) == weights_of(whole));
}

TEST(HubRun, HasTheSameRowsInAResumeInAnEvaluationAndFromItsOwnConfiguration) {
  const TemporaryFolder place;
  const std::vector<std::string> settings = {"model.from=" + published(place),
                                             "model.block=8",
                                             "steps=4",
                                             "checkpoint.every=2",
                                             "eval.every=4",
                                             "optimizer.lr=1e-2"};
  const Config whole = hub_run(place, "whole", settings);
  EXPECT_NE(to_yaml(whole).find("\n  block: 8\n"), std::string::npos) << to_yaml(whole);
  const auto told = train_by(1, whole);
  EXPECT_EQ(number_named(evaluated_by(1, whole.run), kValidationLoss), told[0]->validation);
  train_by(1, hub_run(place, "broken", settings), 2);
  std::vector<std::string> resumed = settings;
  resumed.push_back("resume=auto");
  const Config broken = hub_run(place, "broken", resumed);
  train_by(1, broken);
  EXPECT_TRUE(weights_of(broken) == weights_of(whole));
  const Config again = parse_config(keel_keys(), read_text_file(whole.run + "/config.yaml"), "config.yaml",
                                    {concat("run=", place / "again")});
  train_by(1, again);
  EXPECT_TRUE(weights_of(again) == weights_of(whole));
}

TEST(HubRun, TakesTheShapeAloneWhereItIsToldSo) {
  const TemporaryFolder place;
  const std::string folder = published(place);
  std::filesystem::remove(folder + "/model.safetensors");
  const Config shaped = hub_run(place, "shaped", {"model.from=" + folder, "model.weights=false"});
  const Config keyed = hub_run(
      place, "keyed", {"model.layers=2", "model.heads=4", "model.width=32", "model.block=16", "model.vocabulary=61"});
  train_by(1, shaped);
  train_by(1, keyed);
  EXPECT_TRUE(weights_of(shaped) == weights_of(keyed));
  EXPECT_NE(error_of([&] {
              train_by(2, hub_run(place, "none", {"model.from=" + folder}));
            }).find("has no weights; looked for were"),
            std::string::npos);
}

TEST(HubRun, RefusesWeightsThatAreNotFiniteByName) {
  const TemporaryFolder place;
  std::vector<NamedTensor> tensors = published_weights();
  const auto found = std::ranges::find(tensors, "transformer.h.1.mlp.c_fc.weight", &NamedTensor::first);
  found->second.data<float>()[70] = std::numeric_limits<float>::infinity();
  const std::string folder = published(place, tensors);
  for (const int n : {1, 3})
    EXPECT_NE(error_of([&] {
                train_by(n, hub_run(place, "run", {"model.from=" + folder, "strategy=zero3"}));
              })
                  .find(concat("'", folder,
                               "/model.safetensors': transformer.h.1.mlp.c_fc.weight has numbers that are not finite")),
              std::string::npos);
}

// A packed layer of keel's is two tensors of a file.
TEST(HubRun, NamesTheFilesTensorOfAPackedLayerWhoseNumbersAreNotFinite) {
  const TemporaryFolder place;
  train_by(1, hub_run(place, "llama",
                      {"model.type=llama", "model.layers=2", "model.heads=2", "model.width=16", "model.block=16"}));
  exported(hub_run(place, "llama", {}), place / "whole");
  for (const std::string bad : {"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"}) {
    std::vector<NamedTensor> tensors;
    const SafetensorsFile file(place / "whole/model.safetensors");
    for (const auto& [name, values] : file.views(context(1))) {
      tensors.emplace_back(name, kernels::clone(values));
      if (name == bad) tensors.back().second.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::string folder = place / "spoilt";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(place / "whole/config.json", folder + "/config.json");
    write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
    for (const int n : {1, 3}) {
      const std::string error = error_of([&] {
        train_by(n, hub_run(place, "run", {"model.from=" + folder, "strategy=zero3"}));
      });
      EXPECT_NE(error.find(concat("'", folder, "/model.safetensors': ", bad, " has numbers that are not finite")),
                std::string::npos)
          << error;
    }
  }
}

TEST(HubRun, SaysWhatIsWrongWithAFolderOrAName) {
  const TemporaryFolder place;
  const auto expect_error = [&](const std::string& from, std::string_view words) {
    const std::string error = error_of([&] { train_by(1, hub_run(place, "run", {"model.from=" + from})); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  const std::string folder = published(place);
  std::filesystem::remove(folder + "/config.json");
  expect_error(folder, "has no config.json");
  write_text_file(folder + "/config.json", R"({"model_type": "unheard"})");
  expect_error(folder, "config.json: model_type: keel has no model 'unheard'; it has ");
  expect_error("unheard/of", "is neither a folder nor a model of the local cache");
  expect_error("unheard/of", "`scripts/fetch-model NAME` brings a model there");
}

TEST(HubRun, KeepsAConfigOfEveryModelThatHasOneAndMissesNoneOfOldRuns) {
  const TemporaryFolder place;
  const std::vector<std::string> shape = {"model.layers=2", "model.heads=2",      "model.width=16",
                                          "model.block=16", "checkpoint.every=1", "steps=2"};
  const Config config = hub_run(place, "run", shape);
  train_by(1, config, 1);
  const std::string kept = config.run + "/config.json", text = read_text_file(kept);
  EXPECT_EQ(read_hub_spec(text, "kept")->hub_config().dump(2) + "\n", text);
  std::filesystem::remove(kept);  // as runs before there was any
  EXPECT_EQ(exported(config, place / "out").files.files.front().first, "config.json");
  std::vector<std::string> more = shape;
  more.push_back("resume=auto");
  train_by(1, hub_run(place, "run", more));
  EXPECT_EQ(read_text_file(kept), text);

  more = shape;
  more.push_back("model.bias=false");
  const Config without = hub_run(place, "without", more);
  train_by(1, without);
  EXPECT_FALSE(std::filesystem::exists(without.run + "/config.json"));
  EXPECT_NE(error_of([&] {
              exported(without, place / "refused");
            }).find("model.bias is false, and transformers' GPT-2 has biases"),
            std::string::npos);
}

TEST(HubRun, AFolderAnswersAsTheRunThatBeganWithIt) {
  const TemporaryFolder place;
  const std::string folder = published(place);
  const Config config = hub_run(place, "run", {"model.from=" + folder});
  train_by(1, config);
  std::filesystem::copy_file(config.run + "/tokenizer.json", folder + "/tokenizer.json");
  const auto said = [&](const std::string& path, int n, const std::string& strategy) {
    std::string text;
    run_ranks(n, [&](Communicator& ranks) {
      generate(
          {.run = path, .prompt = "line 3", .tokens = 60, .temperature = 1, .strategy = strategy},
          [&](std::string_view piece) { text += piece; }, ranks);
    });
    return text;
  };
  const std::string expected = said(config.run, 1, "");
  EXPECT_GT(expected.size(), 6u);
  EXPECT_EQ(said(folder, 1, ""), expected);
  EXPECT_EQ(said(folder, 3, "zero3"), expected);
  const std::string cache = place / "cache/hub/models--org--tiny";
  std::filesystem::create_directories(cache + "/refs");
  std::filesystem::create_directories(cache + "/snapshots");
  write_text_file(cache + "/refs/main", "abc");
  std::filesystem::copy(folder, cache + "/snapshots/abc");
  ASSERT_EQ(::setenv("HF_HUB_CACHE", (place / "cache/hub").c_str(), 1), 0);
  EXPECT_EQ(said("org/tiny", 1, ""), expected);
  ASSERT_EQ(::unsetenv("HF_HUB_CACHE"), 0);

  const auto loss = [&](const std::string& path) {
    std::string text;
    run_ranks(1, [&](Communicator& ranks) {
      TrainedModel trained(
          {.path = path,
           .changes = {concat("data.path=", place / "text.txt"), "batch.global=4", "batch.micro=2", "device=cpu"}},
          ranks, [](LogLevel, std::string_view) {});
      text = evaluate_run(trained, "").json().at("sets").dump();
    });
    return text;
  };
  EXPECT_EQ(loss(folder), loss(config.run));

  // A key that computes nothing is no other model.
  Json keyed = Json::parse(kPublishedConfig);
  keyed["new_key"] = 3;
  write_text_file(folder + "/config.json", keyed.dump());
  const auto with_keys = [&](const std::vector<std::string>& keys) {
    std::string text;
    run_ranks(1, [&](Communicator& ranks) {
      generate(
          {.run = folder, .prompt = "line 3", .tokens = 60, .temperature = 1, .changes = keys},
          [&](std::string_view piece) { text += piece; }, ranks);
    });
    return text;
  };
  EXPECT_EQ(with_keys({"model.ignored_keys=[new_key]"}), expected);
  EXPECT_NE(error_of([&] { with_keys({}); }).find("does not know new_key (3)"), std::string::npos);
  write_text_file(folder + "/config.json", kPublishedConfig);

  // What is wrong is said before anything is.
  const auto refused = [&](std::string_view what) {
    std::string text;
    const std::string error = error_of([&] {
      run_ranks(1, [&](Communicator& ranks) {
        generate(
            {.run = folder, .prompt = "line 3"}, [&](std::string_view piece) { text += piece; }, ranks);
      });
    });
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_EQ(text, "");
  };
  for (const char* wrong : {"[5]", "{\"eos_token_id\": ", "{\"eos_token_id\": \"x\"}"}) {
    write_text_file(folder + "/generation_config.json", wrong);
    refused(concat("'", folder, "/generation_config.json'"));
  }
  std::filesystem::remove(folder + "/generation_config.json");
  write_text_file(folder + "/tokenizer.json", find_tokenizer("byte", "")->to_json());
  refused("has 61 tokens, but the data has 256");
  EXPECT_NE(error_of([&] { said(place / "nothing", 1, ""); }), "");
}

TEST(HubRun, LanguageTakesTheTokenizerOfItsModelUnlessItIsToldAnother) {
  const TemporaryFolder place;
  const std::string folder = published(place);
  const std::vector<std::string> from = {"model.from=" + folder, "data.tokenizer=auto"};
  const std::string none = error_of([&] { train_by(1, hub_run(place, "none", from)); });
  EXPECT_NE(none.find("data.tokenizer=model is the tokenizer of model.from: "), std::string::npos) << none;
  EXPECT_NE(none.find("or name another: data.tokenizer=byte"), std::string::npos) << none;
  write_text_file(folder + "/tokenizer.json", kPublishedTokenizer);
  for (const std::string tokenizer : {"auto", "model"}) {
    for (const std::string packing : {"false", "true"}) {
      const Config config = hub_run(place, concat(tokenizer, packing),
                                    {"model.from=" + folder, "data.tokenizer=" + tokenizer, "data.packing=" + packing});
      train_by(1, config);
      EXPECT_EQ(load_tokenizer(config.run)->vocabulary_size(), 5) << tokenizer << packing;
      EXPECT_EQ(load_tokenizer(config.run)->to_json(), load_tokenizer(folder)->to_json());
    }
  }
  const std::string refused = error_of([&] { hub_run(place, "no", {"data.tokenizer=model"}); });
  EXPECT_NE(refused.find("there is no model.from whose tokenizer could be taken"), std::string::npos) << refused;
}

// The tokenizer of a published folder, with and without its template.
TEST(HubRun, PromptsAndDocumentsBeginAsTheTokenizersTemplateSays) {
  const TemporaryFolder place;
  const std::string with = published(place), without = published(place, published_weights(), "plain");
  write_text_file(with + "/tokenizer.json", kPublishedTokenizer);
  Json plain = Json::parse(kPublishedTokenizer);
  plain["post_processor"] = Json();
  write_text_file(without + "/tokenizer.json", plain.dump());
  const auto scored = [&](const std::string& path, const std::string& text) {
    write_text_file(place / "asked.txt", text + '\n');
    return predicted_by(1, path, place / "asked.txt");
  };
  EXPECT_EQ(scored(with, "line 3 4"), scored(without, "<s> line 3 4"));
  EXPECT_NE(scored(with, "line 3 4"), scored(without, "line 3 4"));

  const std::string texts = place / "documents.txt";
  write_text_file(texts, "line 3\nline 4 line\n");
  const auto tokens = [&](const std::string& folder, const std::string& run) {
    const Config config =
        hub_run(place, run,
                {"model.from=" + folder, "data.tokenizer=model", "data.packing=true", "data.validation=0",
                 concat("data.path=", texts), "batch.global=1", "batch.micro=1"});
    TaskSite site;
    site.settings = config;
    site.host = testing::context(1);
    site.rows = site.validation_rows = 1;
    const Data data = keel_keys()->tasks().find("language")->make(site)->data();
    const Tensor ids = kernels::cast(data.training->load_all(0)["input_ids"], DType::i64);
    return ids.to_vector<std::int64_t>();
  };
  EXPECT_EQ(tokens(without, "a"), (std::vector<std::int64_t>{2, 3, 2, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(tokens(with, "b"), (std::vector<std::int64_t>{1, 2, 3, 1, 2, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace keel
