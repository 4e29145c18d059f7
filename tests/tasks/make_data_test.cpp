// Training and validation data of one data set.

#include <gtest/gtest.h>

#include "keel/tasks/task.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

// Example i is a sequence of i + 1 numbers.
class Stairs : public Dataset {
 public:
  std::int64_t size() const override { return 12; }
  Example example(std::int64_t i) const override {
    check_index(i);
    Example example;
    example.set("steps", Integers{{i + 1}, std::vector<std::int64_t>(static_cast<std::size_t>(i + 1), i)});
    return example;
  }
  std::string fingerprint() const override { return "stairs"; }
};

// All batches of training and validation.
void load_all_of(const std::vector<std::string>& varying) {
  TaskSite site;
  site.rows = site.validation_rows = 2;
  site.host = Context::create();
  const auto stairs = std::make_shared<Stairs>();
  const Data data = make_data(site, stairs, 0.5, pad({.fields = {{"steps"}}, .mask = true}), varying);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch batch = data.training->load_all(step);
    EXPECT_EQ(batch["mask"].shape(), batch["steps"].shape());
    data.validation.front().source->load_all(step);
  }
  const auto asked = in_order(site, stairs, pad({.fields = {{"steps"}}}), {"steps"});
  EXPECT_EQ(asked->load_all(5)["steps"].dim(1), 12);
}

TEST(MakeData, TakesRowsThatAreFilledUpToTheLongestOfEachBatch) {
  EXPECT_EQ(error_of([] { load_all_of({"steps", "mask"}); }), "");
  EXPECT_NE(error_of([] { load_all_of({}); }).find("name those fields (SourceOptions::varying"), std::string::npos);
}

}  // namespace
}  // namespace keel
