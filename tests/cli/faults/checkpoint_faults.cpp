// Checkpoints that somebody changed or mixed: all ranks go on from the one before, and say why.

#include <gtest/gtest.h>

#include "tests/cli/faults/fault.h"

namespace keel::testing {
namespace {

namespace fs = std::filesystem;

void edit(const std::string& file, const std::string& old, const std::string& by) {
  std::string text = read_text_file(file);
  const std::size_t place = text.find(old);
  ASSERT_NE(place, std::string::npos) << old << " in " << text;
  write_text_file(file, text.replace(place, old.size(), by));
}

void flip_a_bit(const std::string& file) {
  std::string bytes = read_text_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text_file(file, bytes);
}

void copy_from_step_six(const Scene& scene, const std::string& file) {
  fs::copy_file(scene.checkpoint(6, file), scene.checkpoint(12, file), fs::copy_options::overwrite_existing);
}

std::string shard(const Scene& scene, const char* kind, int index) {
  return concat('/', kind, '-', index, "-of-", scene.n, ".safetensors");
}

// The checkpoint of step 12 is damaged before the session that resumes.
Fault damage(const std::string& name, const std::function<void(const Scene&)>& strike, const std::string& why) {
  return {.name = name,
          .before =
              [strike](Scene& scene) {
                scene.train_twelve_steps();
                strike(scene);
              },
          .session = "steps=15 resume=auto",
          .codes = {0},
          .says = {"the checkpoint of step [0-9]+ is not usable: .*" + why, "goes on after step 6 from "}};
}

}  // namespace

std::vector<Fault> checkpoint_faults() {
  const std::string hash = "has changed since it was written";
  return {
      damage(
          "AnEditedStep", [](const Scene& scene) { edit(scene.checkpoint(12, "/manifest.json"), ": 12,", ": 90,"); },
          hash),
      damage(
          "AChangedBitOfTheState", [](const Scene& scene) { flip_a_bit(scene.checkpoint(12, "/manifest.json")); }, ""),
      damage(
          "AnEmptyState", [](const Scene& scene) { fs::resize_file(scene.checkpoint(12, "/manifest.json"), 0); }, ""),
      damage(
          "AStateThatIsGone", [](const Scene& scene) { fs::remove(scene.checkpoint(12, "/manifest.json")); }, ""),
      damage(
          "AStateThatIsAFolder",
          [](const Scene& scene) {
            fs::remove(scene.checkpoint(12, "/manifest.json"));
            fs::create_directory(scene.checkpoint(12, "/manifest.json"));
          },
          ""),
      damage(
          "AStateOfAnotherCheckpoint", [](const Scene& scene) { copy_from_step_six(scene, "/manifest.json"); }, ""),
      damage(
          "AShardOfAnotherCheckpoint",
          [](const Scene& scene) { copy_from_step_six(scene, shard(scene, "model", scene.n)); }, hash),
      damage(
          "AChangedBitOfAShard",
          [](const Scene& scene) { flip_a_bit(scene.checkpoint(12, shard(scene, "optimizer", scene.n))); }, hash),
      damage(
          "AShardThatIsGone",
          [](const Scene& scene) { fs::remove(scene.checkpoint(12, shard(scene, "optimizer", 1))); }, ""),
      damage(
          "AnotherStepsName", [](const Scene& scene) { fs::rename(scene.checkpoint(12), scene.checkpoint(90)); },
          "holds step 12, not the step of its name"),
      {.name = "DamageToEveryCheckpoint",
       .before =
           [](Scene& scene) {
             scene.train_twelve_steps();
             fs::copy(scene.folder.path(), scene.sandbox / "kept", fs::copy_options::recursive);
             for (const int step : {6, 12}) flip_a_bit(scene.checkpoint(step, shard(scene, "model", 1)));
           },
       .session = "steps=15 resume=auto",
       .codes = {2},
       .says = {"no checkpoint in 'made' is whole; give the run another folder"},
       .after =
           [](Scene& scene) {
             fs::remove_all(scene.folder.path());
             fs::rename(scene.sandbox / "kept", scene.folder.path());
           }},
  };
}

}  // namespace keel::testing
