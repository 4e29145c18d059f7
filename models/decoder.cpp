#include "keel/models/decoder.h"

#include <algorithm>
#include <bit>
#include <map>

#include "keel/autograd/functions.h"

namespace keel {
namespace {

bool depends_on_length(RotaryScaling scaling) {
  return scaling == RotaryScaling::dynamic || scaling == RotaryScaling::longrope;
}

// Texts of the same number here are turned by the same frequencies.
std::int64_t length_class(const RotaryOptions& options, std::int64_t length) {
  const std::int64_t original = options.original_positions > 0 ? options.original_positions : options.max_positions;
  if (options.scaling == RotaryScaling::dynamic) return std::max(length, options.max_positions);
  return length > original ? original + 1 : original;
}

}  // namespace

std::int64_t DecoderOptions::window(int i) const {
  return !windowed.empty() && windowed[static_cast<std::size_t>(i)] ? layer.window : 0;
}

double training_flops_of_token(const DecoderOptions& options, std::int64_t parameters) {
  const DecoderLayerOptions& layer = options.layer;
  const double time = static_cast<double>(options.block);
  double keys = 0;
  for (int i = 0; i < options.layers; ++i) {
    const std::int64_t window = options.window(i);
    const double seen = window == 0 ? time : std::min(static_cast<double>(window), time);
    keys += seen - seen * seen / (2 * time);
  }
  const std::int64_t looked_up = options.tied ? 0 : options.vocabulary * layer.width;
  return 6 * static_cast<double>(parameters - looked_up) +
         12 * keys * static_cast<double>(layer.heads * layer.head_size);
}

RotaryDecoder::RotaryDecoder(const DecoderOptions& given)
    : options(given),
      embed_tokens(given.vocabulary, given.layer.width, Initializer::normal(given.layer.deviation)),
      norm(given.layer.width, given.layer.epsilon),
      lm_head(given.layer.width, given.vocabulary, /*with_bias=*/false, Initializer::normal(given.layer.deviation)) {
  lm_head.is_head = true;
  if (given.tied) lm_head.weight = embed_tokens.weight.tie();
  KEEL_CHECK(given.vocabulary > 0 && given.block > 0 && given.layers > 0,
             "a decoder needs a vocabulary, a block and layers of at least 1");
  KEEL_CHECK(given.windowed.empty() || std::ssize(given.windowed) == given.layers, "a decoder of ", given.layers,
             " layers got windows of ", given.windowed.size());
  options.rotary.head_size = given.layer.head_size;
  (void)rotary_frequencies(options.rotary, given.block);
  for (int i = 0; i < given.layers; ++i) {
    DecoderLayerOptions layer = given.layer;
    layer.window = given.window(i);
    layers.emplace_back(layer);
  }
}

std::int64_t RotaryDecoder::checked_end(const Tensor& tokens, std::int64_t first) const {
  KEEL_CHECK(tokens.rank() == 2, "a decoder reads tokens (batch, time), got ", tokens);
  const std::int64_t end = first + tokens.dim(1);
  KEEL_CHECK(end <= options.block, "the sequence reaches position ", end, ", but the model's block is ", options.block);
  return end;
}

RotaryPart RotaryDecoder::part_of(std::int64_t length) const {
  const auto rounded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length)));
  const bool varies = depends_on_length(options.rotary.scaling);
  return {.positions = std::min(rounded, options.block),
          .length = varies ? length_class(options.rotary, length) : options.block};
}

const RotaryTable& RotaryDecoder::table_of(const std::vector<RotaryPart>& parts) const {
  const Context& context = embed_tokens.weight.value().context();
  const auto fits = [&](const Turns& turns) {
    if (turns.table.cosines.device() != context.device() || turns.parts.size() != parts.size()) return false;
    if (parts.size() > 1) return turns.parts == parts;
    return turns.parts[0].length == parts[0].length && turns.parts[0].positions >= parts[0].positions;
  };
  if (!turns_ || !fits(*turns_)) turns_ = {parts, rotary_table(context, options.rotary, parts)};
  return turns_->table;
}

Rotary RotaryDecoder::rotary_of(const Tensor& tokens, std::int64_t first) const {
  return {.table = table_of({part_of(checked_end(tokens, first))}), .first = first};
}

Rotary RotaryDecoder::rotary_of(const Tensor& tokens, const PackedDocuments& documents) const {
  if (!documents.spans) return rotary_of(tokens, 0);
  KEEL_CHECK(documents.positions.defined() && documents.positions.shape() == tokens.shape(),
             "packed documents have a position for each token of ", tokens);
  const std::int64_t time = checked_end(tokens, 0);
  // The longest document of each class of lengths.
  std::map<std::int64_t, std::int64_t> longest;
  if (depends_on_length(options.rotary.scaling))
    for (const AttentionSpan& span : *documents.spans) {
      KEEL_CHECK(
          0 <= span.row && span.row < tokens.dim(0) && 0 <= span.begin && span.begin < span.end && span.end <= time,
          "packed documents: positions [", span.begin, ", ", span.end, ") of row ", span.row, " are not in ", tokens);
      std::int64_t& of_class = longest[length_class(options.rotary, span.end - span.begin)];
      of_class = std::max(of_class, span.end - span.begin);
    }
  if (longest.size() < 2) {
    const std::int64_t length = longest.empty() ? time : longest.begin()->second;
    return {.table = table_of({part_of(length)}), .positions = documents.positions};
  }
  // Each class has a part of the table, which begins at its place in `begins`.
  std::vector<RotaryPart> parts;
  std::map<std::int64_t, std::int64_t> begins;
  std::int64_t rows = 0;
  for (const auto& [of_class, length] : longest) {
    parts.push_back(part_of(length));
    begins[of_class] = rows;
    rows += parts.back().positions;
  }
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens.numel()));
  for (const AttentionSpan& span : *documents.spans) {
    const std::int64_t begin = begins.at(length_class(options.rotary, span.end - span.begin));
    for (std::int64_t t = span.begin; t < span.end; ++t)
      positions[static_cast<std::size_t>(span.row * time + t)] = static_cast<std::int32_t>(begin + t - span.begin);
  }
  return {.table = table_of(parts),
          .positions = from_values(embed_tokens.weight.value().context(), positions, tokens.shape())};
}

Variable RotaryDecoder::states(const Tensor& tokens, Forward& pass, const PackedDocuments& documents) const {
  const Rotary rotary = rotary_of(tokens, documents);
  ResidualStream stream{Dropout(options.layer.dropout)(embed_tokens(tokens), pass)};
  for (const DecoderLayer& layer : layers) {
    const auto through = [&layer, &pass, rotary, spans = documents.spans](const ResidualStream& in) {
      return layer(in, pass, rotary, spans);
    };
    stream = pass_through(through, stream, pass, recompute);
  }
  return advance(stream, norm);
}

KeyValueCache RotaryDecoder::make_cache(std::int64_t batch, std::int64_t positions) const {
  return make_key_value_cache(embed_tokens.weight.value(), {.layers = options.layers,
                                                            .batch = batch,
                                                            .kv_heads = options.layer.kv_heads,
                                                            .positions = cache_positions(positions),
                                                            .head_size = options.layer.head_size});
}

bool RotaryDecoder::mixes_lengths() const { return !depends_on_length(options.rotary.scaling); }

Variable RotaryDecoder::next_states(const Tensor& tokens, const CachedRows& rows) const {
  Rotary rotary = rotary_of(tokens, rows.longest());
  if (!rows.common_length()) {
    KEEL_CHECK(mixes_lengths(), "rows of different lengths are turned by different frequencies; read each alone");
    rotary.positions = rows.positions(tokens.context(), tokens.dim(1));
  }
  ResidualStream stream{embed_tokens(tokens)};
  for (std::size_t i = 0; i < layers.size(); ++i) stream = layers[i](stream, rotary, rows, i);
  return advance(stream, norm);
}

void RotaryDecoder::visit(Visitor& v) {
  v("model.embed_tokens", embed_tokens);
  v("model.layers", layers);
  v("model.norm", norm);
  v("lm_head", lm_head);
}

}  // namespace keel
