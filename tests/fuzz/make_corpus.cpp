// Writes the corpus that scripts/fuzz begins with: make_corpus FOLDER. Names that begin with "good" are of files that
// the readers take; the others are near them.

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <vector>

#include "keel/data/columns.h"
#include "keel/data/safetensors.h"
#include "keel/data/token_file.h"
#include "keel/dist/checkpoint/save.h"
#include "keel/dist/checkpoint/sealed_text.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/dist/comm/tcp_connection.h"
#include "keel/nn/layers.h"
#include "keel/nn/tensor_parts.h"
#include "keel/optim/optimizer.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/runtime/xxh3.h"
#include "keel/tokenizers/plain_tokenizers.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "tests/dist/lab/sample_report.h"
#include "tests/fuzz/old_checkpoint.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

std::string folder;

void keep(const std::string& target, const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(folder + "/" + target);
  write_text_file(folder + "/" + target + "/" + name, bytes);
}

template <class T>
std::string bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return bytes_of(values.data(), values.size());
}

std::string replaced(std::string text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  KEEL_CHECK(at != std::string::npos, "'", old, "' is not there");
  return text.replace(at, old.size(), with);
}

void make_foreign() {
  for (const char* name : {"accelerate.yaml", "accelerate_fsdp.yaml", "configs.json", "configs_heads.json",
                           "deepspeed.json", "hps.yaml", "parameters.yml"})
    keep("foreign", concat("good-", name), read_text_file(concat(KEEL_SOURCE_DIR "/tests/golden/foreign/", name)));
  keep("foreign", "auto.json", read_text_file(KEEL_SOURCE_DIR "/tests/golden/foreign/deepspeed_auto.json"));
}

void make_configs() {
  for (const char* name : {"addition.yaml", "table.yaml", "text.yaml"})
    keep("config", concat("good-", name), read_text_file(concat(KEEL_SOURCE_DIR "/examples/", name)));
  keep("config", "good-resolved.yaml",
       to_yaml(parse_config("steps: 10\ndata: {type: addition}\nscheduler: {type: OneCycleLR}\nstrategy: zero3-bf16\n"
                            "optimizer: {type: AdamW8bit, groups: [{match: bias, weight_decay: 0}]}\n",
                            "made.yaml")));
  keep(
      "config", "good-task.yaml",
      "steps: 10\ndata: {type: addition, names: [a, 'b c']}\ntask: {kind: c, path: \"x y\", ratio: 1e-3, flag: false}\n"
      "model: {sizes: [3], rates: [0.5]}\n");
  keep("config", "anchor.yaml", "steps: &a 10\nwarmup: *a\n");
  keep("config", "tab.yaml", "model:\n\tlayers: 2\n");
  keep("config", "open.yaml", "model: {layers: [2, \"x\n");
  keep("config", "deep.yaml", std::string(600, '[') + std::string(600, ']'));
}

void make_jsons() {
  keep("json", "good-values.json",
       R"({"a": [1, -2, 2.5e-3, true, false, null], "b": {"c": "\u00e4\n\ud83d\ude00"}, "a": 18446744073709551615})");
  keep("json", "deep.json", std::string(70, '[') + std::string(70, ']'));
  keep("json", "large-number.json", "[1e999, -0]");
  keep("json", "surrogate.json", R"(["\ud83d", "\xff"])");
}

void make_tokenizers() {
  const Json pipelines = Json::parse(read_text_file(KEEL_SOURCE_DIR "/tests/golden/tokenizers_pipelines.json"));
  for (const Json& each : pipelines.at("cases").items())
    keep("tokenizer", concat("good-", each.at("name").string(), ".json"), each.at("file").string());
  keep("tokenizer", "good-bytes.json", ByteTokenizer().to_json());
  keep("tokenizer", "good-characters.json", CharacterTokenizer::of_text("a\xc3\xa9z").to_json());
  keep("tokenizer", "no-model.json", R"({"version": "1.0", "model": {"type": "BPE"}})");
}

// A field of protobuf that has a length, and one that is a number.
std::string field(int number, std::string_view bytes) {
  return concat(static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size()), bytes);
}
std::string number_field(int number, int value) {
  return concat(static_cast<char>(number << 3), static_cast<char>(value));
}

// ModelProto of SentencePiece: pieces (1) with text (1), score (2) and type (3), and the trainer's kind of model (2,
// 3).
void make_sentence_pieces() {
  std::string pieces;
  const auto add = [&](std::string_view text, float score, int type) {
    pieces +=
        field(1, concat(field(1, text), static_cast<char>(2 << 3 | 5), bytes_of(&score, 1), number_field(3, type)));
  };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  for (const char* text : {"\xe2\x96\x81", "a", "b", "e", "l", "o",
                           "\xe2\x96\x81"
                           "a",
                           "lo"})
    add(text, -1.5f, 1);
  keep("sentencepiece", "good-unigram.model", pieces);
  keep("sentencepiece", "good-bpe.model", pieces + field(2, number_field(3, 2)));
  keep("sentencepiece", "no-unknown.model", field(1, field(1, "a")));
  keep("sentencepiece", "cut.model", pieces.substr(0, pieces.size() - 3));
}

void make_tables() {
  keep("csv", "good-fields.csv", "a,p0,p1,label,text\n1,-2.5e3,.5,7,\"say \"\"x\"\"\"\r\n\n+2,3.,4,-8,\"two\nlines\"");
  keep("csv", "good-tabs.csv", "1\t2\ttext, text\n12345678901234567890123\t1e-300\t\n");
  keep("csv", "ragged.csv", "a,b\n1,2\n3\n");
  keep("csv", "stray-quote.csv", "a,b\n1,2\"\n");
  keep("csv", "open-quote.csv",
       "\xef\xbb\xbf"
       "a\n\"1\n2\n");
}

void make_lines() {
  keep(
      "jsonl", "good-lines.jsonl",
      "{\"text\": \"a\\n\\u00e4\\ud83d\\ude00\", \"ids\": [1, -23, 4567890, 12345678901], \"m\": [[1, 2.5], [3, "
      "4e1]]}\n\n"
      "{\"o\": {\"a\": [\"x\", {}]}, \"yes\": true, \"none\": null, \"large\": 18446744073709551616, \"e\": []}\r\n{}");
  keep("jsonl", "cut.jsonl", "{\"a\": 1}\n{\"text\": \"a\n");
  keep("jsonl", "twice.jsonl", "{\"a\": 1, \"a\": 2}\n");
  keep("jsonl", "surrogate.jsonl", "{\"a\": \"\\ud83d\"}\n");
  keep("jsonl", "deep.jsonl", "{\"a\": " + std::string(70, '[') + std::string(70, ']') + "}\n");
}

void make_reports() {
  lab::Report report = lab::sample_report();
  report.records.resize(2);
  const std::string text = lab::to_json(report);
  keep("report", "good-report.json", text);
  for (lab::Record& record : report.records) record.algorithm = "ring";
  keep("report", "good-series.json", lab::to_json(report));
  keep("report", "later-version.json",
       replaced(text, concat("\"version\": ", lab::Report::kVersion),
                concat("\"version\": ", lab::Report::kVersion + 1)));
  keep("report", "no-ranks.json", replaced(text, "\"ranks\": 3", "\"ranks\": -3"));
}

void make_safetensors(const std::string& scratch) {
  const Context context = testing::context(1);
  const auto write = [&](const std::string& name, std::span<const NamedTensor> tensors, const Metadata& metadata) {
    write_safetensors(scratch, tensors, metadata);
    const std::string bytes = read_text_file(scratch);
    keep("safetensors", name, bytes);
    return bytes;
  };
  std::vector<NamedTensor> every;
  for (const DType dtype : testing::kAllTypes)
    every.emplace_back(concat("of_", dtype), testing::uniform_tensor(context, {2, 3}, 1, dtype));
  const std::string all = write("good-every-dtype.safetensors", every, {{"format", "keel"}});
  write("good-none.safetensors", {}, {});
  write("good-zero.safetensors", std::vector<NamedTensor>{{"empty", zeros(context, {0, 4})}}, {});
  const Tensor whole = testing::uniform_tensor(context, {5, 3}, 1);
  const TensorParts parts = {{"w", {5, 3}, 4, whole.view({15}).slice(0, 4, 9)}};
  write("good-part.safetensors", named_parts(parts), {});
  keep("safetensors", "cut.safetensors", all.substr(0, all.size() - 1));
  keep("safetensors", "unknown-dtype.safetensors", replaced(all, "\"F64\"", "\"F65\""));
  keep("safetensors", "overflow.safetensors", replaced(all, "[2,3]", "[99]"));
}

void make_manifests(const std::string& scratch) {
  run_ranks(2, [&](Communicator& ranks) {
    Linear model(2, 3);
    const Sharded engine(model, testing::context(1), ranks, make_adamw({}),
                         {.compression = {.type = Compression::Type::int8}, .sharding = {.stage = 3}});
    TrainState state;
    state.step = 3;
    state.tokens = 40;
    state.data = "text";
    state.config = "steps: 3\n";
    save_checkpoint(scratch, engine, ranks, json_of(state));
  });
  const std::string good = read_text_file(scratch + "/manifest.json");
  // The target seals what has no seal, so that changes are read beyond it.
  const std::string open = good.substr(0, good.rfind(",\n  \"xxh3\"")) + "\n}\n";
  keep("manifest", "good-manifest.json", good);
  keep("manifest", "good-without-seal.json", open);
  keep("manifest", "good-nothing.json",
       "{\n  \"format\": 4,\n  \"state\": {},\n  \"files\": [],\n  \"tensors\": [],\n  \"extents\": []\n}\n");
  keep("manifest", "changed.json", replaced(good, "\"step\": 3", "\"step\": 4"));
  keep("manifest", "of-the-future.json", replaced(open, "\"format\": 4", "\"format\": 5"));
  keep("manifest", "other-folder.json", replaced(open, "[\"model-1", "[\"../model-1"));
  keep("manifest", "huge-shape.json", replaced(open, "[3,2]", "[4611686018427387904,4]"));
  keep("manifest", "negative-shape.json", replaced(open, "[3,2]", "[-3,-2]"));
}

Json described(std::string_view contents) {
  const Hash128 hash = xxh3(std::as_bytes(std::span(contents)));
  return {{"bytes", contents.size()}, {"xxh3", text_of(hash)}};
}

void make_states() {
  Json json = {{"format", 3}, {"step", 3}, {"tokens", 40}, {"optimizer", json_of(StepState{.steps = 2})}};
  json["weights"] = Json::array({fuzz::kOldWeights.name});
  json["state"] = Json::array({fuzz::kOldState.name});
  for (const fuzz::OldFile& file : {fuzz::kOldWeights, fuzz::kOldState})
    json["files"][std::string(file.name)] = described(fuzz::bytes_of(file));
  json["config"] = "steps: 3\n";
  json["data"] = "text";
  const std::string text = json.dump(2) + "\n", good = with_seal(text);
  keep("state", "good-state.json", good);
  keep("state", "changed.json", replaced(good, "\"step\": 3", "\"step\": 4"));
  // As keel 0.1.0 wrote it.
  const std::string old = replaced(text, "\"format\": 3", "\"format\": 2");
  keep("state", "good-without-hash.json", old);
  const std::string name = concat('"', fuzz::kOldWeights.name, '"');
  keep("state", "other-folder.json", replaced(old, name, "\"../model.safetensors\""));
  keep("state", "other-file.json", replaced(old, name, concat('"', fuzz::kOldState.name, '"')));
  keep("state", "other-hash.json", replaced(old, "\"xxh3\": \"", "\"xxh3\": \"0"));
}

void make_tokens(const std::string& scratch) {
  const auto write = [&](const std::string& name, const std::vector<std::uint32_t>& tokens, std::int64_t vocabulary) {
    TokenFileWriter writer(scratch, vocabulary, "byte");
    writer.append(tokens);
    writer.commit();
    const std::string bytes = read_text_file(scratch);
    keep("tokens", name, bytes);
    return bytes;
  };
  const std::string two = write("good-two-bytes", {1, 2, 65'535, 4, 5}, 65'536);
  write("good-four-bytes", {1, 70'000, 3}, 70'001);
  write("good-none", {}, 10);
  keep("tokens", "cut", two.substr(0, two.size() - 1));
  keep("tokens", "outside", std::string(two).replace(16, 2, "\xff\x01"));
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 3;
  const std::vector<std::uint16_t> tokens = {50'256, 3, 40'000};
  keep("tokens", "good-llmc", bytes_of(header) + bytes_of(tokens));
  keep("tokens", "llmc-cut", bytes_of(header) + bytes_of(tokens).substr(1));
  keep("tokens", "good-nanogpt", bytes_of(tokens));
}

void make_columns(const std::string& scratch) {
  const std::vector<Column> columns = {
      {.name = "x", .type = ColumnType::f32},
      {.name = "text", .type = ColumnType::text, .nullable = true},
      {.name = "ids", .type = ColumnType::u16, .form = ColumnForm::list},
      {.name = "m", .type = ColumnType::u8, .form = ColumnForm::fixed, .shape = {2, 2}, .nullable = true}};
  {
    ColumnsWriter writer(scratch, columns, 40);
    for (std::int64_t i = 0; i < 7; ++i) {
      Example example;
      example.set("x", 0.5 * static_cast<double>(i));
      example.set("ids", Integers{{i}, std::vector(static_cast<std::size_t>(i), 1000 * i)});
      if (i % 2 == 0) example.set("text", "row").set("m", Integers{{2, 2}, {1, 2, 3, i}});
      writer.append(example);
    }
    writer.commit();
  }
  const std::string bytes = read_text_file(scratch);
  keep("columns", "good-kinds", bytes);
  keep("columns", "cut", bytes.substr(0, bytes.size() - 1));
  ColumnsWriter(scratch, columns).commit();
  keep("columns", "good-none", read_text_file(scratch));
}

std::string frame(TcpHeader header, std::string_view contents = {}) {
  header.bytes = contents.size();
  return bytes_of(&header, 1) + std::string(contents);
}

void make_frames() {
  const std::string small = frame({.tag = 1}, "8 bytes."), large = frame({.tag = 2}, std::string(17'000, 'x')),
                    bye = frame({.kind = TcpHeader::goodbye});
  keep("frames", "good-messages", small + large + frame({.tag = 3}, "unasked.") + bye);
  keep("frames", "good-wrong-sizes",
       frame({.tag = 1}, "4...") + frame({.tag = 3}, "other") + frame({.group = 1, .tag = 1}, "lost") + bye);
  keep("frames", "good-left", small + frame({.kind = TcpHeader::left, .group = 1}) + bye);
  keep("frames", "failed", small + frame({.kind = TcpHeader::failed}, "the roof is on fire") + bye);
  keep("frames", "failed-without-reason", frame({.kind = TcpHeader::failed}) + "no frame");
  TcpHeader huge{.tag = 9};
  huge.bytes = std::uint64_t{1} << 36;
  keep("frames", "huge", bytes_of(&huge, 1) + "a little");
  huge.bytes = ~std::uint64_t{0};
  keep("frames", "endless", bytes_of(&huge, 1) + std::string(2'000, 'y'));
  keep("frames", "cut", large.substr(0, 1'000));
}

}  // namespace
}  // namespace keel

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: make_corpus FOLDER\n";
    return 2;
  }
  keel::folder = arguments[1];
  const keel::testing::TemporaryFolder scratch;
  keel::make_configs();
  keel::make_foreign();
  keel::make_jsons();
  keel::make_tokenizers();
  keel::make_sentence_pieces();
  keel::make_tables();
  keel::make_lines();
  keel::make_reports();
  keel::make_safetensors(scratch / "weights");
  keel::make_manifests(scratch / "checkpoint");
  keel::make_states();
  keel::make_tokens(scratch / "tokens");
  keel::make_columns(scratch / "columns");
  keel::make_frames();
}
