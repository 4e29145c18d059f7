#pragma once
// One row for every differentiable operation: its arguments, whose extents are letters, and how it is called.
//
// The laws of operations_test.cpp walk it.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/autograd/operation_row.h"
#include "tests/kernels/op_table.h"

namespace keel::testing {

inline std::vector<OperationRow> elementwise_operations() {
  std::vector<OperationRow> rows;
  for (const UnaryRow& row : unary_rows())
    rows.push_back({.name = std::string(name_of_unary(row.op)),
                    .arguments = {{"bt"}},
                    .call = [row](const Inputs& in) -> std::vector<Variable> {
                      return {unary(row.op, in.numbers[0], row.parameter)};
                    },
                    .low = row.low,
                    .high = row.high});
  for (const BinaryRow& row : binary_rows()) {
    if (is_comparison_op(row.op)) continue;
    using Pairs = std::initializer_list<std::pair<const char*, const char*>>;
    for (const auto& [a, b] : Pairs{{"bt", "bt"}, {"bt", "t"}, {"b1", "1t"}})
      rows.push_back({.name = concat(name_of_binary(row.op), ' ', a, ' ', b),
                      .arguments = {{a}, {b}},
                      .call = [row](const Inputs& in) -> std::vector<Variable> {
                        return {binary(row.op, in.numbers[0], in.numbers[1])};
                      },
                      .low = row.low,
                      .high = row.high});
  }
  return rows;
}

// A table of nine positions, for heads of four elements.
inline Rotary rotary_of(const Context& context, RotaryPairs pairs, const Tensor& positions = {}) {
  return {.table = {uniform_tensor(context, {9, 2}, 50), uniform_tensor(context, {9, 2}, 51), pairs},
          .positions = positions,
          .first = positions.defined() ? 0 : 2};
}

// Two spans of each row: of all its positions, or of all but the last where there are several.
inline AttentionSpans two_spans(const Inputs& in, bool of_all) {
  std::vector<AttentionSpan> spans;
  const std::int64_t time = in.extents.at('t'), end = time > 1 && !of_all ? time - 1 : time;
  for (std::int64_t row = 0; row < in.extents.at('b'); ++row) {
    if (end > 1) spans.push_back({row, 0, end / 2});
    if (end > 0) spans.push_back({row, end / 2, end});
  }
  return std::make_shared<const std::vector<AttentionSpan>>(std::move(spans));
}

inline const std::vector<OperationRow>& operations() {
  using Result = std::vector<Variable>;
  using V = std::vector<Variable>;
  static const std::vector<OperationRow> rows = [] {
    std::vector<OperationRow> all = elementwise_operations();
    const auto add_row = [&all](OperationRow row) { all.push_back(std::move(row)); };
    // Of numbers alone.
    const auto add_plain = [&](const char* name, std::vector<const char*> arguments, auto f,
                               const char* mean_over = "") {
      OperationRow row{
          .name = name, .arguments = {}, .call = [f](const Inputs& in) -> Result { return {f(in.numbers)}; }};
      for (const char* extents : arguments) row.arguments.push_back({extents});
      row.mean_over = mean_over;
      add_row(std::move(row));
    };
    add_row({.name = "where",
             .arguments = {{"bt"}, {"t"}, {"b1", Holds::flags}},
             .call = [](const Inputs& in) -> Result { return {where(in.others[0], in.numbers[0], in.numbers[1])}; }});
    add_row({.name = "cast",
             .arguments = {{"bt"}},
             .call = [](const Inputs& in) -> Result {
               return {cast(cast(in.numbers[0], DType::f32), in.numbers[0].dtype())};
             },
             .step = 1e-2,
             .rounding = 1e-7});
    add_row(
        {.name = "dropout", .arguments = {{"btc"}, {"b", Holds::positions}}, .call = [](const Inputs& in) -> Result {
           return {dropout(in.numbers[0], 0.5, {.seed = 3, .step = 7}, in.others[0])};
         }});

    add_plain("sum over one", {"bti"}, [](const V& v) { return sum(v[0], {1}); });
    add_plain("sum of all", {"bti"}, [](const V& v) { return sum(v[0]); });
    add_plain(
        "mean over two", {"bti"},
        [](const V& v) {
          return mean(v[0], {0, 2}, true);
        },
        "bi");
    add_plain(
        "mean of all", {"bti"}, [](const V& v) { return mean(v[0]); }, "bti");
    add_row({.name = "max over one",
             .arguments = {{"bti"}},
             .call = [](const Inputs& in) -> Result { return {max(in.numbers[0], {1})}; },
             .never_empty = "t"});
    add_row({.name = "max of all",
             .arguments = {{"bti"}},
             .call = [](const Inputs& in) -> Result { return {max(in.numbers[0])}; },
             .never_empty = "bti"});

    add_plain("matmul", {"ti", "io"}, [](const V& v) { return matmul(v[0], v[1]); });
    add_plain("matmul of batches", {"bti", "bio"}, [](const V& v) { return matmul(v[0], v[1]); });
    add_plain("matmul of a batch and one", {"bti", "io"}, [](const V& v) { return matmul(v[0], v[1]); });
    add_plain("matmul of one and a batch", {"ti", "bio"}, [](const V& v) { return matmul(v[0], v[1]); });
    add_plain("linear", {"bti", "oi", "o"}, [](const V& v) { return linear(v[0], v[1], v[2]); });
    add_plain("linear of a vector", {"i", "oi", "o"}, [](const V& v) { return linear(v[0], v[1], v[2]); });
    add_plain("linear without bias", {"ti", "oi"}, [](const V& v) { return linear(v[0], v[1], {}); });
    add_plain("linear_gelu", {"bti", "oi", "o"}, [](const V& v) { return linear_gelu(v[0], v[1], v[2]); });
    add_plain("linear_low_rank", {"bti", "oi", "o", "gi", "og"}, [](const V& v) {
      const LowRankTerm term{.a = v[3], .b = v[4], .scale = 0.75};
      return linear_low_rank(v[0], v[1], v[2], std::span(&term, 1));
    });
    add_row({.name = "linear_low_rank of parts, with an input of their own",
             .arguments = {{"ti"}, {"oi"}, {"gi"}, {"dg"}, {"ti"}},
             .call = [](const Inputs& in) -> Result {
               const std::vector<Variable>& v = in.numbers;
               const std::vector<LowRankTerm> terms = {
                   {.a = v[2], .b = v[3], .scale = 2, .first_row = v[1].dim(0) - v[3].dim(0), .x = v[4]},
                   {.a = v[2], .b = v[3], .scale = -0.5}};
               return {linear_low_rank(v[0], v[1], {}, terms)};
             },
             .never_empty = "o"});

    add_plain("softmax", {"bt"}, [](const V& v) { return softmax(v[0]); });
    add_plain("log_softmax", {"bt"}, [](const V& v) { return log_softmax(v[0]); });
    for (const bool overwrites : {false, true})
      add_row({.name = overwrites ? "cross_entropy over a copy of the logits" : "cross_entropy",
               .arguments = {{"bto"}, {"bt", Holds::positions, 'o'}},
               .call = [overwrites](const Inputs& in) -> Result {
                 const Variable logits = overwrites ? scale(in.numbers[0], 2) : in.numbers[0];
                 return {cross_entropy(logits, in.others[0],
                                       {.ignore_index = 1, .label_smoothing = 0.1, .overwrite_logits = overwrites})
                             .loss};
               },
               .never_empty = "o"});
    // One block, blocks that are not multiples, and rows that the caller chose.
    for (const std::int64_t most : {0, 2, 3})
      add_row({.name = concat("linear_cross_entropy, blocks of ", most),
               .arguments = {{"bti"}, {"oi"}, {"o"}, {"bt", Holds::positions, 'o'}},
               .call = [most](const Inputs& in) -> Result {
                 const V& v = in.numbers;
                 return {linear_cross_entropy(v[0], v[1], v[2], in.others[0],
                                              {.ignore_index = 1,
                                               .label_smoothing = most == 3 ? 0 : 0.1,
                                               .block_rows = 2 * most,
                                               .block_classes = most})
                             .loss};
               },
               .never_empty = "o"});
    add_row({.name = "linear_cross_entropy of chosen rows, without bias",
             .arguments = {{"ti"}, {"oi"}, {"t", Holds::positions, 'o'}, {"1", Holds::positions, 't'}},
             .call = [](const Inputs& in) -> Result {
               return {linear_cross_entropy(in.numbers[0], in.numbers[1], {}, in.others[0],
                                            {.rows = in.others[1], .block_classes = 2})
                           .loss};
             },
             .never_empty = "ot"});
    add_plain(
        "mse_loss", {"bt", "bt"}, [](const V& v) { return mse_loss(v[0], v[1]); }, "bt");

    add_plain("layer_norm", {"btc", "c", "c"}, [](const V& v) { return layer_norm(v[0], v[1], v[2]); });
    add_plain("layer_norm without bias", {"btc", "c"}, [](const V& v) { return layer_norm(v[0], v[1], {}); });
    add_plain("rms_norm", {"btc", "c"}, [](const V& v) { return rms_norm(v[0], v[1]); });
    add_row({.name = "add_norm, layer",
             .arguments = {{"btc"}, {"btc"}, {"c"}, {"c"}},
             .call = [](const Inputs& in) -> Result {
               const V& v = in.numbers;
               const ResidualNorm result = add_norm(NormKind::layer, v[0], v[1], v[2], v[3], 1e-5);
               return {result.sum, result.out};
             }});
    add_row({.name = "add_norm, rms", .arguments = {{"btc"}, {"btc"}, {"c"}}, .call = [](const Inputs& in) -> Result {
               const V& v = in.numbers;
               const ResidualNorm result = add_norm(NormKind::rms, v[0], v[1], v[2], {}, 1e-5);
               return {result.sum, result.out};
             }});

    add_row(
        {.name = "attention",
         .arguments = {{"bhtd"}, {"bgsd"}, {"bgsd"}},
         .call = [](const Inputs& in) -> Result { return {attention(in.numbers[0], in.numbers[1], in.numbers[2])}; },
         .never_empty = "dg"});
    add_row({.name = "attention, causal, with lengths",
             .arguments = {{"bhtd"}, {"bgsd"}, {"bgsd"}, {"b", Holds::lengths, 's'}},
             .call = [](const Inputs& in) -> Result {
               return {attention(in.numbers[0], in.numbers[1], in.numbers[2],
                                 {.causal = true, .q_offset = 2, .lengths = in.others[0]})};
             },
             .never_empty = "dg"});
    add_row(
        {.name = "attention, with starts, a window and dropout",
         .arguments = {{"bhtd"}, {"bgsd"}, {"bgsd"}, {"b", Holds::lengths, 's'}, {"b", Holds::positions}},
         .call = [](const Inputs& in) -> Result {
           return {attention(
               in.numbers[0], in.numbers[1], in.numbers[2],
               {.q_offset = 2,
                .starts = in.others[0],
                .window = 3,
                .dropout = {
                    .probability = 0.4, .key = {.seed = 3, .step = 7}, .sample_ids = in.others[1], .position = 6}})};
         },
         .never_empty = "dg"});
    for (const char* bias : {"bhts", "1hts", "b1ts", "11ts", "bh1s", "1h1s"})
      add_row({.name = concat("attention_with_bias ", bias),
               .arguments = {{"bhtd"}, {"bgsd"}, {"bgsd"}, {bias}, {"b", Holds::positions}},
               .call = [](const Inputs& in) -> Result {
                 const V& v = in.numbers;
                 const AttentionDropout dropout = {.probability = 0.3, .key = {.seed = 4}, .sample_ids = in.others[0]};
                 return {attention_with_bias(v[0], v[1], v[2], v[3],
                                             {.causal = true, .q_offset = 2, .window = 4, .dropout = dropout})};
               },
               .never_empty = "dg"});
    add_row({.name = "attention_packed, in spans, with a window and dropout",
             .arguments = {{"btp"}, {"b", Holds::positions}},
             .call = [](const Inputs& in) -> Result {
               std::vector<AttentionSpan> spans;
               const std::int64_t time = in.extents.at('t');
               for (std::int64_t row = 0; row < in.extents.at('b') && time > 0; ++row)
                 spans.push_back({row, time > 1 ? 1 : 0, time});
               const AttentionDropout dropout = {.probability = 0.4, .key = {.seed = 8}, .sample_ids = in.others[0]};
               return {attention_packed(in.numbers[0], 2, 2,
                                        std::make_shared<const std::vector<AttentionSpan>>(std::move(spans)),
                                        {.causal = true, .window = 2, .dropout = dropout})};
             },
             .never_empty = "p"});
    add_row({.name = "attention_packed, with starts, a window and dropout",
             .arguments = {{"btp"}, {"b", Holds::lengths, 't'}, {"b", Holds::positions}},
             .call = [](const Inputs& in) -> Result {
               const AttentionDropout dropout = {.probability = 0.4, .key = {.seed = 8}, .sample_ids = in.others[1]};
               return {
                   attention_packed(in.numbers[0], 2, 2, {.starts = in.others[0], .window = 2, .dropout = dropout})};
             },
             .never_empty = "p"});
    add_row({.name = "attention_packed, in spans",
             .arguments = {{"btp"}},
             .call = [](const Inputs& in) -> Result {
               return {attention_packed(in.numbers[0], 2, 2, two_spans(in, false), {.causal = true})};
             },
             .never_empty = "p"});
    add_row({.name = "attention_packed",
             .arguments = {{"btp"}, {"b", Holds::lengths, 't'}},
             .call = [](const Inputs& in) -> Result {
               return {attention_packed(in.numbers[0], 2, 2, {.causal = true, .lengths = in.others[0]})};
             },
             .never_empty = "p"});

    for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::interleaved})
      add_row({.name = pairs == RotaryPairs::halves ? "rotary" : "rotary of neighbours",
               .arguments = {{"bhtd"}, {"bt", Holds::positions}},
               .call = [pairs](const Inputs& in) -> Result {
                 return {rotary(in.numbers[0], rotary_of(in.numbers[0].context(), pairs, in.others[0]))};
               },
               .never_empty = "d"});
    add_row({.name = "rotary_norm",
             .arguments = {{"bhtd"}, {"d"}},
             .call = [](const Inputs& in) -> Result {
               const V& v = in.numbers;
               return {rotary_norm(v[0], v[1], rotary_of(v[0].context(), RotaryPairs::halves), 1e-3)};
             },
             .never_empty = "d"});
    add_row({.name = "attention_rotary",
             .arguments = {{"btp"}, {"t", Holds::positions}},
             .call = [](const Inputs& in) -> Result {
               const Rotary places = rotary_of(in.numbers[0].context(), RotaryPairs::halves, in.others[0]);
               return {attention_rotary(in.numbers[0], 2, 2, places, {}, {.causal = true})};
             },
             .never_empty = "p"});
    for (const bool in_spans : {false, true})
      add_row({.name = in_spans ? "attention_rotary with norms, in spans" : "attention_rotary with norms",
               .arguments = {{"btp"}, {"d"}, {"d"}},
               .call = [in_spans](const Inputs& in) -> Result {
                 const V& v = in.numbers;
                 return {attention_rotary(v[0], 2, 2, rotary_of(v[0].context(), RotaryPairs::interleaved),
                                          in_spans ? two_spans(in, true) : nullptr, {.causal = true},
                                          {.query = v[1], .key = v[2], .epsilon = 1e-3})};
               },
               .never_empty = "pd"});
    for (const GateKind kind : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh, GateKind::relu, GateKind::sigmoid})
      add_row({.name = concat("gated ", name_of(kind)),
               .arguments = {{"btc"}},
               .call = [kind](const Inputs& in) -> Result { return {gated(in.numbers[0], kind)}; }});

    add_row({.name = "view", .arguments = {{"bti"}}, .call = [](const Inputs& in) -> Result {
               return {view(in.numbers[0], {in.extents.at('b') * in.extents.at('t'), in.extents.at('i')})};
             }});
    add_plain("transpose", {"bti"}, [](const V& v) { return transpose(v[0], 0, -1); });
    add_plain("permute", {"bti"}, [](const V& v) { return permute(v[0], {1, -1, 0}); });
    add_row({.name = "slice", .arguments = {{"bti"}}, .call = [](const Inputs& in) -> Result {
               const std::int64_t end = in.extents.at('t');
               return {slice(in.numbers[0], -2, std::min<std::int64_t>(1, end), end)};
             }});
    add_row({.name = "slice without elements", .arguments = {{"bti"}}, .call = [](const Inputs& in) -> Result {
               const std::int64_t end = in.extents.at('t');
               return {slice(in.numbers[0], 1, end, end)};
             }});
    add_row({.name = "expand", .arguments = {{"1t"}}, .call = [](const Inputs& in) -> Result {
               return {expand(in.numbers[0], {4, 3, in.extents.at('t')})};
             }});
    add_plain("concat", {"bti", "boi", "bti"}, [](const V& v) { return concat(v, -2); });
    add_row({.name = "split", .arguments = {{"bki"}}, .call = [](const Inputs& in) -> Result {
               return split(in.numbers[0], 3, -2);
             }});
    add_row({.name = "gather",
             .arguments = {{"bvi"}, {"bki", Holds::positions, 'v'}},
             .call = [](const Inputs& in) -> Result { return {gather(in.numbers[0], -2, in.others[0])}; },
             .never_empty = "v"});
    add_row({.name = "index_select",
             .arguments = {{"bvi"}, {"k", Holds::positions, 'v'}},
             .call = [](const Inputs& in) -> Result { return {index_select(in.numbers[0], -2, in.others[0])}; },
             .never_empty = "v"});
    add_row({.name = "embedding",
             .arguments = {{"vi"}, {"bt", Holds::positions, 'v'}},
             .call = [](const Inputs& in) -> Result { return {embedding(in.numbers[0], in.others[0])}; },
             .never_empty = "v"});
    add_row({.name = "checkpoint", .arguments = {{"ti"}, {"io"}}, .call = [](const Inputs& in) -> Result {
               const CheckpointedFunction product = [](std::span<const Variable> v) -> Result {
                 return {tanh(matmul(v[0], v[1]))};
               };
               return checkpoint(product, in.numbers);
             }});
    return all;
  }();
  return rows;
}

}  // namespace keel::testing
