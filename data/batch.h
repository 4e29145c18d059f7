#pragma once
// What a step reads: named tensors of many samples, and how much each of them weighs.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/stream.h"
#include "keel/runtime/tensor.h"

namespace keel {

// The weight that every batch has: how many samples it has.
inline constexpr std::string_view kRowWeight = "rows";

// Some rows of a step's global batch. Fields are tensors whose first extent is rows(). Weights are counted before the
// forward pass, by whoever makes the batch: a loss is a mean over one of them. Copies share the tensors.
class Batch {
 public:
  Batch() = default;
  // `sample_ids`: i64 (rows), the sample's number in the run, whoever computes it: random draws of a sample depend on
  // it. `examples`: its number in the data set, as many; -1: of none.
  Batch(Tensor sample_ids, std::vector<std::int64_t> examples);
  // Rows that are numbered from `first` on, as samples and as examples.
  Batch(const Context& context, std::int64_t first, std::int64_t rows);

  std::int64_t rows() const { return sample_ids_.defined() ? sample_ids_.dim(0) : 0; }
  const Tensor& sample_ids() const { return sample_ids_; }
  const std::vector<std::int64_t>& examples() const { return examples_; }

  // Fields: names of letters, digits and _. Setting one again is an Error, and so is another first extent than rows(),
  // or another context than that of the sample ids.
  Batch& set(std::string name, Tensor values);
  bool has(std::string_view name) const;
  // Where the batch travels to a device, this field stays in the processor's memory: what the host reads to know what
  // there is to compute.
  Batch& keep_on_host(std::string_view name);
  bool stays_on_host(std::string_view name) const;
  // A field that is not there is an Error that lists those that are, the likeliest first: "the batch has no 'label';
  // did you mean 'labels'? It has input_ids i32 (8, 64), labels i32 (8, 64)".
  const Tensor& operator[](std::string_view name) const;
  const std::vector<std::pair<std::string, Tensor>>& fields() const { return fields_; }  // by name

  // Weights: finite and at least 0, else an Error, and so is setting one again. `rows` is there from the start. Samples
  // that weigh differently have a field of their weights, and their sum is a weight here.
  Batch& set_weight(std::string name, double value);
  bool has_weight(std::string_view name) const;
  // How much the batch has of it: tokens, rows, pairs. A name that is not there is an Error that lists those that are.
  double weight(std::string_view name) const;
  const std::map<std::string, double, std::less<>>& weights() const { return weights_; }
  // The same as f32 scalar on the batch's device, for code that must not read the host (device graphs). Rounded to f32.
  const Tensor& weight_tensor(std::string_view name) const;

  // The same rows with every weight 0, for a rank without rows of its own: the first row of the step, which any rank
  // can load. It computes what the others compute, and nothing of it counts. is_stand_in() tells; validation_step and
  // predict_step need not ask, as what they hand over is dropped.
  Batch stand_in() const;
  bool is_stand_in() const { return is_stand_in_; }

  // The memory of its tensors is not given to others before what the stream has been asked for is done.
  void used_by(const Stream& stream) const;

  // Names, dtypes, ranks and extents behind the first of fields, and names of weights, as lines:
  // "labels i32 (rows, 64)". Extents that differ from batch to batch (padding to the longest) read '*' when `varying`
  // names the field. A name there that is no field is an Error.
  std::string signature(const std::vector<std::string>& varying = {}) const;

 private:
  friend Batch transfer(const Batch& batch, const Context& target);
  void put_weight(std::string name, double value);  // in place of what is there

  Tensor sample_ids_;
  std::vector<std::int64_t> examples_;
  std::vector<std::pair<std::string, Tensor>> fields_;
  std::map<std::string, double, std::less<>> weights_;
  std::vector<std::pair<std::string, Tensor>> weight_tensors_;
  std::vector<std::string> on_host_;  // fields that do not travel
  bool is_stand_in_ = false;
};

// The batch in another context, but for fields that stay on the host; itself where it already is there.
Batch transfer(const Batch& batch, const Context& target);

// Rows [begin, end) of a step's global batch.
struct Rows {
  std::int64_t begin = 0, end = 0;
  bool operator==(const Rows&) const = default;
};

// Makes the batch of any step. All batches of a source have the same fields and weights: ranks compare the signatures
// of their first ones, and those of training and validation, at the start; a later batch that differs is an Error that
// ends all ranks in order. Row r of a step's global batch depends on (source, step, r) alone, so a run resumes by
// its step number at any number of ranks. Its length after padding may depend on the rows beside it.
class BatchSource {
 public:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

  virtual ~BatchSource() = default;
  virtual std::int64_t steps() const { return kEndless; }
  // Steps of an epoch; 0: it has none. An epoch that ends inside a step counts with the step that ends it.
  virtual double steps_per_epoch() const { return 0; }
  // Rows of the global batch of a step in [0, steps()), at least 1.
  virtual std::int64_t rows(std::int64_t step) const = 0;
  // Some rows of a step, at least one, in the processor's memory. Called from any thread, from several at once. A file
  // that shrinks or does not fit is an Error that names it; it ends all ranks in order.
  virtual Batch load(std::int64_t step, Rows range) const = 0;
  // All rows of a step.
  Batch load_all(std::int64_t step) const { return load(step, {0, rows(step)}); }
  // What it will read and how, for checkpoints: a run that goes on with another text is told so (data.allow_changes).
  virtual std::string fingerprint() const { return {}; }

 protected:
  // An Error unless the step exists and has these rows, at least one.
  void check_rows(std::int64_t step, Rows range) const;
};

}  // namespace keel
