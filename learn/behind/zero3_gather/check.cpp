#include <algorithm>

#include "learn/behind/ranks.h"
#include "learn/given/layers.h"

void step(learn::Group& group, learn::Layers& layers);

namespace {

// The buffers of the rank that runs in this thread.
struct Memory {
  learn::Ranks& ranks;
  int rank;
  std::vector<std::pair<const float*, std::int64_t>> alive = {};
  std::int64_t numbers = 0;

  bool holds(learn::In row) const {
    return std::any_of(alive.begin(), alive.end(), [&](const auto& one) {
      return row.data() >= one.first && row.data() + row.size() <= one.first + one.second;
    });
  }
};
thread_local Memory* memory = nullptr;

}  // namespace

namespace learn {

Buffer::Buffer(std::int64_t count) : numbers_(static_cast<std::size_t>(count), std::nanf("")) {
  memory->alive.emplace_back(numbers_.data(), count);
  memory->numbers += count;
}
Buffer::~Buffer() {
  if (numbers_.empty()) return;
  memory->ranks.released(memory->rank, numbers_.data(), static_cast<std::int64_t>(numbers_.size()));
  std::erase_if(memory->alive, [&](const auto& one) { return one.first == numbers_.data(); });
  memory->numbers -= static_cast<std::int64_t>(numbers_.size());
}
Buffer::Buffer(Buffer&& other) noexcept : numbers_(std::move(other.numbers_)) { other.numbers_.clear(); }
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer old(std::move(*this));
  numbers_ = std::move(other.numbers_);
  other.numbers_.clear();
  return *this;
}

}  // namespace learn

namespace {

using Sizes = std::vector<std::int64_t>;  // weights of the layers, which differ

float weight(std::size_t layer, std::int64_t i) {
  return static_cast<float>(1000 * static_cast<std::int64_t>(layer) + i + 1);
}

enum class Pass : unsigned char { forward, backward };

// A layer that computed, and what was known then.
struct Computed {
  Pass pass = Pass::forward;
  int layer = 0;
  std::int64_t alive = 0;                    // whole weights
  std::vector<int> begun = {}, waited = {};  // by layer: gathers so far
};

std::string text(const Computed& c) {
  return fmt::format("{} of layer {}", c.pass == Pass::forward ? "the forward" : "the backward", c.layer);
}

class Model : public learn::Layers {
 public:
  Model(const Sizes& sizes, int n, int rank)
      : sizes_(sizes), rank_(rank), begun(sizes.size()), waited(sizes.size()) {
    for (std::size_t l = 0; l < sizes.size(); ++l) {
      const learn::Shard mine = learn::shard(sizes[l], n, rank);
      shards_.emplace_back();
      for (std::int64_t i = mine.begin; i < mine.end; ++i) shards_.back().push_back(weight(l, i));
      gradients_.emplace_back(static_cast<std::size_t>(mine.size()), std::nanf(""));
    }
  }

  int count() const override { return static_cast<int>(sizes_.size()); }
  std::int64_t weights(int layer) const override { return sizes_[checked(layer, "weights")]; }
  learn::In shard(int layer) const override { return learn::row(shards_[checked(layer, "shard")]); }
  learn::Out gradient(int layer) override { return learn::row(gradients_[checked(layer, "gradient")]); }

  void forward(int layer, learn::In weights) override { check(Pass::forward, layer, weights); }
  void backward(int layer, learn::In weights, learn::Out gradients) override {
    check(Pass::backward, layer, weights);
    const auto at = static_cast<std::size_t>(layer);
    if (gradients.size() != sizes_[at])
      learn::wrong("backward({}) gets a row of {} gradients, and the layer has {} weights.", layer,
                   gradients.size(), sizes_[at]);
    for (std::int64_t i = 0; i < gradients.size(); ++i)
      gradients[i] = weight(at, i) + 0.25F * static_cast<float>(rank_);
  }

  int layer_of(const learn::Call& call) const {
    const auto found = std::find(sizes_.begin(), sizes_.end(), call.count());
    if (found == sizes_.end())
      learn::wrong("Rank {} asks for {}, and no layer has as many weights.", rank_, call.text());
    return static_cast<int>(found - sizes_.begin());
  }

  void expect_all_computed() const {
    const auto n = static_cast<int>(computed.size());
    if (n == 0) learn::wrong("step() ended, and no layer has computed: nothing is written yet?");
    if (n < 2 * count())
      learn::wrong("step() ended behind {}. {} was expected next.", text(computed.back()), text(due(n)));
  }
  void expect_gradients(int n) const {
    for (std::size_t l = 0; l < sizes_.size(); ++l) {
      const learn::Shard mine = learn::shard(sizes_[l], n, rank_);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) {
        const float got = gradients_[l][static_cast<std::size_t>(i - mine.begin)];
        float sum = 0;
        for (int r = 0; r < n; ++r) sum += weight(l, i) + 0.25F * static_cast<float>(r);
        if (got == sum) continue;
        std::string_view why;
        if (std::isnan(got))
          why =
              "\nThe gradients that backward() writes are the rank's own; reduce_scatter makes the shard of "
              "their sum.";
        else if (got == weight(l, i) + 0.25F * static_cast<float>(rank_))
          why = "\nThat is the rank's own gradient, to which no other rank's was added.";
        learn::wrong("gradient({})[{}] of rank {} is {}, and {} was expected.{}", l, i - mine.begin, rank_,
                     got, sum, why);
      }
    }
  }

 private:
  const Sizes& sizes_;
  int rank_;
  std::vector<std::vector<float>> shards_, gradients_;

 public:
  std::vector<int> begun, waited;  // gathers, by layer
  std::vector<Computed> computed = {};

 private:
  std::size_t checked(int layer, std::string_view function) const {
    if (layer < 0 || layer >= count())
      learn::wrong("{}({}) was called, and layers are 0 to {}.", function, layer, count() - 1);
    return static_cast<std::size_t>(layer);
  }
  Computed due(int number) const {
    return {number < count() ? Pass::forward : Pass::backward,
            number < count() ? number : 2 * count() - 1 - number};
  }

  void check(Pass pass, int layer, learn::In weights) {
    Computed now{.pass = pass, .layer = layer, .alive = memory->numbers, .begun = begun, .waited = waited};
    const auto number = static_cast<int>(computed.size());
    const Computed expected = due(number);
    if (number >= 2 * count()) learn::wrong("Behind the backward of layer 0 comes {}.", text(now));
    if (expected.pass != pass || expected.layer != layer)
      learn::wrong("{} computes, where {} was due. Layers 0 to {} go forward, then back.", text(now),
                   text(expected), count() - 1);
    const std::size_t at = checked(layer, "forward");
    if (weights.size() != sizes_[at])
      learn::wrong("In {} rank {} gives {} weights, and the layer has {}.", text(now), rank_, weights.size(),
                   sizes_[at]);
    if (!memory->holds(weights))
      learn::wrong("In {} rank {} gives weights that lie in no learn::Buffer, or in one that was released.",
                   text(now), rank_);
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == weight(at, i)) continue;
      std::string_view why;
      if (std::isnan(weights[i]))
        why =
            "\nIt has not arrived: what a gather brings is not there before wait(), and a buffer into which "
            "the next "
            "layer is gathered no longer has this one's.";
      else if (weights[i] >= 1000) why = "\nIt is another layer's.";
      learn::wrong("In {} weight {} is {} on rank {}, and {} was expected.{}", text(now), i, weights[i],
                   rank_, weight(at, i), why);
    }
    computed.push_back(now);
  }
};

struct Setting {
  int n = 2;
  Sizes sizes = {};
  int steps = 1;
};

// What the layers of rank 0 saw in the last step. Laws that hold for every step are checked here.
std::vector<Computed> stepped(const Setting& s, std::vector<int>* gathers = nullptr) {
  std::vector<std::unique_ptr<Model>> models(static_cast<std::size_t>(s.n));
  std::vector<Computed> seen;
  learn::Ranks ranks(s.n);
  const auto model = [&](int rank) -> Model& { return *models[static_cast<std::size_t>(rank)]; };
  ranks.on_begin = [&](const learn::Call& call) {
    if (call.kind == learn::Kind::all_gather)
      ++model(call.rank).begun[static_cast<std::size_t>(model(call.rank).layer_of(call))];
  };
  ranks.on_wait = [&](const learn::Call& call) {
    if (call.kind == learn::Kind::all_gather && !call.finished)
      ++model(call.rank).waited[static_cast<std::size_t>(model(call.rank).layer_of(call))];
  };
  ranks.run([&](learn::Group& group) {
    const int r = group.rank();
    Memory mine{.ranks = ranks, .rank = r};
    memory = &mine;
    for (int number = 0; number < s.steps; ++number) {
      models[static_cast<std::size_t>(r)] = std::make_unique<Model>(s.sizes, s.n, r);
      step(group, model(r));
      model(r).expect_all_computed();
      model(r).expect_gradients(s.n);
      if (mine.numbers != 0)
        learn::wrong("step() has ended, and rank {} still has a learn::Buffer of {} weights.", r,
                     mine.numbers);
    }
    if (r == 0) seen = model(r).computed;
    if (r == 0 && gathers != nullptr) *gathers = model(r).begun;
  });
  return seen;
}

// The layer that is gathered while this one computes; -1: none.
int neighbour(const Computed& c, const Sizes& sizes) {
  const int next = c.pass == Pass::forward ? c.layer + 1 : c.layer - 1;
  return next < static_cast<int>(sizes.size()) ? next : -1;
}

void expect_released(const Setting& s) {
  for (const Computed& c : stepped(s)) {
    const int next = neighbour(c, s.sizes);
    const std::int64_t allowed =
        s.sizes[static_cast<std::size_t>(c.layer)] + (next < 0 ? 0 : s.sizes[static_cast<std::size_t>(next)]);
    if (c.alive <= allowed) continue;
    std::string_view why = "Layers that have computed are still there: release each right behind its turn.";
    if (c.pass == Pass::forward && c.layer == 0)
      why = "Layers that come much later are gathered already: begin one gather in each turn.";
    learn::wrong("In {} of {} rank 0 has Buffers of {} weights. The layer {} {} {}.\n{}", text(c),
                 s.sizes.size(), c.alive, next < 0 ? "alone" : fmt::format("and layer {}", next),
                 next < 0 ? "has" : "have", allowed, why);
  }
}

void expect_prefetch(const Setting& s) {
  for (const Computed& c : stepped(s)) {
    const int next = neighbour(c, s.sizes);
    if (next < 0) continue;
    const auto at = static_cast<std::size_t>(next);
    const int due = c.pass == Pass::forward ? 1 : 2;
    if (c.begun[at] < due)
      learn::wrong(
          "In {} the gather of layer {} has not begun. Then the network rests while the layer computes, and "
          "the "
          "next one waits for the network.",
          text(c), next);
    if (c.waited[at] >= due)
      learn::wrong(
          "Before {} rank 0 has waited for layer {}, too. It shall arrive while this one computes: wait for "
          "it "
          "when its own turn comes.",
          text(c), next);
  }
}

void expect_gathers(const Setting& s) {
  std::vector<int> gathers;
  stepped(s, &gathers);
  int all = 0;
  for (const int g : gathers) all += g;
  const auto layers = static_cast<int>(s.sizes.size());
  if (all != 2 * layers - 1)
    learn::wrong("A step of {} layers has {} gathers, and {} are enough.{}", layers, all, 2 * layers - 1,
                 gathers.back() == 2
                     ? "\nThe last layer was there when backward began: it need not be released and "
                       "gathered again."
                     : "");
}

}  // namespace

int main() {
  const Setting usual{.n = 2, .sizes = {8, 6, 12, 4, 10}};
  return learn::run({
      {"every layer computes with all of its weights",
       [] {
         stepped({.n = 2, .sizes = {6, 4}});
       }},
      {"in several layers, which need not be multiples of the ranks",
       [&] {
         stepped(usual);
         stepped({.n = 4, .sizes = {7, 3, 1, 10, 2}});
       }},
      {"whole weights of two layers at most are alive", [&] { expect_released(usual); }},
      {"the next layer is gathered while one computes", [&] { expect_prefetch(usual); }},
      {"a step of L layers has 2 L - 1 gathers", [&] { expect_gathers(usual); }},
      {"one layer, one rank, several steps",
       [&] {
         for (const Setting& s : {Setting{2, {5}}, Setting{1, {5, 3, 4}}, Setting{3, {5, 4, 9}, 3}}) {
           expect_released(s);
           expect_prefetch(s);
           expect_gathers(s);
         }
       }},
  });
}
