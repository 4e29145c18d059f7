// Which parameters of models are matrices between hidden states, and of which parts they consist.

#include "keel/nn/hidden_matrices.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "keel/models/decoder.h"
#include "keel/models/gpt.h"
#include "keel/nn/flat_buffer.h"
#include "keel/nn/layer_text.h"
#include "tests/support.h"

namespace keel {
namespace {

using RowsByName = std::map<std::string, std::vector<std::int64_t>>;

// As an engine finds them: in the layout.
RowsByName rows_of_matrices(Module& model) {
  RowsByName rows;
  for (const FlatBuffer& buffer : lay_out(model))
    for (const Segment& segment : buffer.segments)
      if (!segment.matrices.empty()) rows[segment.name] = segment.matrices;
  return rows;
}

TEST(HiddenMatrices, OfAGptAreAttentionByPartsAndTheFeedForward) {
  Gpt gpt({.vocabulary = 11, .block = 4, .layers = 1, .heads = 2, .width = 8});
  EXPECT_EQ(rows_of_matrices(gpt), (RowsByName{{"h.0.attn.c_attn.weight", {8, 8, 8}},
                                               {"h.0.attn.c_proj.weight", {8}},
                                               {"h.0.mlp.c_fc.weight", {32}},
                                               {"h.0.mlp.c_proj.weight", {8}}}));
}

TEST(HiddenMatrices, OfADecoderLeaveOutItsHeadAndItsEmbedding) {
  RotaryDecoder decoder({.vocabulary = 11,
                         .block = 8,
                         .layers = 1,
                         .layer = {.width = 8, .hidden = 12, .heads = 2, .kv_heads = 1, .head_size = 4}});
  EXPECT_EQ(rows_of_matrices(decoder), (RowsByName{{"model.layers.0.self_attn.qkv_proj.weight", {8, 4, 4}},
                                                   {"model.layers.0.self_attn.o_proj.weight", {8}},
                                                   {"model.layers.0.mlp.gate_up_proj.weight", {12, 12}},
                                                   {"model.layers.0.mlp.down_proj.weight", {8}}}));
}

TEST(HiddenMatrices, OfATextualModelLeaveOutItsOutputs) {
  const RowsByName rows = {{"layers.0.weight", {5}}, {"layers.1.weight", {4}}};
  for (const char* text :
       {"input x 3; dense 5 tanh; dense 4 tanh; output y 2", "input x 3; dense 5 tanh; dense 4 tanh; dense 2"}) {
    TextModel model(text);
    EXPECT_EQ(rows_of_matrices(model), rows) << text;
  }
}

TEST(HiddenMatrices, AreThoseOfAdaptersToo) {
  Gpt gpt({.vocabulary = 11, .block = 4, .layers = 1, .heads = 2, .width = 8});
  gpt.h[0].attn.c_attn.add_adapter("", 3, 1, 0);  // files and adapters take it as one layer
  const RowsByName rows = rows_of_matrices(gpt);
  EXPECT_EQ(rows.at("h.0.attn.c_attn.lora_A.weight"), std::vector<std::int64_t>{3});
  EXPECT_EQ(rows.at("h.0.attn.c_attn.lora_B.weight"), std::vector<std::int64_t>{24});
}

}  // namespace
}  // namespace keel
