#pragma once
// Mixtures: several data sets whose examples come in given shares.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/data/dataset.h"
#include "keel/data/sampler.h"
#include "keel/data/tokens.h"

namespace keel {

// Which part each place of an endless sequence belongs to, so that of every beginning of it, however long, each part
// has its share to less than one place (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980,
// whose sequence keeps within 1 - 1 / (2 parts - 2)). The sequence repeats after at most kPeriod places, so any place
// of it is known without those before.
class Shares {
 public:
  static constexpr std::int64_t kPeriod = 1'000'000;
  static constexpr std::size_t kMostParts = 256;

  // Weights finite and above 0, of kMostParts parts at most. Shares are their fractions of the sum as whole parts of a
  // period: exactly where the weights are decimals of few digits or small whole numbers, else rounded to millionths by
  // largest remainder. A weight that is less than half a millionth of all is an Error.
  explicit Shares(const std::vector<double>& weights);

  std::size_t parts() const { return counts_.size(); }
  std::int64_t period() const { return static_cast<std::int64_t>(part_.size()); }
  // The exact share of a part.
  double share(std::size_t part) const;
  // The part of place n >= 0.
  std::size_t part(std::int64_t n) const;
  // Places before n that belong to a part.
  std::int64_t before(std::int64_t n, std::size_t part) const;

 private:
  void assign();

  std::vector<std::int64_t> counts_;   // of a period, by part
  std::vector<std::uint8_t> part_;     // of each place of a period
  std::vector<std::int64_t> anchors_;  // places before every kStride-th one, by part
};

// The examples of all parts, one part after the other.
DatasetPtr concatenated(std::vector<DatasetPtr> parts);

// Each row of an endless run is of the part that Shares says; a part's own rows are each of its examples once in every
// round through it, in an order drawn for each round. Examples are numbered as in concatenated(). epoch() is the round
// of the row's part, and an epoch of the mixture is as many rows as there are examples. `sizes` and `weights` are those
// of the parts; a part without examples is an Error. Several parts have rounds of different lengths, so every step has
// all rows, whatever options.last says; of one part its rounds are the epochs.
SamplerPtr mixed(const std::vector<std::int64_t>& sizes, const std::vector<double>& weights,
                 const SamplerOptions& options);

// Some steps of a mixture whose shares change.
struct MixtureStage {
  std::int64_t end = 0;  // the step behind its last one; of the last stage of no meaning, as that is endless
  std::vector<double> weights = {};  // of the parts, as mixed(); a part of weight 0 has no rows in the stage
};
// As mixed(), stage by stage: of the rows from a stage's first on each part has its share, and a part goes on in the
// round where the stages before have left it. An Error where stages do not follow each other.
SamplerPtr mixed_in_stages(const std::vector<std::int64_t>& sizes, const std::vector<MixtureStage>& stages,
                           const SamplerOptions& options);

// Windows of `block` inputs that begin at multiples of the block, with the tokens after each as labels: examples for
// shuffled(), mixed() and next_tokens(). Tokens after the last whole window are left out. At least block + 1 tokens,
// else an Error that names `source`, which is the fingerprint, too.
DatasetPtr token_windows(Tokens tokens, std::int64_t block, std::string source);

}  // namespace keel
