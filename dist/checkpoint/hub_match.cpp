// Files of Hugging Face's form, and what their tensors are of a model.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "keel/dist/checkpoint/hub_weights.h"
#include "keel/dist/checkpoint/weight_shards.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNames = 40;  // of an Error or a note

bool has_file(const std::string& folder, std::string_view name) {
  std::error_code ignored;
  return fs::exists(concat(folder, '/', name), ignored);
}

std::string listed_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    text += concat(i == 0 ? "" : ", ", printable(names[i], 256));
  return names.size() > kMostNames ? concat(text, " and ", names.size() - kMostNames, " more") : text;
}

bool begins_with_one_of(std::string_view name, const std::vector<std::string>& beginnings) {
  return std::ranges::any_of(beginnings, [&](const std::string& each) { return name.starts_with(each); });
}

bool ends_with_one_of(std::string_view name, const std::vector<std::string>& endings) {
  return std::ranges::any_of(endings, [&](const std::string& each) { return name.ends_with(each); });
}

// And in nothing else.
bool have_other_rows(const Dims& a, const Dims& b) {
  return !a.empty() && !b.empty() && a[0] != b[0] && std::ranges::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
}

// A name as files may have it: as it is, without the base model's prefix, or with it.
std::vector<std::string> spellings(const std::string& name, const std::string& prefix) {
  if (prefix.empty()) return {name};
  if (name.starts_with(prefix)) return {name, name.substr(prefix.size())};
  return {name, concat(prefix, name)};
}

class Matching {
 public:
  Matching(const Manifest& manifest, const HubNames& names) : names_(names) {
    for (const StoredTensor& tensor : manifest.tensors) stored_.emplace(name_now(tensor.name), &tensor);
  }

  void take(const HubTensor& tensor) {
    std::vector<const StoredTensor*> found;
    add_found(tensor.name, found);
    for (const std::string& name : tensor.also) add_found(name, found);
    if (found.empty()) {
      (is_of_head(tensor.name) ? anew_ : missing_).push_back(tensor.name);
      return;
    }
    for (const StoredTensor* each : found) {
      if (each->shape != tensor.shape && is_of_head(tensor.name) && have_other_rows(each->shape, tensor.shape)) {
        head_rows_ = {each->shape[0], tensor.shape[0]};
        ++reshaped_heads_;
      }
      if (each->shape != tensor.shape)
        reshaped_.push_back(concat(each->name, ' ', each->shape, " instead of ", tensor.shape));
      else if (!is_floating(each->dtype)) reshaped_.push_back(concat(each->name, " of dtype ", each->dtype));
      if (each != found.front()) match_.twice.emplace_back(found.front()->name, each->name);
    }
    match_.tensors.push_back(tensor);
    match_.tensors.back().name = found.front()->name;
  }

  HubMatch finish(const std::string& folder) && {
    std::vector<std::string> unknown, unused;
    for (const auto& [name, tensor] : stored_) {
      if (taken_.contains(name) || ends_with_one_of(name, names_.ignored)) continue;
      (is_of_head(name) ? unused : unknown).push_back(tensor->name);
    }
    std::string wrong;
    const auto add = [&](std::string_view what, const std::vector<std::string>& names) {
      if (!names.empty()) wrong += concat(wrong.empty() ? "" : "; ", what, ": ", listed_names(names));
    };
    add("missing", missing_);
    add("unknown to the model", unknown);
    add("of another shape or dtype", reshaped_);
    if (missing_.empty() && unknown.empty() && !reshaped_.empty() && reshaped_heads_ == reshaped_.size())
      throw Error(concat("the head in '", folder, "' has ", head_rows_.first, " outputs, and the model is to have ",
                         head_rows_.second, " (", wrong, "); ", names_.head_remedy,
                         names_.head_remedy.empty() ? "" : ", or ", "begin without its weights: model.weights=false"));
    KEEL_CHECK(wrong.empty(), "the weights in '", folder, "' are not those of the model that its ", names_.config,
               " describes; ", wrong, "; take both from one place");
    if (!anew_.empty())
      match_.notes.push_back(concat("'", folder, "' has no ", listed_names(anew_), ": they begin at random"));
    if (!unused.empty())
      match_.notes.push_back(concat("the model has no place for ", listed_names(unused), " of '", folder, "'"));
    return std::move(match_);
  }

 private:
  // What a tensor of an older file is called now.
  std::string name_now(const std::string& name) const {
    for (const auto& [before, now] : names_.renamed)
      if (name.ends_with(before)) return concat(name.substr(0, name.size() - before.size()), now);
    return name;
  }
  bool is_of_head(std::string_view name) const {
    if (name.starts_with(names_.base_prefix)) name.remove_prefix(names_.base_prefix.size());
    return begins_with_one_of(name, names_.heads);
  }
  void add_found(const std::string& name, std::vector<const StoredTensor*>& found) {
    for (const std::string& each : spellings(name, names_.base_prefix))
      if (const auto place = stored_.find(each); place != stored_.end() && taken_.insert(each).second)
        found.push_back(place->second);
  }

  const HubNames& names_;
  std::map<std::string, const StoredTensor*> stored_;  // by the names of now
  std::set<std::string> taken_;
  std::vector<std::string> missing_, anew_, reshaped_;
  std::pair<std::int64_t, std::int64_t> head_rows_;  // of the folder's and the model's, where they differ
  std::size_t reshaped_heads_ = 0;                   // of reshaped_: tensors of heads that differ in rows alone
  HubMatch match_;
};

}  // namespace

bool is_hub_folder(const std::string& folder) {
  return has_file(folder, kHubConfig) && !has_file(folder, "config.yaml") && !is_checkpoint(folder);
}

Manifest describe_hub_weights(const std::string& folder) {
  const std::string file = kHubWeights;
  if (has_file(folder, file)) return describe_files(folder, "weights", std::span(&file, 1));
  if (has_file(folder, kShardIndex)) return describe_shards(concat(folder, '/', kShardIndex), "weights");
  for (const std::string_view other : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    KEEL_CHECK(!has_file(folder, other), "'", folder, "' has its weights as ", other,
               ", which only Python can read; `scripts/convert-weights ", folder, "` writes safetensors beside it");
  throw Error(concat("'", folder, "' has no weights; looked for were ", kHubWeights, " and ", kShardIndex),
              ErrorKind::io);
}

HubMatch match_hub_tensors(const Manifest& manifest, const HubNames& names, const std::string& folder) {
  Matching matching(manifest, names);
  for (const HubTensor& tensor : names.tensors) matching.take(tensor);
  return std::move(matching).finish(folder);
}

}  // namespace keel
