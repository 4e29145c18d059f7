#include "keel/data/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

Batch batch_of(const Context& context, std::int64_t rows) {
  Batch batch(context, 10, rows);
  batch.set("labels", zeros(context, {rows, 64}, DType::i32));
  batch.set("input_ids", zeros(context, {rows, 64}, DType::i32));
  batch.set_weight("tokens", 2.5);
  return batch;
}

TEST(NamedBatch, ReturnsWhatWasSetByName) {
  const Context context = testing::context();
  const Tensor values = testing::uniform_tensor(context, {3, 2}, 1);
  Batch batch(context, 7, 3);
  batch.set("x", values).set_weight("pairs", 3);
  EXPECT_EQ(batch["x"].storage(), values.storage());
  EXPECT_TRUE(batch.has("x"));
  EXPECT_FALSE(batch.has("y"));
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.sample_ids().to_vector<std::int64_t>(), (std::vector<std::int64_t>{7, 8, 9}));
  EXPECT_EQ(batch.examples(), (std::vector<std::int64_t>{7, 8, 9}));
  EXPECT_EQ(batch.weight("pairs"), 3);
  EXPECT_EQ(batch.weight("rows"), 3);
  EXPECT_EQ(batch.weights().size(), 2u);
}

TEST(NamedBatch, KeepsSampleAndExampleNumbersApart) {
  const Context context = testing::context();
  const Batch batch(from_values(context, std::vector<std::int64_t>{5, 6}, {2}), {90, -1});
  EXPECT_EQ(batch.sample_ids().to_vector<std::int64_t>(), (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(batch.examples(), (std::vector<std::int64_t>{90, -1}));
  EXPECT_FALSE(error_of([&] { Batch(zeros(context, {2}, DType::i64), {1}); }).empty());
  EXPECT_FALSE(error_of([&] { Batch(zeros(context, {2}, DType::i32), {1, 2}); }).empty());
  EXPECT_FALSE(error_of([&] { Batch(Tensor(), {}); }).empty());
}

TEST(NamedBatch, OrdersFieldsByNameInWhateverOrderTheyCome) {
  const Context context = testing::context();
  std::vector<std::string> names = {"b", "B", "a_2", "a"};
  const std::vector<std::string> wanted = {"B", "a", "a_2", "b"};
  do {
    Batch batch(context, 0, 1);
    for (const std::string& name : names) batch.set(name, zeros(context, {1}));
    std::vector<std::string> found;
    for (const auto& [name, tensor] : batch.fields()) found.push_back(name);
    EXPECT_EQ(found, wanted);
  } while (std::next_permutation(names.begin(), names.end()));
}

TEST(NamedBatch, ListsItsFieldsTheLikeliestFirstWhereOneIsMissing) {
  const Batch batch = batch_of(testing::context(), 8);
  EXPECT_EQ(error_of([&] { (void)batch["label"]; }),
            "the batch has no 'label'; did you mean 'labels'? It has labels i32 (8, 64), input_ids i32 (8, 64)");
  EXPECT_EQ(error_of([&] { (void)batch["q"]; }),
            "the batch has no 'q'. It has input_ids i32 (8, 64), labels i32 (8, 64)");
  EXPECT_EQ(error_of([&] { (void)Batch()["q"]; }), "the batch has no 'q'. It has none");
  EXPECT_EQ(error_of([&] { (void)batch.weight("token"); }),
            "the batch has no weight 'token'; did you mean 'tokens'? It has tokens, rows");
  EXPECT_FALSE(error_of([&] { (void)batch.weight_tensor("token"); }).empty());
}

TEST(NamedBatch, RefusesAFieldThatDoesNotFit) {
  const Context context = testing::context();
  Batch batch = batch_of(context, 2);
  const auto refusal = [&](std::string name, const Tensor& tensor) {
    return error_of([&] { batch.set(std::move(name), tensor); });
  };
  EXPECT_EQ(refusal("labels", zeros(context, {2})), "the batch has a field 'labels' already");
  EXPECT_EQ(refusal("x", zeros(context, {3, 1})),
            "field 'x' is f32 (3, 1), but the batch has 2 rows: its first extent is the rows");
  EXPECT_NE(refusal("x", zeros(context, {})), "");
  EXPECT_NE(refusal("x", Tensor()), "");
  EXPECT_NE(refusal("x", zeros(testing::context(), {2})).find("another context"), std::string::npos);
  for (const char* name : {"", "a b", "a.b", "ä", "a\n"}) EXPECT_NE(refusal(name, zeros(context, {2})), "") << name;
  EXPECT_NE(error_of([&] { Batch().set("x", zeros(context, {0})); }), "");
  EXPECT_EQ(batch.fields().size(), 2u);
}

TEST(NamedBatch, RefusesAWeightThatIsNone) {
  Batch batch = batch_of(testing::context(), 2);
  for (const double value : {-1.0, std::nan(""), static_cast<double>(INFINITY)})
    EXPECT_NE(error_of([&] { batch.set_weight("w", value); }), "") << value;
  EXPECT_NE(error_of([&] { batch.set_weight("rows", 1); }), "");
  EXPECT_NE(error_of([&] { batch.set_weight("tokens", 1); }), "");
  EXPECT_NE(error_of([&] { batch.set_weight("to kens", 1); }), "");
  EXPECT_EQ(batch.weight("tokens"), 2.5);
}

TEST(NamedBatch, WeightTensorsAreTheWeightsRoundedToFloats) {
  Batch batch = batch_of(testing::context(), 3);
  batch.set_weight("many", 16777217.0).set_weight("none", 0);
  for (const auto& [name, value] : batch.weights()) {
    EXPECT_EQ(batch.weight_tensor(name).rank(), 0);
    EXPECT_EQ(batch.weight_tensor(name).item(), static_cast<double>(static_cast<float>(value))) << name;
  }
}

TEST(NamedBatch, AStandInHasTheSameRowsAndWeighsNothing) {
  const Batch batch = batch_of(testing::context(), 3), stand_in = batch.stand_in();
  EXPECT_TRUE(stand_in.is_stand_in());
  EXPECT_FALSE(batch.is_stand_in());
  EXPECT_EQ(stand_in.signature(), batch.signature());
  EXPECT_EQ(stand_in["labels"].storage(), batch["labels"].storage());
  EXPECT_EQ(stand_in.rows(), 3);
  for (const auto& [name, value] : batch.weights()) {
    EXPECT_EQ(stand_in.weight(name), 0);
    EXPECT_EQ(stand_in.weight_tensor(name).item(), 0);
    EXPECT_GT(value, 0);
    EXPECT_EQ(batch.weight_tensor(name).item(), static_cast<double>(static_cast<float>(value)));
  }
}

TEST(NamedBatch, SignatureIsThatOfOtherRowsAndOfNoOtherFields) {
  const Context context = testing::context();
  const Batch batch = batch_of(context, 3);
  EXPECT_EQ(batch.signature(), "input_ids i32 (rows, 64)\nlabels i32 (rows, 64)\nweights rows tokens\n");
  EXPECT_EQ(batch.signature(), batch_of(context, 5).signature());
  EXPECT_EQ(batch.signature({"labels"}), "input_ids i32 (rows, 64)\nlabels i32 (rows, *)\nweights rows tokens\n");
  EXPECT_NE(error_of([&] { (void)batch.signature({"label"}); }), "");
  const auto with = [&](auto&& change) {
    Batch other = batch;
    change(other);
    return other.signature();
  };
  const std::string plain = with([&](Batch& b) { b.set("x", zeros(context, {3, 2})); });
  EXPECT_NE(plain, batch.signature());
  EXPECT_NE(plain, with([&](Batch& b) { b.set("y", zeros(context, {3, 2})); }));
  EXPECT_NE(plain, with([&](Batch& b) { b.set("x", zeros(context, {3, 4})); }));
  EXPECT_NE(plain, with([&](Batch& b) { b.set("x", zeros(context, {3})); }));
  EXPECT_NE(plain, with([&](Batch& b) { b.set("x", zeros(context, {3, 2}, DType::i32)); }));
  EXPECT_NE(batch.signature(), with([&](Batch& b) { b.set_weight("x", 1); }));
}

TEST(NamedBatch, TransfersWhatItHasAndItselfIsEnoughWhereItIs) {
  const Context here = testing::context(), there = testing::context();
  const Batch batch = batch_of(here, 3).stand_in();
  EXPECT_EQ(transfer(batch, here)["labels"].storage(), batch["labels"].storage());
  const Batch moved = transfer(batch, there);
  EXPECT_EQ(moved.sample_ids().context(), there);
  for (const auto& [name, tensor] : moved.fields()) {
    EXPECT_EQ(tensor.context(), there);
    EXPECT_EQ(testing::doubles(tensor), testing::doubles(batch[name]));
  }
  EXPECT_EQ(moved.weight_tensor("tokens").context(), there);
  EXPECT_EQ(moved.signature(), batch.signature());
  EXPECT_EQ(moved.examples(), batch.examples());
  EXPECT_TRUE(moved.is_stand_in());
  EXPECT_EQ(transfer(Batch(), there).rows(), 0);
}

class NumberedRows : public BatchSource {
 public:
  explicit NumberedRows(Context context) : context_(std::move(context)) {}
  std::int64_t steps() const override { return 2; }
  std::int64_t rows(std::int64_t) const override { return 4; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    return {context_, 4 * step + range.begin, range.end - range.begin};
  }

 private:
  Context context_;
};

TEST(BatchSource, RefusesRowsThatItHasNot) {
  const NumberedRows source(testing::context());
  EXPECT_EQ(source.load(1, {3, 4}).sample_ids().to_vector<std::int64_t>(), std::vector<std::int64_t>{7});
  EXPECT_NE(error_of([&] { source.load(2, {0, 1}); }).find("2 steps"), std::string::npos);
  EXPECT_NE(error_of([&] { source.load(-1, {0, 1}); }), "");
  for (const Rows range : {Rows{0, 5}, Rows{-1, 2}, Rows{2, 2}, Rows{3, 2}})
    EXPECT_NE(error_of([&] { source.load(0, range); }).find("4 rows of step 0"), std::string::npos);
}

TEST(Batch, LeavesOnTheHostWhatStaysThere) {
  const Context host = testing::context(), other = testing::context();
  Batch batch(host, 0, 2);
  batch.set("tokens", zeros(host, {2, 3})).set("documents", zeros(host, {2, 3}, DType::i32)).keep_on_host("documents");
  const Batch moved = transfer(batch, other);
  EXPECT_EQ(moved["tokens"].context(), other);
  EXPECT_EQ(moved["documents"].context(), host);
  moved.used_by(other.stream());
  EXPECT_NE(error_of([&] { batch.keep_on_host("document"); }).find("did you mean 'documents'"), std::string::npos);
}

}  // namespace
}  // namespace keel
