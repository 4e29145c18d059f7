#include "keel/dist/comm/signature.h"

#include "keel/dist/comm/algorithms.h"

namespace keel {
namespace {

constexpr int kSubjectShift = 48;

std::string describe(const Signature& s) {
  std::string text(name_of(s.kind));
  if (s.kind == CollectiveKind::barrier) return text;
  const std::uint64_t count = s.count_and_subject & ((std::uint64_t{1} << kSubjectShift) - 1);
  text += concat(" of ", count, ' ', s.dtype);
  if (s.kind == CollectiveKind::broadcast) return concat(text, " from rank ", s.count_and_subject >> kSubjectShift);
  if (const std::uint64_t subject = s.count_and_subject >> kSubjectShift; subject != 0)
    text += concat(" about ", subject);
  if (s.kind != CollectiveKind::all_reduce && s.kind != CollectiveKind::reduce_scatter) return text;
  const auto all = algorithms();
  return concat(text, " (", name_of(s.op), s.algorithm < all.size() ? concat(", ", all[s.algorithm]->name) : "", ')');
}

}  // namespace

Signature::Signature(std::uint32_t sequence, const Collective& collective, std::uint8_t algorithm)
    : sequence(sequence),
      kind(collective.kind),
      op(collective.op),
      dtype(collective.dtype()),
      algorithm(algorithm),
      count_and_subject(
          static_cast<std::uint64_t>(collective.count()) |
          static_cast<std::uint64_t>(kind == CollectiveKind::broadcast ? collective.peer : collective.subject)
              << kSubjectShift) {}

std::string difference(const std::vector<Signature>& asked) {
  for (std::size_t r = 1; r < asked.size(); ++r)
    if (!(asked[r] == asked[0]))
      return concat("ranks ask for different collectives as number ", asked[0].sequence, ": rank 0 for ",
                    describe(asked[0]), ", rank ", r, " for ", describe(asked[r]),
                    asked[r].sequence == asked[0].sequence ? "" : concat(" as number ", asked[r].sequence));
  return {};
}

}  // namespace keel
