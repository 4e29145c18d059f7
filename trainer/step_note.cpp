#include "keel/trainer/step_note.h"

#include <cstring>
#include <string>

#include "keel/dist/comm/agreement.h"

namespace keel {
namespace {

std::vector<std::byte> bytes_of(const StepNote* note, std::span<const double> sums) {
  const std::size_t head = note == nullptr ? 0 : sizeof *note;
  std::vector<std::byte> bytes(head + sums.size_bytes());
  if (note != nullptr) std::memcpy(bytes.data(), note, head);
  if (!sums.empty()) std::memcpy(bytes.data() + head, sums.data(), sums.size_bytes());
  return bytes;
}

// `count` sums of each virtual rank.
void add_numbers(std::span<const std::byte> bytes, std::size_t count, std::vector<double>& sums) {
  sums.resize(count);
  for (std::size_t i = 0; i < bytes.size() / sizeof(double); ++i) {
    double number = 0;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    sums[i % count] += number;
  }
}

}  // namespace

LoopWishes agreed_wishes(std::span<const LoopWishes> of_ranks) {
  LoopWishes agreed = of_ranks.front();
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const LoopWishes& each = of_ranks[rank];
    if (each.rate != agreed.rate)
      throw AgreedError(concat("callbacks of rank ", rank, " ask for ", each.rate,
                               " times the learning rate, and those of rank 0 for ", agreed.rate,
                               " times (-1: they do not ask); they must ask for the same in the same event"));
    agreed.stop |= each.stop;
    agreed.evaluate |= each.evaluate;
    agreed.save |= each.save;
    agreed.failed |= each.failed;
  }
  return agreed;
}

GatheringOfNotes::GatheringOfNotes(Communicator& ranks, const StepNote& note, std::span<const double> sums,
                                   int virtual_ranks)
    : count_(sums.size() / static_cast<std::size_t>(virtual_ranks)), bytes_(ranks, bytes_of(&note, sums)) {}

StepNotes GatheringOfNotes::wait() {
  StepNotes told;
  for (const std::vector<std::byte>& theirs : bytes_.wait()) {
    std::memcpy(&told.notes.emplace_back(), theirs.data(), sizeof(StepNote));
    add_numbers(std::span(theirs).subspan(sizeof(StepNote)), count_, told.sums);
  }
  return told;
}

GatheringOfSums::GatheringOfSums(Communicator& ranks, std::span<const double> mine, int virtual_ranks)
    : count_(mine.size() / static_cast<std::size_t>(virtual_ranks)), bytes_(ranks, bytes_of(nullptr, mine)) {}

std::vector<double> GatheringOfSums::wait() {
  std::vector<double> sums;
  for (const std::vector<std::byte>& theirs : bytes_.wait()) add_numbers(theirs, count_, sums);
  return sums;
}

}  // namespace keel
