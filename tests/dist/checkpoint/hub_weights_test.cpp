// Weights in files of Hugging Face's form: into an engine of any stage, out of a checkpoint, and what is refused.

#include "keel/dist/checkpoint/hub_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>

#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/hub_export.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/nn/layers.h"
#include "keel/runtime/json.h"
#include "tests/dist/checkpoint/checkpoint_support.h"

namespace keel {
namespace {

using namespace testing;

constexpr std::int64_t kIn = 6, kRows = 12, kWords = 10;

struct HubBlock : Module {
  explicit HubBlock(std::int64_t in) : qkv(in, kRows), out(in, 2 * in) {}
  Linear qkv, out;
  void visit(Visitor& v) override {
    v("qkv", qkv);
    v("out", out);
  }
  bool is_unit() const override { return true; }
};

// Packed rows (q, k, v), a transposed matrix, a tied head and a head of its own.
struct HubNet : Module {
  explicit HubNet(std::int64_t in = kIn) : wte(kWords, in), score(in, 3), head(wte.weight.tie()) {
    for (int i = 0; i < 2; ++i) h.emplace_back(in);
  }
  Embedding wte;
  std::vector<HubBlock> h;
  Linear score;
  Parameter head;
  void visit(Visitor& v) override {
    v("wte", wte);
    v("h", h);
    v("score", score);
    v("head.weight", head);
  }
};

HubNames names_of_net(std::int64_t in = kIn) {
  HubNames names{.base_prefix = "base.", .ignored = {".mask"}};
  names.tensors.push_back({.name = "base.wte.weight", .parameter = "wte.weight", .shape = {kWords, in}});
  names.tensors.back().also = {"head.weight"};
  for (const std::string block : {"h.0", "h.1"}) {
    std::int64_t row = 0;
    for (const auto& [part, rows] : {std::pair("q", 6), std::pair("k", 2), std::pair("v", 4)}) {
      const std::string name = concat("base.", block, '.', part);
      names.tensors.push_back({concat(name, ".weight"), concat(block, ".qkv.weight"), {rows, in}, row});
      names.tensors.push_back({concat(name, ".bias"), concat(block, ".qkv.bias"), {rows}, row});
      row += rows;
    }
    names.tensors.push_back(
        {concat("base.", block, ".out.weight"), concat(block, ".out.weight"), {in, 2 * in}, 0, true});
    names.tensors.push_back({concat("base.", block, ".out.bias"), concat(block, ".out.bias"), {2 * in}});
  }
  names.tensors.push_back({"score.weight", "score.weight", {3, in}});
  names.tensors.push_back({"score.bias", "score.bias", {3}});
  return names;
}

// A file's tensors, and what they make of the model's parameters.
struct HubFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::vector<double>> parameters;
};

HubFile random_file(const HubNames& names, const std::vector<DType>& dtypes, std::int64_t in = kIn) {
  const Context host = testing::context(1);
  HubFile file;
  std::uint64_t seed = 1;
  for (const HubTensor& each : names.tensors) {
    const Tensor values = uniform_tensor(host, each.shape, seed, dtypes[seed % dtypes.size()]);
    ++seed;
    file.tensors.emplace_back(each.name, values);
    const std::vector<double> numbers = doubles(values);
    std::vector<double>& whole = file.parameters[each.parameter];
    if (each.transposed) {
      for (std::int64_t row = 0; row < each.shape[1]; ++row)
        for (std::int64_t column = 0; column < in; ++column)
          whole.push_back(numbers[static_cast<std::size_t>(column * each.shape[1] + row)]);
    } else {
      whole.insert(whole.end(), numbers.begin(), numbers.end());
    }
  }
  return file;
}

void write_hub(const std::string& folder, const std::vector<NamedTensor>& tensors) {
  std::filesystem::create_directories(folder);
  write_safetensors(concat(folder, '/', kHubWeights), tensors, {{"format", "pt"}});
}

// What n ranks have of the parameters after a load; the notes.
std::map<std::string, std::vector<double>> loaded_by(int n, const std::string& folder, const HubNames& names,
                                                     const ShardedOptions& options,
                                                     std::vector<std::string>* notes = {}, std::int64_t in = kIn) {
  std::map<std::string, std::vector<double>> whole;
  std::mutex guard;
  run_ranks(n, [&](Communicator& ranks) {
    HubNet net(in);
    Sharded engine(net, testing::context(1), ranks, make_adamw({}), options);
    const Manifest manifest = describe_hub_weights(folder);
    const std::vector<std::string> said = load_hub_weights(folder, manifest, names, engine, ranks);
    const std::vector<double> computed_with = whole_values(engine);
    const std::lock_guard lock(guard);
    if (notes != nullptr) *notes = said;
    std::size_t count = 0;
    for (const TensorPart& part : engine.weights()) {
      std::vector<double>& all = whole[part.name];
      all.resize(static_cast<std::size_t>(product(part.shape)));
      count += all.size();
      if (part.numel() == 0) continue;
      const std::vector<double> own = doubles(part.values);
      std::copy(own.begin(), own.end(), all.begin() + part.begin);
    }
    EXPECT_EQ(count, computed_with.size());
  });
  return whole;
}

TEST(HubWeights, ArriveInEveryStageByAnyNumberOfRanksToTheBit) {
  const TemporaryFolder place;
  const HubNames names = names_of_net();
  for (const std::vector<DType>& dtypes : std::vector<std::vector<DType>>{
           {DType::f32}, {DType::bf16}, {DType::f16}, {DType::f32, DType::bf16, DType::f16}}) {
    const HubFile file = random_file(names, dtypes);
    write_hub(place / "hub", file.tensors);
    for (const int number : {0, 1, 2, 3})
      for (const int n : {1, 2, 3, 5})
        EXPECT_TRUE(loaded_by(n, place / "hub", names, stage(number)) == file.parameters)
            << n << " ranks, stage " << number;
  }
}

TEST(HubWeights, AreComputedWithByAllRanks) {
  const TemporaryFolder place;
  const HubFile file = random_file(names_of_net(), {DType::f32});
  write_hub(place / "hub", file.tensors);
  std::vector<double> expected;  // units in the engine's order: as one rank has them, from the same parameters
  for (const int n : {1, 4})
    run_ranks(n, [&](Communicator& ranks) {
      HubNet net;
      Sharded engine(net, testing::context(1), ranks, make_adamw({}), stage(n == 1 ? 0 : 3));
      load_hub_weights(place / "hub", describe_hub_weights(place / "hub"), names_of_net(), engine, ranks);
      const std::vector<double> values = whole_values(engine);
      if (n == 1) {
        expected = values;
        double sum = 0, wanted = 0;
        for (const double value : values) sum += value;
        for (const auto& [name, numbers] : file.parameters)
          for (const double value : numbers) wanted += value;
        EXPECT_NEAR(sum, wanted, 1e-9);
      } else {
        EXPECT_EQ(values, expected);
      }
    });
}

TEST(HubWeights, AreTurnedInSeveralPiecesWhereAMatrixIsLargerThanAnExtent) {
  constexpr std::int64_t kWide = 1500;  // 3000 x 1500 fp32: 18 MB
  const TemporaryFolder place;
  const HubNames names = names_of_net(kWide);
  const HubFile file = random_file(names, {DType::f32}, kWide);
  write_hub(place / "hub", file.tensors);
  EXPECT_TRUE(loaded_by(1, place / "hub", names, stage(0), nullptr, kWide) == file.parameters);
}

TEST(HubWeights, HaveTheBaseModelsPrefixOrNotAndATiedHeadOnceOrTwice) {
  const TemporaryFolder place;
  const HubNames names = names_of_net();
  const HubFile file = random_file(names, {DType::f32});
  const auto renamed = [&](const std::function<std::string(const std::string&)>& change) {
    std::vector<NamedTensor> tensors = file.tensors;
    for (auto& [name, values] : tensors) name = change(name);
    return tensors;
  };
  const auto expect_loads = [&](const std::vector<NamedTensor>& tensors, std::string_view what) {
    write_hub(place / "hub", tensors);
    EXPECT_TRUE(loaded_by(2, place / "hub", names, stage(3)) == file.parameters) << what;
  };
  expect_loads(renamed([](const std::string& name) { return name.starts_with("base.") ? name.substr(5) : name; }),
               "without the prefix");
  expect_loads(renamed([](const std::string& name) { return name == "base.wte.weight" ? "head.weight" : name; }),
               "the head alone");
  std::vector<NamedTensor> more = file.tensors;
  more.emplace_back("head.weight", file.tensors.front().second);
  more.emplace_back("base.h.0.mask", uniform_tensor(testing::context(1), {4, 4}, 7));
  expect_loads(more, "the head twice, and what is computed");
  HubNames older = names;
  older.renamed = {{"score.gamma", "score.weight"}, {"score.beta", "score.bias"}};
  write_hub(place / "hub", renamed([](const std::string& name) {
              return name == "score.weight" ? "score.gamma" : name == "score.bias" ? "score.beta" : name;
            }));
  EXPECT_TRUE(loaded_by(2, place / "hub", older, stage(3)) == file.parameters) << "older names";
  more[more.size() - 2].second = uniform_tensor(testing::context(1), {kWords, kIn}, 99);
  write_hub(place / "hub", more);
  EXPECT_NE(error_of([&] {
              loaded_by(2, place / "hub", names, stage(0));
            }).find("has 'base.wte.weight' and 'head.weight' with different numbers"),
            std::string::npos);
}

TEST(HubWeights, OfANewHeadBeginAtRandomWhereTheModelSaysSo) {
  const TemporaryFolder place;
  HubNames names = names_of_net();
  HubFile file = random_file(names, {DType::f32});
  std::erase_if(file.tensors, [](const NamedTensor& each) { return each.first.starts_with("score."); });
  file.tensors.emplace_back("other.weight", uniform_tensor(testing::context(1), {2}, 3));
  write_hub(place / "hub", file.tensors);
  const std::string error = error_of([&] { loaded_by(1, place / "hub", names, stage(0)); });
  EXPECT_NE(error.find("missing: score.weight, score.bias; unknown to the model: other.weight;"), std::string::npos)
      << error;
  names.heads = {"score.", "other."};
  std::vector<std::string> notes;
  std::map<std::string, std::vector<double>> loaded = loaded_by(3, place / "hub", names, stage(2), &notes);
  HubNet fresh;
  run_ranks(1, [&](Communicator& ranks) {
    Sharded engine(fresh, testing::context(1), ranks, make_adamw({}), stage(0));
    for (const TensorPart& part : engine.weights())
      if (part.name.starts_with("score.")) file.parameters[part.name] = doubles(part.values);
  });
  EXPECT_TRUE(loaded == file.parameters);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("has no score.weight, score.bias: they begin at random"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("the model has no place for other.weight of"), std::string::npos) << notes[1];
}

TEST(HubWeights, OfAnotherModelAreListedInOneError) {
  const TemporaryFolder place;
  const HubNames names = names_of_net();
  HubFile file = random_file(names, {DType::f32});
  const Context host = testing::context(1);
  const auto at = [&](std::string_view name) -> Tensor& {
    return std::ranges::find(file.tensors, name, &NamedTensor::first)->second;
  };
  at("base.h.0.q.weight") = uniform_tensor(host, {kIn, 5}, 1);
  at("base.h.1.out.weight") = uniform_tensor(host, {2 * kIn, kIn}, 1);
  at("score.bias") = zeros(host, {3}, DType::i64, Purpose::workspace);
  std::erase_if(file.tensors, [](const NamedTensor& each) { return each.first == "base.h.1.k.bias"; });
  write_hub(place / "hub", file.tensors);
  for (const int n : {1, 3}) {
    const std::string error = error_of([&] { loaded_by(n, place / "hub", names, stage(3)); });
    EXPECT_NE(
        error.find(concat("the weights in '", place / "hub",
                          "' are not those of the model that its config.json describes; missing: base.h.1.k.bias; "
                          "of another shape or dtype: base.h.0.q.weight (6, 5) instead of (6, 6), "
                          "base.h.1.out.weight (12, 6) instead of (6, 12), score.bias of dtype i64; take both "
                          "from one place")),
        std::string::npos)
        << error;
  }
}

TEST(HubWeights, ThatAreNotThereSayWhatToDo) {
  const TemporaryFolder place;
  const std::string folder = place / "hub";
  std::filesystem::create_directories(folder);
  const auto expect_error = [&](std::string_view words) {
    const std::string error = error_of([&] { (void)describe_hub_weights(folder); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  expect_error("has no weights; looked for were model.safetensors and model.safetensors.index.json");
  write_text_file(folder + "/pytorch_model.bin", "PK");
  expect_error(concat("has its weights as pytorch_model.bin, which only Python can read; `scripts/convert-weights ",
                      folder, "` writes safetensors beside it"));
  write_text_file(concat(folder, '/', kShardIndex), R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  expect_error("names the file 'model-00001-of-00002.safetensors', which is not there");
  write_text_file(concat(folder, '/', kHubWeights), "version https://git-lfs.github.com/spec/v1\n");
  expect_error("model.safetensors'");
}

TEST(HubWeights, OfACheckpointAreTheFilesThatItBeganWithToTheBit) {
  const HubNames names = names_of_net();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int n : {1, 3}) {
      const TemporaryFolder place;
      const HubFile file = random_file(names, {dtype});
      write_hub(place / "hub", file.tensors);
      run_ranks(n, [&](Communicator& ranks) {
        HubNet net;
        Sharded engine(net, testing::context(1), ranks, make_adamw({}), stage(n == 1 ? 0 : 3));
        load_hub_weights(place / "hub", describe_hub_weights(place / "hub"), names, engine, ranks);
        save_checkpoint(place / "c", engine, ranks, {{"step", 0}});
      });
      const Manifest manifest = read_manifest(place / "c");
      for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{600}}) {
        const std::string out = place / concat("out", most);
        const std::size_t files =
            export_hub(place / "c", manifest, out,
                       {.tensors = names.tensors, .files = {{"config.json", "{}"}}, .dtype = dtype, .most = most});
        EXPECT_EQ(files > 1, most == 600);
        EXPECT_EQ(read_text_file(out + "/config.json"), "{}");
        EXPECT_TRUE(is_hub_folder(out));
        const Manifest written = describe_hub_weights(out);
        const Context host = testing::context(1);
        std::map<std::string, std::vector<double>> found;
        for (const TensorPart& part : ExtentReader(out, written).read("weights", host)) {
          EXPECT_EQ(part.values.dtype(), dtype);
          found[concat(part.name, part.shape)] = doubles(part.values);
        }
        std::map<std::string, std::vector<double>> expected;
        for (const auto& [name, values] : file.tensors) expected[concat(name, values.shape())] = doubles(values);
        EXPECT_TRUE(found == expected) << dtype << ' ' << n << ' ' << most;
        for (const auto& entry : std::filesystem::directory_iterator(out)) {
          EXPECT_TRUE(is_hub_file(entry.path().filename().string())) << entry.path();
          if (entry.path().extension() == ".safetensors") {
            EXPECT_EQ(SafetensorsFile(entry.path().string()).metadata().at("format"), "pt");
          }
        }
      }
    }
}

TEST(HubWeights, AreWrittenAllOrNothing) {
  const TemporaryFolder place;
  const HubNames names = names_of_net();
  HubFile file = random_file(names, {DType::f32});
  file.tensors[0].second.data<float>()[3] = 1e30F;  // too large for f16
  write_hub(place / "hub", file.tensors);
  run_ranks(1, [&](Communicator& ranks) {
    HubNet net;
    Sharded engine(net, testing::context(1), ranks, make_adamw({}), stage(0));
    load_hub_weights(place / "hub", describe_hub_weights(place / "hub"), names, engine, ranks);
    save_checkpoint(place / "c", engine, ranks, {{"step", 0}});
  });
  const Manifest manifest = read_manifest(place / "c");
  const std::vector<std::string> before = names_of(place.path());
  EXPECT_NE(error_of([&] {
              export_hub(place / "c", manifest, place / "out", {.tensors = names.tensors, .dtype = DType::f16});
            }).find("'base.wte.weight' has numbers that are not finite as f16"),
            std::string::npos);
  EXPECT_EQ(names_of(place.path()), before);
  HubNames other = names;
  other.tensors.back().parameter = "gone";
  EXPECT_NE(error_of([&] {
              export_hub(place / "c", manifest, place / "out", {.tensors = other.tensors});
            }).find("has no weights of gone"),
            std::string::npos);
  export_hub(place / "c", manifest, place / "out", {.tensors = names.tensors});
  EXPECT_NE(error_of([&] { export_hub(place / "c", manifest, place / "out", {.tensors = names.tensors}); }), "");
}

}  // namespace
}  // namespace keel
