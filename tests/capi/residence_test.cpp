// Numbers that lie in files, by settings of C: the bits of memory.

#include "tests/capi/learner.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(CResidence, OfFilesHasTheBitsOfMemory) {
  const auto trained = [](Pairs pairs) {
    CContext context = c_context();
    CLearner learner(context, c_settings(pairs));
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) losses.push_back(learner.step(step));
    return std::pair(losses, numbers_of(learner.model));
  };
  for (const char* strategy : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    const std::string folder = place / "disk";
    const auto expected = trained({{"strategy", strategy}});
    for (const char* key : {"sharding.offload_optimizer", "sharding.offload_parameters", "sharding.offload_gradients"})
      EXPECT_EQ(trained({{"strategy", strategy}, {"sharding.offload_folder", folder.c_str()}, {key, "file"}}), expected)
          << key << " " << strategy;
    EXPECT_EQ(trained({{"strategy", strategy},
                       {"sharding.offload_folder", folder.c_str()},
                       {"sharding.offload_optimizer", "file"},
                       {"sharding.offload_parameters", "file"},
                       {"sharding.offload_gradients", "file"}}),
              expected);
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "files without a name";
  }
}

TEST(CResidence, OfFilesSaysWhatItCannotDo) {
  CContext context = c_context();
  CModel model;
  const std::int64_t widths[] = {kInputs, kOutputs};
  const auto create = [&](Pairs pairs) {
    const CSettings settings = c_settings(pairs);
    return keel_model_create_mlp(context, settings, widths, 2, "tanh", "mse", model.out());
  };
  EXPECT_EQ(create({{"sharding.offload_optimizer", "file"}, {"sharding.offload_folder", "/proc/no"}}), KEEL_ERROR_IO);
  EXPECT_NE(std::string(keel_last_error()).find("/proc/no"), std::string::npos) << keel_last_error();
}

}  // namespace
}  // namespace keel
