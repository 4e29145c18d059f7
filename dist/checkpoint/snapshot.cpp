#include "keel/dist/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "keel/dist/comm/exchange.h"
#include "keel/runtime/bulk_copy.h"
#include "keel/runtime/parallel.h"

namespace keel {
namespace {

constexpr std::int64_t kCopyGrain = std::int64_t{1} << 20;  // bytes

// "model.safetensors" for one file, "model-2-of-4.safetensors" for one of several, counted from 1.
std::string file_name(std::string_view kind, int index, int count) {
  if (count == 1) return concat(kind, ".safetensors");
  return concat(kind, '-', index + 1, "-of-", count, ".safetensors");
}

void copy_bytes(const Tensor& from, const Tensor& to) {
  if (from.storage()->elsewhere() != nullptr) {
    std::byte* next = to.raw();
    return read_once(from, [&](std::span<const std::byte> piece) {
      std::memcpy(next, piece.data(), piece.size());
      next += piece.size();
    });
  }
  const std::byte* source = from.raw();
  std::byte* target = to.raw();
  parallel_for(from.context(), static_cast<std::int64_t>(from.bytes()), kCopyGrain,
               [&](std::int64_t begin, std::int64_t end) {
                 copy_past_caches({source + begin, static_cast<std::size_t>(end - begin)}, target + begin);
               });
}

}  // namespace

std::string section_of_stack(std::string_view name, std::string_view what) {
  return name.empty() ? std::string(what) : concat("stack.", name, '.', what);
}

std::string section_of(const Sharded& engine, std::string_view what) {
  return section_of_stack(engine.options().name, what);
}

std::vector<SavedBeside> saved_with(Sharded& engine) {
  return {{section_of(engine, "weights"), engine.weights(), &engine},
          {section_of(engine, "optimizer"), engine.optimizer_state(), &engine}};
}

namespace {

// What the names of an engine's files begin with; of one that has a name, its section.
std::string kind_of(const Sharded& engine, std::string_view kind, std::string_view what) {
  return engine.options().name.empty() ? std::string(kind) : section_of(engine, what);
}

}  // namespace

std::string section_of_group(int group) { return concat("group.", group); }

TensorParts group_parts(const Sharded& engine) {
  TensorParts all;
  for (const auto& [kind, parts] :
       {std::pair{"weights.", engine.weights()}, std::pair{"optimizer.", engine.optimizer_state()},
        std::pair{"strategy.", engine.strategy_state(/*of_group=*/true)}})
    for (TensorPart part : parts) {
      part.name = kind + part.name;
      all.push_back(std::move(part));
    }
  all.push_back(engine.group_steps().front());
  return all;
}

FileNumber number_files(const Sharded& engine, Communicator& ranks) {
  const std::vector<int> writes = gather_values(ranks, engine.holds_parts() ? 1 : 0);
  FileNumber number{.count = std::accumulate(writes.begin(), writes.end(), 0)};
  if (engine.holds_parts()) number.index = std::accumulate(writes.begin(), writes.begin() + ranks.rank(), 0);
  return number;
}

std::vector<Section> sections_of(const Sharded& engine, FileNumber number, std::span<const SavedBeside> beside) {
  engine.settle_strategy();
  std::vector<Section> sections;
  if (number.index >= 0) {
    sections.push_back({section_of(engine, "weights"),
                        file_name(kind_of(engine, "model", "weights"), number.index, number.count),
                        engine.weights(),
                        {{"format", "keel"}}});
    sections.push_back({section_of(engine, "optimizer"),
                        file_name(kind_of(engine, "optimizer", "optimizer"), number.index, number.count),
                        engine.optimizer_state(),
                        {{"optimizer", std::string(engine.optimizer().name())}}});
    for (const SavedBeside& each : beside)
      sections.push_back(
          {each.section, file_name(each.section, number.index, number.count), each.parts, {{"format", "keel"}}});
  }
  if (engine.size() > 1 && engine.options().compression.kind().feedback)
    sections.push_back({concat("compression.", engine.residual_place().number),
                        file_name("compression", engine.rank(), engine.size()),
                        engine.compression_state(),
                        {{"format", "keel"}}});
  if (engine.has_strategy() && engine.group() == 0 && engine.holds_group_parts())
    sections.push_back({"strategy",
                        file_name("strategy", engine.rank(), engine.size()),
                        engine.strategy_state(),
                        {{"format", "keel"}}});
  if (engine.group() > 0 && engine.holds_group_parts())
    sections.push_back({section_of_group(engine.group()),
                        file_name("group", engine.rank(), engine.size()),
                        group_parts(engine),
                        {{"format", "keel"}}});
  return sections;
}

std::int64_t bytes_of(const std::vector<Section>& sections) {
  std::int64_t sum = 0;
  for (const Section& section : sections)
    for (const TensorPart& part : section.parts)
      if (part.values.defined()) sum += static_cast<std::int64_t>(part.values.bytes());
  return sum;
}

Snapshot::Snapshot(const std::vector<Section>& sections) : copies_(sections) {
  for (Section& section : copies_)
    for (TensorPart& part : section.parts) {
      if (!part.values.defined()) continue;
      const Context& context = part.values.context();
      if (context.stream().is_asynchronous() && !stream_.is_asynchronous()) stream_ = context.make_stream();
      part.values = zeros(context.host(), part.values.shape(), part.values.dtype(), Purpose::checkpoint);
    }
}

void Snapshot::take(const std::vector<Section>& sections, Sharded& engine, std::span<const SavedBeside> beside) {
  this->sections();  // the copy before has arrived
  if (stream_.is_asynchronous()) stream_.wait(engine.context().stream().record());
  for (std::size_t s = 0; s < sections.size(); ++s)
    for (std::size_t p = 0; p < sections[s].parts.size(); ++p) {
      const Tensor& from = sections[s].parts[p].values;
      const Tensor& to = copies_[s].parts[p].values;
      if (!from.defined() || from.numel() == 0) continue;
      if (from.context().stream().is_asynchronous() && from.storage()->elsewhere() == nullptr) {
        const StreamScope aside(from.context(), stream_);
        const HostCopy copy(from, to);
      } else {
        copy_bytes(from, to);
      }
    }
  if (!stream_.is_asynchronous()) return;
  arrived_ = stream_.record();
  engine.hold_updates(arrived_);
  for (const SavedBeside& each : beside)
    if (each.engine != nullptr) each.engine->hold_updates(arrived_);
}

const std::vector<Section>& Snapshot::sections() const {
  arrived_.synchronize();
  return copies_;
}

}  // namespace keel
