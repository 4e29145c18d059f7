#include "keel/nn/tensor_parts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

constexpr std::size_t kNamesShown = 3;

std::string list_some(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesShown; ++i) text += concat(i ? ", " : "", names[i]);
  if (names.size() > kNamesShown) text += concat(" and ", names.size() - kNamesShown, " more");
  return text;
}

using ByName = std::map<std::string_view, std::vector<const TensorPart*>>;

ByName group(const TensorParts& parts) {
  ByName groups;
  for (const TensorPart& part : parts) groups[part.name].push_back(&part);
  for (auto& [name, group] : groups)
    std::sort(group.begin(), group.end(), [](const TensorPart* a, const TensorPart* b) { return a->begin < b->begin; });
  return groups;
}

// Whether the parts, by their beginnings, hold all elements of [begin, end).
bool covers(const std::vector<const TensorPart*>& parts, std::int64_t begin, std::int64_t end) {
  for (const TensorPart* part : parts)
    if (part->begin <= begin) begin = std::max(begin, part->end());
  return begin >= end;
}

void copy_overlap(const TensorPart& from, const TensorPart& to) {
  const std::int64_t begin = std::max(from.begin, to.begin), end = std::min(from.end(), to.end());
  if (begin >= end) return;
  const Tensor source = from.values.slice(0, begin - from.begin, end - from.begin);
  kernels::copy_into(to.values.slice(0, begin - to.begin, end - to.begin), kernels::to(source, to.values.context()));
}

// Reads a number at the start of the text, and takes it away.
bool take_number(std::string_view& text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// "(7, 5) 12:24"
bool parse_range(std::string_view text, Dims& shape, std::int64_t& begin, std::int64_t& end) {
  if (!take(text, "(")) return false;
  for (std::int64_t extent = 0, all = 1; !take(text, ")"); shape.push_back(extent)) {
    if (shape.size() == kMaxRank || (!shape.empty() && !take(text, ", ")) || !take_number(text, extent)) return false;
    if (__builtin_mul_overflow(all, extent, &all)) return false;
  }
  return take(text, " ") && take_number(text, begin) && take(text, ":") && take_number(text, end) && text.empty();
}

// Differences between the tensors of `from` and `to`; of their elements, too, where those are compared.
void compare(const TensorParts& from, const TensorParts& to, bool elements, std::string_view complaint) {
  const ByName sources = group(from), targets = group(to);
  std::vector<std::string> missing, reshaped, extra;
  for (const TensorPart& target : to) {
    const auto found = sources.find(target.name);
    if (found == sources.end()) missing.push_back(target.name);
    else if (const Dims& shape = found->second.front()->shape; shape != target.shape)
      reshaped.push_back(concat(target.name, ' ', shape, " instead of ", target.shape));
    else if (elements && !covers(found->second, target.begin, target.end()))
      missing.push_back(concat("a part of ", target.name));
  }
  for (const auto& [name, parts] : sources)
    if (!targets.contains(name)) extra.emplace_back(name);
  std::string differences;
  if (!missing.empty()) differences += concat("; missing: ", list_some(missing));
  if (!extra.empty()) differences += concat("; unknown: ", list_some(extra));
  if (!reshaped.empty()) differences += concat("; of another shape: ", list_some(reshaped));
  KEEL_CHECK(differences.empty(), complaint, differences);
}

}  // namespace

TensorParts parts_of(const NamedTensors& tensors) {
  TensorParts parts;
  for (const auto& [name, tensor] : tensors) parts.push_back({name, tensor.shape(), 0, tensor.view({tensor.numel()})});
  return parts;
}

NamedTensors whole_tensors(const TensorParts& parts) {
  NamedTensors tensors;
  for (const TensorPart& part : parts) {
    KEEL_CHECK(part.is_whole(), "this rank has elements ", part.begin, " to ", part.end(), " of ", part.name, ' ',
               part.shape, " alone");
    tensors.emplace_back(part.name, part.values.view(part.shape));
  }
  return tensors;
}

void check_parts(const TensorParts& from, const TensorParts& to, std::string_view complaint) {
  compare(from, to, true, complaint);
}

void check_tensors(const TensorParts& from, const TensorParts& to, std::string_view complaint) {
  compare(from, to, false, complaint);
}

void copy_parts(const TensorParts& from, const TensorParts& to, std::string_view complaint) {
  check_parts(from, to, complaint);
  const ByName sources = group(from);
  for (const TensorPart& target : to)
    for (const TensorPart* source : sources.at(target.name)) copy_overlap(*source, target);
}

std::uint64_t fingerprint(const TensorParts& parts) {
  std::uint64_t sum = 0;
  for (const TensorPart& part : parts) {
    if (part.numel() == 0) continue;
    const auto key = key_of(0, part.name);
    const std::size_t width = size_of(part.values.dtype());
    const HostCopy copy(part.values);
    const std::byte* bytes = copy.get().raw();
    for (std::int64_t i = 0; i < part.numel(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * width, width);
      const auto place = static_cast<std::uint64_t>(part.begin + i);
      const std::uint64_t factor = (std::uint64_t{stream_word(key, 2 * place)} << 32) | stream_word(key, 2 * place + 1);
      sum += (factor | 1) * bits;
    }
  }
  return sum;
}

NamedTensors named_parts(const TensorParts& parts) {
  NamedTensors tensors;
  for (const TensorPart& part : parts) {
    if (part.is_whole()) tensors.emplace_back(part.name, part.values.view(part.shape));
    else if (part.numel() > 0)
      tensors.emplace_back(concat(part.name, ' ', part.shape, ' ', part.begin, ':', part.end()), part.values);
  }
  return tensors;
}

PartName parse_part_name(const std::string& name, const Dims& shape) {
  const std::size_t space = name.find(" (");
  PartName part{name.substr(0, space), shape, 0, product(shape)};
  if (space == std::string::npos) return part;
  part.shape = {};
  KEEL_CHECK(parse_range(std::string_view(name).substr(space + 1), part.shape, part.begin, part.end) &&
                 part.begin <= part.end && part.end - part.begin == product(shape) && part.end <= product(part.shape),
             "'", name, "' does not say which elements its ", product(shape), " numbers are");
  return part;
}

TensorParts parse_parts(const NamedTensors& tensors) {
  TensorParts parts;
  for (const auto& [name, tensor] : tensors) {
    PartName part = parse_part_name(name, tensor.shape());
    parts.push_back({std::move(part.name), part.shape, part.begin, tensor.view({tensor.numel()})});
  }
  return parts;
}

}  // namespace keel
