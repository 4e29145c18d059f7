#include "keel/dist/checkpoint/hub_export.h"

#include <algorithm>
#include <array>

#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/dist/checkpoint/weights_writer.h"
#include "keel/runtime/error.h"

namespace keel {

bool is_hub_file(std::string_view name) {
  constexpr auto kBeside = std::to_array<std::string_view>(
      {kHubConfig, kHubWeights, kAdapterConfig, kAdapterWeights, "generation_config.json", "tokenizer.json",
       "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "spiece.model", "tokenizer.model",
       "sentencepiece.bpe.model", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "vocab.txt"});
  return std::ranges::find(kBeside, name) != kBeside.end() || is_of_shards(name);
}

std::size_t export_hub(const std::string& folder, const Manifest& manifest, const std::string& target,
                       const HubExport& what) {
  // Programs that read such files look for this word.
  const WeightsWriter writer(folder, manifest, what.section, what.dtype, what.progress,
                             {.tensors = what.tensors, .metadata = {{"format", "pt"}}});
  const std::vector<std::vector<SafetensorsEntry>> shards = divide_into_shards(writer.tensors(), what.most);
  check_number_of_shards(shards.size());
  AtomicFolder written(target, what.if_exists);
  const auto inside = [&](std::string_view name) { return concat(written.temporary(), '/', name); };
  writer.verify();
  if (shards.size() == 1) {
    writer.write(inside(what.weights), shards.front());
  } else {
    for (std::size_t i = 0; i < shards.size(); ++i) writer.write(inside(shard_name(i + 1, shards.size())), shards[i]);
    write_text_file(inside(kShardIndex), shard_index_text(shards));
  }
  for (const auto& [name, text] : what.files) write_text_file(inside(name), text);
  written.commit(true);
  return shards.size();
}

}  // namespace keel
