#pragma once
// BERT and its relatives, a row each: how they call their modules and the keys of config.json, and which heads they
// have.
//
// Devlin et al. 2019 (BERT), Liu et al. 2019 (RoBERTa), Conneau et al. 2020 (XLM-RoBERTa), Sanh et al. 2019
// (DistilBERT), Clark et al. 2020 (ELECTRA).

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "keel/models/catalog.h"
#include "keel/nn/layers.h"

namespace keel {

struct EncoderFamily {
  std::string_view name, summary;
  std::string_view hub_type;   // model_type of config.json
  std::string_view hub_class;  // "Bert" of BertForMaskedLM
  std::string_view base;       // "bert": where a model with a head has the encoder itself

  // Modules of a layer, within the layer, which lies at `at` with its number.
  struct LayerNames {
    std::string_view at, qkv;
    std::array<std::string_view, 3> parts;  // of qkv
    std::string_view attention_output, attention_norm, inner, outer, norm;
  };
  LayerNames layer;

  // dense, activation, norm, then the table of words and a bias.
  struct MaskedHead {
    std::string_view dense, norm, decoder, bias;
    bool always_gelu = false;  // whatever the activation of the layers is
  };
  MaskedHead masked;

  // Of the first token: dense, activation, dropout, out.
  struct SequenceHead {
    std::string_view dense, out;
    ActivationKind activation = ActivationKind::tanh;
    bool drops_input = false;  // dropout before dense, too
  };
  SequenceHead sequence;

  // Of each token: dense, activation, one number. Empty: the family has none.
  struct ReplacedHead {
    std::string_view dense, out;
  };
  ReplacedHead replaced = {};

  // Keys of config.json.
  struct HubKeys {
    std::string_view width = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads",
                     hidden = "intermediate_size", activation = "hidden_act", dropout = "hidden_dropout_prob",
                     attention_dropout = "attention_probs_dropout_prob", head_dropout = "classifier_dropout";
    std::string_view epsilon = "layer_norm_eps";       // empty: it is 1e-12
    std::string_view token_types = "type_vocab_size";  // empty: there are none
    std::string_view embedding = {};                   // empty: it is the width
  };
  HubKeys keys = {};
  // What keys that are not there mean.
  double head_dropout = -1;              // below 0: as in the layers
  std::int64_t padding_token = 0;        // transformers' default
  bool positions_after_padding = false;  // position 0 is row padding_token + 1 of the table
  bool drops_tokens_as_layers = false;   // the head of tokens drops as the layers do, not as that of sequences

  // What a model by keys has where config.json would say something else.
  double epsilon = 1e-12;
  std::string_view token_types = "2";
  std::vector<ModelEntry::Published> published = {};
  // Keys of config.json of no meaning here.
  std::vector<std::string_view> unused = {};
  HubNaming naming = {};
};

// In the order of documentation.
std::span<const EncoderFamily> encoder_families();
// An Error lists what there is.
const EncoderFamily& encoder_family(std::string_view name);

}  // namespace keel
