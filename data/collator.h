#pragma once
// Collators: examples to a batch, with the weights that losses are means over.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/data/batch.h"
#include "keel/data/sampler.h"
#include "keel/runtime/context.h"

namespace keel {

// One row to be: an example, and what random draws for it may depend on. Whoever draws uses (seed, sample) and nothing
// else, so that other ranks and micro-batches give the same numbers: key_of(seed, "what is drawn") and element indices
// sample * width + i, as in keel/runtime/random.h.
struct CollatedRow {
  Example example;
  std::int64_t index = 0;   // in the data set
  std::int64_t sample = 0;  // in the run
  std::int64_t epoch = 0;
};
struct CollateInfo {
  Context context;         // of the processor; tensors are made in it
  std::uint64_t seed = 0;  // of the data
};

// Makes fields and weights of at least one row; a pure function, called from several threads. Sample ids, examples and
// the weight `rows` are there already. It sets the same names every time, all of them also for one row.
using Collator = std::function<void(std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch)>;

// Every field of numbers becomes a tensor (rows, shape...): i32 where all rows have whole numbers, else f32; a whole
// number that does not fit in i32 is an Error that names the field. Texts are left out. Rows of different fields or
// shapes are an Error that names both examples.
Collator stack();

// A sequence of whole numbers, and what it is filled up with.
struct PaddedField {
  std::string name;
  std::int64_t value = 0;
};
struct PadOptions {
  std::vector<PaddedField> fields = {};  // such as {{"input_ids"}, {"labels", -100}}
  std::int64_t multiple = 1;             // the length is one of its multiples
  std::int64_t length = 0;               // 0: the least that all rows fit in
  bool left = false;                     // filled up on the left
  bool mask = false;                     // field "mask", u8 (rows, time): 1 where nothing was filled up
};
// These fields become i32 (rows, time), filled up; the sequences of one row have one length, and one that is longer
// than `length` is an Error. The weight `tokens` counts what was not filled up, the weight `positions` all of it, and
// field "lengths", i64 (rows), says of each row what was not. Other fields are stacked.
inline constexpr std::string_view kPositionWeight = "positions";
Collator pad(const PadOptions& options);

struct SourceOptions {
  std::uint64_t seed = 0;
  std::vector<std::string> varying = {};  // fields whose extents differ from batch to batch
};
// Batches of a data set, in `context`, which is the processor's. The first batch's signature holds for all; another one
// is an Error that names both. The fingerprint is that of the data set.
std::shared_ptr<const BatchSource> make_source(const Context& context, DatasetPtr data, SamplerPtr sampler,
                                               Collator collator, const SourceOptions& options = {});

}  // namespace keel
