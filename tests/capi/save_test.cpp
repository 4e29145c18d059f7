// Saves through C that go on beside the training.

#include <chrono>
#include <thread>

#include "tests/capi/full_disk.h"
#include "tests/capi/learner.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

int state_of(const CModel& model) {
  int state = -1;
  EXPECT_KEEL(keel_model_save_poll(model, &state));
  return state;
}

// Trains until the save under way has ended; how it did.
keel_status train_until_saved(CLearner& learner, int& step) {
  for (int state = KEEL_SAVE_UNDER_WAY; state == KEEL_SAVE_UNDER_WAY;) {
    learner.step(++step);
    if (const keel_status status = keel_model_save_poll(learner.model, &state); status != KEEL_OK) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return KEEL_OK;
}

TEST(CSaves, HoldTheNumbersOfTheirMomentWhileTrainingGoesOn) {
  const TemporaryFolder place;
  const std::string at_once = place / "at_once", beside = place / "beside";
  CContext context = c_context();
  CLearner learner(context, CSettings());
  EXPECT_EQ(state_of(learner.model), KEEL_SAVE_NONE);
  int step = 0;
  for (int save = 0; save < 3; ++save) {
    learner.step(++step);
    EXPECT_KEEL(keel_model_save(learner.model, at_once.c_str()));
    EXPECT_KEEL(keel_model_save_begin(learner.model, beside.c_str()));
    EXPECT_KEEL(train_until_saved(learner, step));
    EXPECT_EQ(state_of(learner.model), KEEL_SAVE_NONE) << "the result is told once";
    EXPECT_EQ(saved_numbers(beside), saved_numbers(at_once));
    EXPECT_EQ(read_text_file(beside + "/manifest.json"), read_text_file(at_once + "/manifest.json"));
  }
  EXPECT_KEEL(keel_model_save_begin(learner.model, beside.c_str()));
  const std::string whole = place / "whole";
  EXPECT_KEEL(keel_model_save(learner.model, whole.c_str()));
  learner.step(++step);
  EXPECT_KEEL(keel_model_save_finish(learner.model));
  EXPECT_EQ(saved_numbers(beside), saved_numbers(whole));
  EXPECT_KEEL(keel_model_load(learner.model, beside.c_str()));
}

TEST(CSaves, AreOneAtATime) {
  const TemporaryFolder place;
  const std::string first = place / "first", second = place / "second";
  CContext context = c_context();
  const CLearner learner(context, CSettings());
  EXPECT_EQ(keel_model_save_finish(learner.model), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find("keel_model_save_begin() begins one"), std::string::npos);
  EXPECT_KEEL(keel_model_save_begin(learner.model, first.c_str()));
  EXPECT_EQ(keel_model_save_begin(learner.model, second.c_str()), KEEL_ERROR_INPUT);
  EXPECT_NE(std::string(keel_last_error()).find(concat("'", first, "' is being saved")), std::string::npos);
  EXPECT_KEEL(keel_model_save_finish(learner.model));
  EXPECT_KEEL(keel_model_save_begin(learner.model, second.c_str()));
  EXPECT_KEEL(keel_model_save_finish(learner.model));
  EXPECT_EQ(saved_numbers(first), saved_numbers(second));
}

TEST(CSaves, ThatFailLeaveWhatWasThereAndATrainingThatGoesOn) {
  const TemporaryFolder place;
  const std::string folder = place / "c";
  CContext context = c_context();
  CLearner learner(context, CSettings());
  EXPECT_KEEL(keel_model_save(learner.model, folder.c_str()));
  const std::string before = saved_numbers(folder);
  int step = 0;
  {
    const FullDisk full;
    learner.step(++step);
    EXPECT_KEEL(keel_model_save_begin(learner.model, folder.c_str()));
    EXPECT_EQ(train_until_saved(learner, step), KEEL_ERROR_IO);
    EXPECT_NE(std::string(keel_last_error()).find("File too large"), std::string::npos) << keel_last_error();
    EXPECT_EQ(state_of(learner.model), KEEL_SAVE_NONE);
    EXPECT_KEEL(keel_model_save_begin(learner.model, folder.c_str()));
    EXPECT_EQ(keel_model_save_finish(learner.model), KEEL_ERROR_IO);
  }
  EXPECT_EQ(saved_numbers(folder), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place.path()), {}), 1);
  EXPECT_KEEL(keel_model_save_begin(learner.model, folder.c_str()));
  EXPECT_KEEL(train_until_saved(learner, step));
  EXPECT_NE(saved_numbers(folder), before);
}

TEST(CSaves, OfAModelThatIsDestroyedDisappear) {
  const TemporaryFolder place;
  const std::string folder = place / "c";
  CContext context = c_context();
  for (int times = 0; times < 5; ++times) {
    const CLearner learner(context, CSettings());
    EXPECT_KEEL(keel_model_save_begin(learner.model, folder.c_str()));
    std::this_thread::sleep_for(std::chrono::milliseconds(times));
  }
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
}

}  // namespace
}  // namespace keel
