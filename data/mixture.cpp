#include "keel/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "keel/data/batch.h"
#include "keel/data/draws.h"
#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::int64_t kStride = 1024;  // places between two anchors

// The weights as whole numbers without a common divisor whose sum is at most kPeriod, where they are such.
std::vector<std::int64_t> exact_counts(const std::vector<double>& weights) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<std::int64_t> counts;
    for (const double weight : weights) {
      const double scaled = weight * scale, whole = std::round(scaled);
      // One rounding of the product, and one of the decimal that was written.
      if (whole < 1 || whole > 1e15 || std::fabs(scaled - whole) > 4e-16 * scaled) break;
      counts.push_back(static_cast<std::int64_t>(whole));
    }
    if (counts.size() != weights.size()) continue;
    const std::int64_t divisor = std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                                                 [](std::int64_t a, std::int64_t b) { return std::gcd(a, b); });
    for (std::int64_t& count : counts) count /= divisor;
    double sum = 0;
    for (const std::int64_t count : counts) sum += static_cast<double>(count);
    if (sum <= static_cast<double>(Shares::kPeriod)) return counts;
    return {};
  }
  return {};
}

// Millionths by largest remainder.
std::vector<std::int64_t> rounded_counts(const std::vector<double>& weights, double sum) {
  std::vector<std::int64_t> counts;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double exact = weight / sum * static_cast<double>(Shares::kPeriod);
    counts.push_back(static_cast<std::int64_t>(exact));
    remainders.push_back(exact - static_cast<double>(counts.back()));
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t part) { return remainders[part]; });
  std::int64_t left = Shares::kPeriod - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++counts[order[i]];
  return counts;
}

class JoinedDataset final : public Dataset {
 public:
  explicit JoinedDataset(std::vector<DatasetPtr> parts) : parts_(std::move(parts)) {
    for (const DatasetPtr& part : parts_) {
      KEEL_CHECK(part != nullptr, "one of the data sets to be joined is not there");
      begins_.push_back(size_);
      size_ += part->size();
    }
  }
  std::int64_t size() const override { return size_; }
  Example example(std::int64_t i) const override {
    const auto [part, at] = place_of(i);
    return parts_[part]->example(at);
  }
  std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
    // Each part is asked once, so that what lies side by side in it is read together.
    std::vector<std::vector<std::int64_t>> asked(parts_.size());
    std::vector<std::size_t> part_of;
    for (const std::int64_t i : indices) {
      const auto [part, at] = place_of(i);
      part_of.push_back(part);
      asked[part].push_back(at);
    }
    std::vector<std::vector<Example>> found(parts_.size());
    for (std::size_t part = 0; part < parts_.size(); ++part)
      if (!asked[part].empty()) found[part] = parts_[part]->examples(asked[part]);
    std::vector<std::size_t> next(parts_.size());
    std::vector<Example> all;
    all.reserve(indices.size());
    for (const std::size_t part : part_of) all.push_back(std::move(found[part][next[part]++]));
    return all;
  }
  std::int64_t length(std::int64_t i) const override {
    const auto [part, at] = place_of(i);
    return parts_[part]->length(at);
  }
  std::string fingerprint() const override {
    std::string text = concat("joined ", parts_.size());
    for (const DatasetPtr& part : parts_) {
      const std::string of = part->fingerprint();
      text += concat(' ', of.size(), ' ', of);
    }
    return text;
  }

 private:
  struct Place {
    std::size_t part;
    std::int64_t at;
  };
  Place place_of(std::int64_t i) const {
    check_index(i);
    // The last part that begins there or before: those without examples begin where the next one does.
    const auto part = static_cast<std::size_t>(std::ranges::upper_bound(begins_, i) - begins_.begin()) - 1;
    return {part, i - begins_[part]};
  }

  std::vector<DatasetPtr> parts_;
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
};

std::uint64_t seed_of_part(std::uint64_t seed, std::size_t part) { return mix64(seed ^ fnv1a64("mixture")) + part; }

class MixedSampler final : public Sampler {
 public:
  MixedSampler(const std::vector<std::int64_t>& sizes, const std::vector<MixtureStage>& stages,
               const SamplerOptions& options)
      : sizes_(sizes), rows_(options.rows) {
    KEEL_CHECK(options.rows >= 1, "a step has at least one row, not ", options.rows);
    KEEL_CHECK(!stages.empty(), "a mixture in stages has at least one");
    std::vector<std::int64_t> given(sizes.size());  // rows of each part before the stage
    for (std::size_t i = 0; i < stages.size(); ++i) add(stages[i], i + 1 == stages.size(), given);
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      KEEL_CHECK(sizes[part] >= 1, "data set ", part, " of the mixture has no examples");
      begins_.push_back(size_);
      size_ += sizes[part];
      seeds_.push_back(seed_of_part(options.seed, part));
    }
  }
  std::int64_t steps() const override { return BatchSource::kEndless; }
  double steps_per_epoch() const override { return static_cast<double>(size_) / static_cast<double>(rows_); }
  std::int64_t rows(std::int64_t step) const override {
    KEEL_CHECK(step >= 0 && step < BatchSource::kEndless / rows_, "there is no step ", step);
    return rows_;
  }
  std::int64_t first_sample(std::int64_t step) const override { return step * rows(step); }
  std::int64_t example(std::int64_t step, std::int64_t row) const override {
    const Turn turn = turn_of(step, row);
    return begins_[turn.part] + epoch_element(turn.number, sizes_[turn.part], seeds_[turn.part]);
  }
  std::int64_t epoch(std::int64_t step, std::int64_t row) const override {
    const Turn turn = turn_of(step, row);
    return turn.number / sizes_[turn.part];
  }

 private:
  struct Stage {
    std::int64_t begin;               // its first step
    std::vector<std::size_t> parts;   // that have rows in it
    std::vector<std::int64_t> given;  // rows of each of those before it
    Shares shares;                    // of those
  };
  // A row as a part's own: its number among them.
  struct Turn {
    std::size_t part;
    std::int64_t number;
  };

  void add(const MixtureStage& stage, bool is_last, std::vector<std::int64_t>& given) {
    KEEL_CHECK(stage.weights.size() == sizes_.size(), "a mixture has ", sizes_.size(), " data sets, and ",
               stage.weights.size(), " weights");
    std::vector<std::size_t> parts;
    std::vector<std::int64_t> before;
    std::vector<double> weights;
    for (std::size_t part = 0; part < sizes_.size(); ++part) {
      if (stage.weights[part] == 0 && sizes_.size() > 1) continue;
      parts.push_back(part);
      before.push_back(given[part]);
      weights.push_back(stage.weights[part]);
    }
    KEEL_CHECK(!parts.empty(), "no data set of the mixture has a weight above 0");
    const std::int64_t begin = next_begin_;
    const Stage& added = stages_.emplace_back(Stage{begin, std::move(parts), std::move(before), Shares(weights)});
    if (is_last) return;
    KEEL_CHECK(stage.end > begin && stage.end < BatchSource::kEndless / rows_, "a stage of a mixture ends at step ",
               stage.end, ", and begins at ", begin);
    for (std::size_t i = 0; i < added.parts.size(); ++i)
      given[added.parts[i]] += added.shares.before((stage.end - begin) * rows_, i);
    next_begin_ = stage.end;
  }

  Turn turn_of(std::int64_t step, std::int64_t row) const {
    KEEL_CHECK(0 <= row && row < rows(step), "row ", row, " is none of the ", rows_, " rows of step ", step);
    const Stage& stage = *(std::ranges::upper_bound(stages_, step, {}, &Stage::begin) - 1);
    const std::int64_t n = (step - stage.begin) * rows_ + row;
    const std::size_t place = stage.shares.part(n);
    return {stage.parts[place], stage.given[place] + stage.shares.before(n, place)};
  }

  std::vector<std::int64_t> sizes_, begins_;
  std::vector<std::uint64_t> seeds_;
  std::vector<Stage> stages_;
  std::int64_t next_begin_ = 0;  // of the stage that is added next
  std::int64_t rows_, size_ = 0;
};

class TokenWindows final : public Dataset {
 public:
  TokenWindows(Tokens tokens, std::int64_t block, std::string source)
      : tokens_(std::move(tokens)), block_(block), source_(std::move(source)) {
    KEEL_CHECK(block >= 1, "a window has at least one token, not ", block);
    KEEL_CHECK(tokens_.size() > block, "'", source_, "' has ", tokens_.size(), " tokens; a window of ", block,
               " and its targets need ", block + 1);
  }
  std::int64_t size() const override { return (tokens_.size() - 1) / block_; }
  std::int64_t length(std::int64_t i) const override {
    check_index(i);
    return block_;
  }
  Example example(std::int64_t i) const override {
    check_index(i);
    std::vector<std::int32_t> window(static_cast<std::size_t>(block_ + 1));
    tokens_.copy(i * block_, window);
    std::vector<Example::Field> fields;
    fields.emplace_back(kInputIds, Integers{{block_}, {window.begin(), window.end() - 1}});
    fields.emplace_back(kLabels, Integers{{block_}, {window.begin() + 1, window.end()}});
    return Example(std::move(fields));
  }
  std::string fingerprint() const override { return concat("windows of ", block_, " of ", source_); }

 private:
  Tokens tokens_;
  std::int64_t block_;
  std::string source_;
};

}  // namespace

Shares::Shares(const std::vector<double>& weights) {
  KEEL_CHECK(!weights.empty() && weights.size() <= kMostParts, "a mixture has 1 to ", kMostParts, " parts, not ",
             weights.size());
  double sum = 0;
  for (std::size_t part = 0; part < weights.size(); ++part) {
    KEEL_CHECK(std::isfinite(weights[part]) && weights[part] > 0, "the weight of part ", part, " is ", weights[part],
               "; it must be finite and above 0");
    sum += weights[part];
  }
  KEEL_CHECK(std::isfinite(sum), "the weights of the parts add up to ", sum);
  counts_ = exact_counts(weights);
  if (counts_.empty()) counts_ = rounded_counts(weights, sum);
  for (std::size_t part = 0; part < weights.size(); ++part)
    KEEL_CHECK(counts_[part] > 0, "the weight of part ", part, " is less than a millionth of all; leave the part out");
  assign();
}

// Of the parts whose next place would not come too early, the one whose next place would soonest be too late. Numbers
// of places are multiplied by the period, so that all is whole.
void Shares::assign() {
  const std::int64_t period = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  const auto parts = static_cast<std::int64_t>(counts_.size());
  const std::int64_t room = parts == 1 ? 1 : 2 * parts - 2;  // 1 / room is how early a place may come
  std::vector<std::int64_t> given(counts_.size());
  part_.reserve(static_cast<std::size_t>(period));
  for (std::int64_t n = 0; n < period; ++n) {
    if (n % kStride == 0) anchors_.insert(anchors_.end(), given.begin(), given.end());
    std::size_t chosen = counts_.size();
    std::int64_t chosen_slack = 0;
    for (std::size_t part = 0; part < counts_.size(); ++part) {
      const std::int64_t lacking = counts_[part] * (n + 1) - given[part] * period;  // period times
      if (lacking * room < period) continue;
      const std::int64_t slack = period * (room - 1) - lacking * room;  // room times period times
      __extension__ using Wide = __int128;
      if (chosen == counts_.size() || Wide{slack} * counts_[chosen] < Wide{chosen_slack} * counts_[part]) {
        chosen = part;
        chosen_slack = slack;
      }
    }
    if (chosen == counts_.size()) throw Error("no part of a mixture lacks a place", ErrorKind::internal);
    ++given[chosen];
    part_.push_back(static_cast<std::uint8_t>(chosen));
  }
}

double Shares::share(std::size_t part) const {
  return static_cast<double>(counts_[part]) / static_cast<double>(period());
}

std::size_t Shares::part(std::int64_t n) const { return part_[static_cast<std::size_t>(n % period())]; }

std::int64_t Shares::before(std::int64_t n, std::size_t part) const {
  const std::int64_t round = n / period(), at = n % period(), anchor = at / kStride;
  const std::int64_t known = anchors_[static_cast<std::size_t>(anchor) * counts_.size() + part];
  return round * counts_[part] + known +
         std::count(part_.begin() + anchor * kStride, part_.begin() + at, static_cast<std::uint8_t>(part));
}

DatasetPtr concatenated(std::vector<DatasetPtr> parts) { return std::make_shared<JoinedDataset>(std::move(parts)); }

SamplerPtr mixed(const std::vector<std::int64_t>& sizes, const std::vector<double>& weights,
                 const SamplerOptions& options) {
  if (sizes.size() == 1 && weights.size() == 1 && options.last != LastRows::join) {
    SamplerOptions alone = options;
    alone.seed = seed_of_part(options.seed, 0);
    return shuffled(sizes.front(), alone);
  }
  return mixed_in_stages(sizes, {{.weights = weights}}, options);
}

SamplerPtr mixed_in_stages(const std::vector<std::int64_t>& sizes, const std::vector<MixtureStage>& stages,
                           const SamplerOptions& options) {
  return std::make_shared<MixedSampler>(sizes, stages, options);
}

DatasetPtr token_windows(Tokens tokens, std::int64_t block, std::string source) {
  return std::make_shared<TokenWindows>(std::move(tokens), block, std::move(source));
}

}  // namespace keel
