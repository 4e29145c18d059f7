#pragma once
// Small models of each kind that adapters are added to.

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "keel/models/decoder.h"
#include "keel/models/hub_tensors.h"
#include "keel/models/model_keys.h"
#include "tests/models/tiny_encoder.h"
#include "tests/tiny_gpt.h"

namespace keel::testing {

// A model with what it gives for tokens, and its names.
struct AdaptedModel {
  std::unique_ptr<Module> module;
  std::function<Variable(const Tensor& tokens, Forward& pass)> output;
  HubNaming naming;
};

inline AdaptedModel adapted_gpt(bool bias = true) {
  GptOptions options = tiny_gpt();
  options.bias = bias;
  auto gpt = std::make_unique<Gpt>(options);
  const Gpt& model = *gpt;
  return {std::move(gpt), [&model](const Tensor& tokens, Forward& pass) { return model(tokens, pass); },
          find_model("gpt")->naming};
}

// A tied one has its embedding as its head.
inline std::unique_ptr<RotaryDecoder> decoder_with_head(bool tied = false) {
  DecoderOptions options;
  options.vocabulary = 61;
  options.block = 16;
  options.layers = 2;
  options.layer = {.width = 24, .hidden = 40, .heads = 4, .kv_heads = 2, .head_size = 8};
  options.layer.deviation = 0.2;
  options.rotary.max_positions = 16;
  options.tied = tied;
  return std::make_unique<RotaryDecoder>(options);
}

inline AdaptedModel adapted_decoder() {
  std::unique_ptr<RotaryDecoder> decoder = decoder_with_head();
  const RotaryDecoder& model = *decoder;
  return {std::move(decoder), [&model](const Tensor& tokens, Forward& pass) { return model(tokens, pass); },
          find_model("llama")->naming};
}

inline AdaptedModel adapted_encoder(std::string_view family = "bert") {
  auto encoder =
      std::make_unique<Encoder>(tiny_encoder(family), HeadOptions{.head = EncoderHead::sequence, .outputs = 3});
  const Encoder& model = *encoder;
  return {std::move(encoder), [&model](const Tensor& tokens, Forward& pass) { return model({.tokens = tokens}, pass); },
          find_model(family)->naming};
}

}  // namespace keel::testing
