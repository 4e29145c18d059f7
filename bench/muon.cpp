// Muon's step of one matrix beside its products alone: momentum, norm, scaling, update and copies are the difference.
//
// usage: bench_muon [threads] [seconds for each shape]; medians, and the quickest of each

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench/measure.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/dist/parallel/matrix_updates.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/step_state.h"
#include "keel/nn/layers.h"
#include "keel/optim/elementwise.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

using testing::uniform_tensor;

constexpr int kIterations = 5;

// A layer's weight on a rank alone, as an engine has it.
class Step {
 public:
  Step(const Context& context, std::int64_t rows, std::int64_t columns, MuonProducts products)
      : layer_(columns, rows, false),
        optimizer_(make_elementwise("Muon", {.settings = MuonSettings{.products = products}, .weight_decay = 0.1})),
        layout_(lay_out(layer_)),
        ranks_(make_communicator(ThreadHub(1).connect(0))),
        input_{.step = kernels::make_step_state(context, {.steps = 2, .taken = 1, .lr = 1e-3})} {
    ParameterRange range;
    range.shape = {rows, columns};
    range.group.matrices = {rows};
    range.parameter = uniform_tensor(context, {rows * columns}, 1);
    range.gradient = uniform_tensor(context, {rows * columns}, 2);
    range.state = {uniform_tensor(context, {rows * columns}, 3)};
    ranges_ = {range};
    const FlatBuffer* const units[] = {&layout_.front()};
    updates_ = std::make_unique<MatrixUpdates>(
        *optimizer_, MatrixDeal(units, *optimizer_, decay_matrices_only, 1, false, DType::f32), ranges_,
        RanksSite{*ranks_, context, context, waited_ms_});
  }
  void operator()() {
    updates_->begin(ranges_);
    optimizer_->prepare(ranges_, input_);
    updates_->run(ranges_);
    optimizer_->update(ranges_, input_);
    updates_->end(ranges_);
  }

 private:
  Linear layer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<FlatBuffer> layout_;
  std::unique_ptr<Communicator> ranks_;
  double waited_ms_ = 0;
  StepInput input_;
  std::vector<ParameterRange> ranges_;
  std::unique_ptr<MatrixUpdates> updates_;
};

Contestant products_of(const Context& context, std::int64_t rows, std::int64_t columns, DType dtype) {
  const std::int64_t least = std::min(rows, columns), most = std::max(rows, columns);
  const Tensor x = uniform_tensor(context, {least, most}, 1, dtype), next = empty(context, {least, most}, dtype),
               gram = empty(context, {least, least}, dtype), square = empty(context, {least, least}, dtype);
  return [=] {
    for (int i = 0; i < kIterations; ++i) {
      kernels::matmul(x, x.transpose(0, 1), {.into = gram, .same_bits = true});
      kernels::matmul(gram, gram, {.into = square, .same_bits = true});
      kernels::matmul(square, x, {.into = next, .same_bits = true});
    }
  };
}

void race(const Context& context, std::int64_t rows, std::int64_t columns, MuonProducts products, double seconds) {
  const DType dtype = products == MuonProducts::bf16 ? DType::bf16 : DType::f32;
  const auto step = std::make_shared<Step>(context, rows, columns, products);
  Race race({[step] { (*step)(); }, products_of(context, rows, columns, dtype)});
  race.run_for(seconds);
  std::printf("%5lld x %-5lld %s   step %9.3f ms, products %9.3f ms, ratio %.3f   at best %9.3f, %9.3f, %.3f   (%s)\n",
              static_cast<long long>(rows), static_cast<long long>(columns), name_of(dtype).data(),
              1e3 * race.median(0), 1e3 * race.median(1), race.median(0) / race.median(1), 1e3 * race.least(0),
              1e3 * race.least(1), race.least(0) / race.least(1), kernels::matmul_backend(context, dtype).c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  const keel::Context context = keel::testing::context(argc > 1 ? std::atoi(argv[1]) : keel::default_threads());
  const double seconds = argc > 2 ? std::atof(argv[2]) : 10;
  for (const keel::MuonProducts products : {keel::MuonProducts::fp32, keel::MuonProducts::bf16})
    for (const auto& [rows, columns] : {std::pair(768, 768), {3072, 768}, {768, 3072}, {1024, 4096}, {2048, 2048}})
      keel::bench::race(context, rows, columns, products, seconds);
}
