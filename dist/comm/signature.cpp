#include "keel/dist/comm/signature.h"

#include <cstdlib>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/collective_table.h"
#include "keel/runtime/random.h"

namespace keel {
namespace {

constexpr int kSubjectShift = 48;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kSubjectShift) - 1;
constexpr std::uint64_t kByPairs = kCountMask;  // as the count: it differs between ranks

std::string describe(const Signature& s) {
  std::string text = name_of(s.kind, s.digest != 0 || s.is_by_pairs());
  if (s.kind == CollectiveKind::barrier) return text;
  if (s.is_by_pairs()) return concat(text, " of ", s.dtype);
  text += concat(" of ", s.count_and_subject & kCountMask, ' ', s.dtype);
  const CollectiveTraits& traits = traits_of(s.kind);
  const std::uint64_t subject = s.count_and_subject >> kSubjectShift;
  if (traits.has_root) text += concat(traits.gotten == Held::whole_at_root ? " to rank " : " from rank ", subject);
  else if (subject != 0) text += concat(" about ", subject);
  if (!traits.adds) return text;
  const auto all = algorithms();
  return concat(text, " (", name_of(s.op), s.algorithm < all.size() ? concat(", ", all[s.algorithm]->name) : "", ')');
}

// Odd, so that no difference between what is sent and received is lost.
std::uint64_t factor_of(std::uint64_t sender, std::uint64_t receiver) {
  return mix64((sender << 32) + receiver + 1) | 1;
}

// Of an odd number modulo 2^64, by Newton's iteration: each round doubles the bits that are right, of which x has 3.
std::uint64_t inverse_of(std::uint64_t x) {
  std::uint64_t inverse = x;
  for (int round = 0; round < 5; ++round) inverse *= 2 - x * inverse;
  return inverse;
}

std::uint64_t digest_of(const Collective& collective, int rank) {
  const auto count_of = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
  const auto own = static_cast<std::uint64_t>(rank);
  std::uint64_t digest = 0;
  if (collective.kind == CollectiveKind::all_to_all) {
    for (std::size_t r = 0; r < collective.counts.size(); ++r)
      digest +=
          factor_of(own, r) * count_of(collective.counts[r]) - factor_of(r, own) * count_of(collective.incoming[r]);
    return digest;
  }
  for (std::size_t r = 0; r < collective.counts.size(); ++r)
    digest += factor_of(r, r) * (count_of(collective.counts[r]) + 1);
  return digest;
}

// Where one pair alone does not fit, it is the one whose factor makes the balance a small number.
std::string unbalanced(const std::vector<Signature>& asked) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 24;  // elements; by chance a factor reaches it once in 2^39
  std::uint64_t balance = 0;
  for (const Signature& each : asked) balance += each.digest;
  if (balance == 0) return {};
  std::string text =
      concat("ranks send each other other counts than they receive in all_to_all_v, number ", asked[0].sequence);
  for (std::size_t sender = 0; sender < asked.size(); ++sender)
    for (std::size_t receiver = 0; receiver < asked.size(); ++receiver) {
      const auto more = static_cast<std::int64_t>(balance * inverse_of(factor_of(sender, receiver)));
      if (more > kLargest || more < -kLargest) continue;
      return concat(text, ": rank ", sender, " sends rank ", receiver, ' ', std::abs(more),
                    more > 0 ? " more" : " less", " than that receives");
    }
  return text;
}

}  // namespace

Signature::Signature(std::uint32_t sequence, const Collective& collective, std::uint8_t algorithm, int rank)
    : sequence(sequence),
      kind(collective.kind),
      op(collective.op),
      dtype(collective.dtype()),
      algorithm(algorithm),
      count_and_subject(static_cast<std::uint64_t>(collective.count()) |
                        static_cast<std::uint64_t>(traits_of(kind).has_root ? collective.peer : collective.subject)
                            << kSubjectShift) {
  if (!collective.has_counts()) return;
  if (kind == CollectiveKind::all_to_all) count_and_subject |= kByPairs;
  digest = digest_of(collective, rank);
}

bool Signature::is_by_pairs() const {
  return kind == CollectiveKind::all_to_all && (count_and_subject & kCountMask) == kByPairs;
}

bool Signature::goes_with(const Signature& other) const {
  if (!is_by_pairs()) return *this == other;
  Signature same = *this;
  same.digest = other.digest;
  return same == other;
}

std::string difference(const std::vector<Signature>& asked) {
  for (std::size_t r = 1; r < asked.size(); ++r)
    if (!asked[r].goes_with(asked[0]))
      return concat("ranks ask for different collectives as number ", asked[0].sequence, ": rank 0 for ",
                    describe(asked[0]), ", rank ", r, " for ", describe(asked[r]),
                    asked[r].sequence == asked[0].sequence ? "" : concat(" as number ", asked[r].sequence));
  return asked[0].is_by_pairs() ? unbalanced(asked) : std::string();
}

}  // namespace keel
