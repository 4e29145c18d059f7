// Manifests: what is written is read, and what nobody wrote is refused.

#include "keel/dist/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "keel/dist/checkpoint/sealed_text.h"
#include "keel/runtime/file.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace testing;

// What rank r of n writes of tensors "t0" (7, 5), "t1" () and "t2" (0, 4), the latter whole on each rank.
Manifest part_of(int r, int n) {
  Manifest part;
  part.tensors = {{"weights", "t0", DType::f32, {7, 5}},
                  {"weights", "t1", DType::bf16, {}},
                  {"optimizer", "t2", DType::f32, {0, 4}}};
  part.files = {{concat("model-", r, ".safetensors"), 4096 + 35 * 4 + 2, 4096, {1, 2}}};
  const std::int64_t begin = 35 * r / n, end = 35 * (r + 1) / n;
  if (begin < end) part.extents.push_back({0, 0, begin, end, 4096, {3, static_cast<std::uint64_t>(r)}});
  part.extents.push_back({1, 0, 0, 1, 4096 + 35 * 4, {5, 6}});
  return part;
}

Manifest manifest_of(int n) {
  ManifestJoin join;
  for (int r = 0; r < n; ++r) join.add(parse_part(part_text(part_of(r, n)), "part"));
  Manifest manifest = std::move(join).finish();
  manifest.state = {{"step", 12}, {"text", "a\n\"b\"\n"}};
  return manifest;
}

TEST(Manifest, IsReadAsItWasWritten) {
  for (const int n : {1, 2, 3, 40}) {
    const Manifest manifest = manifest_of(n), read = parse_manifest(manifest_text(manifest), "m");
    EXPECT_EQ(read.state.dump(), manifest.state.dump());
    EXPECT_EQ(read.files, manifest.files);
    EXPECT_EQ(read.tensors, manifest.tensors);
    EXPECT_EQ(read.extents, manifest.extents);
    EXPECT_TRUE(read.has_hashes);
    EXPECT_EQ(read.files.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(read.extents_of(0).size(), static_cast<std::size_t>(std::min(n, 35)));
    EXPECT_EQ(read.extents_of(1).size(), static_cast<std::size_t>(n));  // the same of every rank
    EXPECT_EQ(read.sections(), (std::vector<std::string>{"weights", "optimizer"}));
    EXPECT_EQ(read.tensors_of("weights")[0].shape, (Dims{7, 5}));
    EXPECT_EQ(read.bytes(), static_cast<std::uint64_t>(n) * (4096 + 142));
    EXPECT_EQ(disagreement(read), "");
  }
}

TEST(Manifest, OfAnotherHashOfTheSameNumbersNamesTheTensor) {
  ManifestJoin join;
  for (int r = 0; r < 2; ++r) {
    Manifest part = part_of(r, 2);
    part.extents.back().hash.low = static_cast<std::uint64_t>(r);
    join.add(part);
  }
  EXPECT_EQ(disagreement(std::move(join).finish()),
            "ranks have different numbers in weights tensor t1 (); those of model-0.safetensors count");
}

TEST(Manifest, WithGapsOrOverlapsOrOfRanksThatDifferIsAnError) {
  const auto joined = [](auto change) {
    return error_of([&] {
      ManifestJoin join;
      for (int r = 0; r < 2; ++r) {
        Manifest part = part_of(r, 2);
        if (r == 1) change(part);
        join.add(part);
      }
      std::move(join).finish();
    });
  };
  EXPECT_EQ(joined([](Manifest&) {}), "");
  EXPECT_EQ(joined([](Manifest& part) { ++part.extents[0].begin; }),
            "weights tensor t0 (7, 5) has no element 17, or different ones of one number");
  EXPECT_EQ(joined([](Manifest& part) { --part.extents[0].begin; }),
            "weights tensor t0 (7, 5) has no element 17, or different ones of one number");
  EXPECT_EQ(joined([](Manifest& part) { --part.extents[0].end; }), "weights tensor t0 (7, 5) has no elements 34 to 35");
  EXPECT_EQ(joined([](Manifest& part) { ++part.extents[0].end; }),
            "elements 17 to 36 are none of weights tensor t0 (7, 5)");
  EXPECT_EQ(joined([](Manifest& part) { part.extents[0].offset = 4096 + 35 * 4; }),
            "weights tensor t0 (7, 5) has an extent of 72 bytes at 4236 of model-1.safetensors, which has 4238");
  EXPECT_EQ(joined([](Manifest& part) {
              part.tensors[0].shape = {5, 7};
            }),
            "ranks disagree about weights tensor t0 (5, 7)");
  EXPECT_EQ(joined([](Manifest& part) { part.tensors[0].dtype = DType::bf16; }),
            "ranks disagree about weights tensor t0 (7, 5)");
  EXPECT_EQ(joined([](Manifest& part) { part.files[0].name = "model-0.safetensors"; }),
            "two ranks have written 'model-0.safetensors'");
}

// Edits of whoever can make a seal.
TEST(Manifest, ThatNobodyWroteIsRefusedWithTheReason) {
  const std::string whole = manifest_text(manifest_of(2));
  const auto edited = [&](const std::string& old, const std::string& by) {
    std::string text = whole;
    const std::size_t place = text.find(old);
    EXPECT_NE(place, std::string::npos) << old << " in " << text;
    if (place == std::string::npos) return std::string();
    text.replace(place, old.size(), by);
    EXPECT_EQ(error_of([&] { parse_manifest(text, "m"); }), "'m' has changed since it was written (its hash differs)");
    const std::string error =
        error_of([&] { parse_manifest(with_seal(text.substr(0, text.rfind(",\n  \"xxh3\"")) + "\n}\n"), "m"); });
    EXPECT_EQ(error.rfind("'m' ", 0), 0u) << error;
    return error;
  };
  EXPECT_EQ(edited("\"format\": 4", "\"format\": 5"),
            "'m' cannot be read: it has format 5, and this version of keel reads 2 to 4; a newer one wrote it");
  EXPECT_EQ(edited("\"format\": 4", "\"format\": 1"),
            "'m' cannot be read: it has format 1, and this version of keel reads 2 to 4");
  EXPECT_EQ(edited("model-0.safetensors", "../weights"),
            "'m' cannot be read: '../weights' is no name of a file in a checkpoint");
  EXPECT_EQ(edited("\"f32\"", "\"f33\"").find("'m' cannot be read: "), 0u);
  EXPECT_EQ(edited("[7,5]", "[7,6]"), "'m' cannot be read: weights tensor t0 (7, 6) has no elements 35 to 42");
  EXPECT_EQ(edited("[7,5]", "[9223372036854775807,9]"),
            "'m' cannot be read: weights tensor t0 (9223372036854775807, 9) has more bytes than can be counted");
  EXPECT_EQ(edited("[7,5]", "[7,-5]"), "'m' cannot be read: -5 is negative");
  EXPECT_EQ(edited("[7,5]", "[1,1,1,1,1,1,1,1,35]"), "'m' cannot be read: 't0' has 9 dimensions");
  EXPECT_EQ(edited("[0, 0, 0, 17,", "[3, 0, 0, 17,"), "'m' cannot be read: there is no 3-th of 3");
  EXPECT_EQ(edited("[0, 0, 0, 17,", "[0, 2, 0, 17,"), "'m' cannot be read: there is no 2-th of 2");
  EXPECT_NE(edited("[0, 0, 0, 17, 4096,", "[0, 0, 0, 17, 18446744073709551615,"), "");
  EXPECT_NE(edited("[0, 0, 0, 17, 4096,", "[0, 0, 0, 17, 9223372036854775807,").find("which has 4238"),
            std::string::npos);
  EXPECT_EQ(edited("[0, 0, 0, 17,", "[1, 0, 0, 17,"), "'m' cannot be read: its extents are not in their order");
  EXPECT_EQ(edited("\"t1\"", "\"t0\""), "'m' cannot be read: weights tensor t0 () appears twice");
  EXPECT_EQ(edited("\"tensors\"", "\"tenors\""), "'m' is malformed: it is not what keel writes");
  const std::size_t seal = whole.rfind(",\n  \"xxh3\"");
  EXPECT_EQ(error_of([&] { parse_manifest(whole.substr(0, seal) + "\n}\n", "m"); }),
            "'m' cannot be read: it does not end with its own hash");
}

TEST(Manifest, NamesAFileThatIsMissingOrOfAnotherSize) {
  const TemporaryFolder place;
  std::filesystem::create_directory(place / "c");
  const Manifest manifest = manifest_of(1);
  write_text_file(place / "c/manifest.json", manifest_text(manifest));
  const std::string file = place / "c/model-0.safetensors";
  EXPECT_EQ(error_of([&] { read_manifest(place / "c"); }),
            concat("cannot read '", file, "': No such file or directory"));
  write_text_file(file, std::string(4237, 'x'));
  EXPECT_EQ(error_of([&] { read_manifest(place / "c"); }), concat("'", file, "' has 4237 bytes instead of 4238"));
  write_text_file(file, std::string(4238, 'x'));
  EXPECT_EQ(read_manifest(place / "c").extents, manifest.extents);
  EXPECT_NE(error_of([&] { read_manifest(place / "none"); }).find("No such file"), std::string::npos);
  std::filesystem::remove(place / "c/manifest.json");
  ASSERT_EQ(::mkfifo((place / "c/manifest.json").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_manifest(place / "c"); }),
            concat("cannot read '", place / "c/manifest.json", "': it is not a regular file"));
}

// As many ranks as a large machine has, each with a part of every tensor.
TEST(Manifest, OfAThousandRanksIsJoinedAndRead) {
  constexpr int kRanks = 1024, kTensors = 100;
  ManifestJoin join;
  for (int r = 0; r < kRanks; ++r) {
    Manifest part;
    part.files = {{concat("model-", r + 1, "-of-1024.safetensors"), std::uint64_t{4096} + kTensors * 40, 4096, {}}};
    for (std::uint32_t t = 0; t < kTensors; ++t) {
      part.tensors.push_back({"weights", concat("layer.", t), DType::f32, {kRanks, 10}});
      part.extents.push_back({t, 0, 10 * r, 10 * (r + 1), 4096 + 40 * t, {t, static_cast<std::uint64_t>(r)}});
    }
    join.add(part);
  }
  const Manifest manifest = std::move(join).finish();
  EXPECT_EQ(manifest.extents.size(), std::size_t{kRanks} * kTensors);
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "m").extents, manifest.extents);
}

}  // namespace
}  // namespace keel
