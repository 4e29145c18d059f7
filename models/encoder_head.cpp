#include "keel/models/encoder_head.h"

#include "keel/autograd/functions.h"
#include "keel/models/encoder.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

Linear encoder_linear(std::int64_t in, std::int64_t out) {
  return Linear(in, out, /*with_bias=*/true, Initializer::normal(0.02));
}

Linear answering_linear(std::int64_t in, std::int64_t out) {
  Linear linear = encoder_linear(in, out);
  linear.is_head = true;
  return linear;
}

// The rows that have a label, and their labels; one that does not count where there are none.
struct LabelledRows {
  std::vector<std::int64_t> rows, labels;
};
LabelledRows labelled_rows(const Tensor& labels) {
  LabelledRows found;
  const auto collect = [&](const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == -100) continue;
      found.rows.push_back(static_cast<std::int64_t>(i));
      found.labels.push_back(static_cast<std::int64_t>(values[i]));
    }
  };
  if (labels.dtype() == DType::i32) collect(labels.to_vector<std::int32_t>());
  else collect(labels.to_vector<std::int64_t>());
  if (found.rows.empty()) found = {{0}, {-100}};
  return found;
}

class MaskedHeadPart : public EncoderHeadPart {
 public:
  MaskedHeadPart(const EncoderOptions& options, const Parameter& words)
      : names_(options.family->masked),
        activation_(names_.always_gelu ? ActivationKind::gelu : options.activation),
        dense_(encoder_linear(options.width, options.embedding_width())),
        norm_(options.embedding_width(), /*with_bias=*/true, options.epsilon),
        decoder_(words.tie()),
        bias_({options.vocabulary}, Initializer::zeros()) {}

  Variable operator()(const Variable& states, Forward& /*pass*/) const override {
    return linear(transformed(states), decoder_, bias_);
  }

  CrossEntropyLoss masked_loss(const Variable& states, const Tensor& labels) const override {
    KEEL_CHECK(labels.numel() * states.dim(-1) == states.value().numel(), "labels ", labels, " do not fit the states ",
               states.shape());
    Variable rows = states;
    Tensor targets = labels;
    if (labels.device().type == DeviceType::cpu) {
      const LabelledRows found = labelled_rows(labels);
      const Context& context = states.value().context();
      const Dims count = {std::ssize(found.rows)};
      rows = index_select(view(states, {-1, states.dim(-1)}), 0, from_values(context, found.rows, count));
      targets = from_values(context, found.labels, count);
    }
    return linear_cross_entropy(transformed(rows), decoder_, bias_, targets, {.kept_bytes = kLogitsWorthKeeping});
  }

  void visit(Visitor& v) override {
    v(names_.dense, dense_);
    v(names_.norm, norm_);
    v(names_.decoder, decoder_);
    v(names_.bias, bias_);
  }

 private:
  // Rows that were chosen are not the samples' any more: an adapter drops nothing here.
  Variable transformed(const Variable& states) const {
    Forward pass;
    return norm_(activated(dense_, activation_, states, pass));
  }

  EncoderFamily::MaskedHead names_;
  ActivationKind activation_;
  Linear dense_;
  LayerNorm norm_;
  Parameter decoder_, bias_;
};

class SequenceHeadPart : public EncoderHeadPart {
 public:
  SequenceHeadPart(const EncoderOptions& options, std::int64_t outputs)
      : names_(options.family->sequence),
        dense_(encoder_linear(options.width, options.width)),
        out_(answering_linear(options.width, outputs)),
        dropout_(options.head_dropout) {}

  Variable operator()(const Variable& states, Forward& pass) const override {
    Variable first = slice(states, 1, 0, 1);
    if (names_.drops_input) first = dropout_(first, pass);
    first = dropout_(activated(dense_, names_.activation, first, pass), pass);
    return view(out_(first, pass), {states.dim(0), -1});
  }

  void visit(Visitor& v) override {
    v(names_.dense, dense_);
    v(names_.out, out_);
  }

 private:
  EncoderFamily::SequenceHead names_;
  Linear dense_, out_;
  Dropout dropout_;
};

class TokensHeadPart : public EncoderHeadPart {
 public:
  TokensHeadPart(const EncoderOptions& options, std::int64_t outputs)
      : out_(answering_linear(options.width, outputs)),
        dropout_(options.family->drops_tokens_as_layers ? options.dropout : options.head_dropout) {}

  Variable operator()(const Variable& states, Forward& pass) const override {
    return out_(dropout_(states, pass), pass);
  }
  void visit(Visitor& v) override { v("classifier", out_); }

 private:
  Linear out_;
  Dropout dropout_;
};

class ReplacedHeadPart : public EncoderHeadPart {
 public:
  explicit ReplacedHeadPart(const EncoderOptions& options)
      : names_(options.family->replaced),
        activation_(options.activation),
        dense_(encoder_linear(options.width, options.width)),
        out_(answering_linear(options.width, 1)) {}

  Variable operator()(const Variable& states, Forward& pass) const override {
    return view(out_(activated(dense_, activation_, states, pass), pass), {states.dim(0), states.dim(1)});
  }
  void visit(Visitor& v) override {
    v(names_.dense, dense_);
    v(names_.out, out_);
  }

 private:
  EncoderFamily::ReplacedHead names_;
  ActivationKind activation_;
  Linear dense_, out_;
};

}  // namespace

Variable activated(const Linear& layer, ActivationKind activation, const Variable& x, Forward& pass) {
  if (activation == ActivationKind::gelu_tanh) return layer.forward_gelu(x, pass);
  return Activation(activation)(layer(x, pass));
}

CrossEntropyLoss EncoderHeadPart::masked_loss(const Variable& /*states*/, const Tensor& /*labels*/) const {
  throw Error("this encoder's head does not say which token stood where; make it with EncoderHead::masked_language");
}

std::unique_ptr<EncoderHeadPart> make_encoder_head(const EncoderOptions& options, const HeadOptions& head,
                                                   const Parameter& words) {
  const bool counts = head.head == EncoderHead::sequence || head.head == EncoderHead::tokens;
  KEEL_CHECK(!counts || head.outputs > 0, "the head of an encoder needs outputs of at least 1, got ", head.outputs);
  switch (head.head) {
    case EncoderHead::none: return nullptr;
    case EncoderHead::masked_language: return std::make_unique<MaskedHeadPart>(options, words);
    case EncoderHead::sequence: return std::make_unique<SequenceHeadPart>(options, head.outputs);
    case EncoderHead::tokens: return std::make_unique<TokensHeadPart>(options, head.outputs);
    case EncoderHead::replaced:
      if (options.family->replaced.dense.empty())
        throw Error(concat(options.family->name, " has no head that tells replaced tokens; electra has one"),
                    ErrorKind::unsupported);
      return std::make_unique<ReplacedHeadPart>(options);
  }
  throw Error("unknown head of an encoder");
}

}  // namespace keel
