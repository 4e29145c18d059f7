// Products and attention in recorded graphs, by keel's own kernels and by the libraries' where a build has them: what
// is timed or planned happens before a recording or after it, never within.

#include <algorithm>
#include <cstdlib>

#include "keel/kernels/attention.h"
#include "keel/kernels/matmul.h"
#include "keel/runtime/graph.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

// A context whose entries may be the libraries', with what it logs.
class CaptureOnDevice : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    ::setenv("KEEL_TUNE_MATMUL", "1", 1);  // products are timed
    fastest = Context::create(
        {.device = kTestDevice, .log = [this](LogLevel, std::string_view message) { log.emplace_back(message); }});
    stream = fastest.make_stream();
  }
  // Calls work() in the stream, which the graphs below are recorded on.
  template <class F>
  void run(F&& work) {
    fastest.synchronize();
    const StreamScope scope(fastest, stream);
    work();
    stream.synchronize();
  }
  template <class F>
  Graph record(F&& work) {
    fastest.synchronize();
    Graph graph = Graph::record(fastest, stream, work);
    stream.synchronize();
    return graph;
  }
  void launch(const Graph& graph) {
    fastest.synchronize();
    graph.launch();
    stream.synchronize();
  }
  auto logged(std::string_view words) const {
    return std::count_if(log.begin(), log.end(),
                         [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }

  std::vector<std::string> log;
  Context fastest;
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(, CaptureOnDevice, ::testing::ValuesIn(test_orders()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

#ifdef KEEL_EMULATED
constexpr std::int64_t kTime = 40;
#else
constexpr std::int64_t kTime = 256;  // cuDNN's kernels begin at 64
#endif

// Forward and backward of packed queries, keys and values, as a model has them.
struct AttentionPass {
  AttentionArgs forward;
  AttentionBackwardArgs backward;

  explicit AttentionPass(const Context& context) {
    const auto part = [](const Tensor& packed, int i) { return packed.select(2, i).transpose(1, 2); };
    const Tensor x = uniform_tensor(context, {2, kTime, 3, 2, 64}, 1, DType::bf16), grad = empty_like(x);
    forward.q = part(x, 0), forward.k = part(x, 1), forward.v = part(x, 2);
    forward.out = empty(context, {2, kTime, 2, 64}, DType::bf16).transpose(1, 2);
    forward.lse = empty(context, {2, 2, kTime});
    forward.causal = true;
    backward.forward = forward;
    backward.grad_out = uniform_tensor(context, {2, kTime, 2, 64}, 2, DType::bf16).transpose(1, 2);
    backward.grad_q = part(grad, 0), backward.grad_k = part(grad, 1), backward.grad_v = part(grad, 2);
  }
  void operator()() const {
    kernels::attention(forward);
    kernels::attention_backward(backward);
  }
  std::vector<Tensor> results() const {
    return {forward.out, forward.lse, backward.grad_q, backward.grad_k, backward.grad_v};
  }
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& result : results()) all.push_back(doubles(result));
    return all;
  }
  void overwrite(double value) const {
    for (const Tensor& result : results()) kernels::fill(result, value);
  }
};

TEST_P(CaptureOnDevice, ARecordedAttentionHasTheBitsOfAnOrdinaryOne) {
  const AttentionPass pass(fastest);
  const KeptMemory memory(fastest, stream);
  run(pass);
#ifdef KEEL_HAVE_CUDNN
  EXPECT_EQ(kernels::attention_backend(pass.forward).rfind("cuDNN ", 0), 0u)
      << kernels::attention_backend(pass.forward);
  EXPECT_EQ(kernels::attention_backend(pass.backward).rfind("cuDNN ", 0), 0u)
      << kernels::attention_backend(pass.backward);
#endif
  const auto ordinary = pass.numbers();
  pass.overwrite(7);
  const Graph graph = record(pass);
  for (const std::vector<double>& result : pass.numbers()) EXPECT_EQ(result, std::vector<double>(result.size(), 7));
  for (const int repeat : {1, 2}) {
    launch(graph);
    EXPECT_TRUE(pass.numbers() == ordinary) << "launch " << repeat;
    pass.overwrite(7);
  }
  EXPECT_EQ(logged("in a graph that is recorded before this ever ran"), 0);
}

TEST_P(CaptureOnDevice, AnAttentionThatIsNewToARecordingIsKeelsOwnThereAndNotLater) {
  const AttentionPass pass(fastest), own(device);
  const auto forward = [&] { kernels::attention(pass.forward); };
  const Graph graph = record(forward);
  launch(graph);
  kernels::attention(own.forward);
  EXPECT_EQ(doubles(pass.forward.out), doubles(own.forward.out));
  EXPECT_EQ(doubles(pass.forward.lse), doubles(own.forward.lse));
#ifdef KEEL_HAVE_CUDNN
  EXPECT_EQ(logged("keel's own kernels in a graph that is recorded before this ever ran"), 1);
  run(forward);
  EXPECT_EQ(kernels::attention_backend(pass.forward).rfind("cuDNN ", 0), 0u)
      << kernels::attention_backend(pass.forward);
#endif
}

// A linear layer with GELU as in a model, and a gradient that is added to.
struct Products {
  Tensor x, weight, bias, hidden, before, sum;

  explicit Products(const Context& context)
      : x(uniform_tensor(context, {24, 32}, 1, DType::bf16)),
        weight(uniform_tensor(context, {40, 32}, 2, DType::bf16)),
        bias(uniform_tensor(context, {40}, 3, DType::bf16)),
        hidden(empty(context, {24, 40}, DType::bf16)),
        before(empty(context, {24, 40}, DType::bf16)),
        sum(empty(context, {40, 32})) {}

  void operator()() const {
    Tensor pre_activation;
    kernels::matmul(x, weight.transpose(0, 1),
                    {.epilogue = Epilogue::bias_gelu, .bias = bias, .pre_activation = &pre_activation, .into = hidden});
    kernels::copy_into(before, pre_activation);
    kernels::fill(sum, 0.5);
    kernels::matmul(hidden.transpose(0, 1), x, {.into = sum, .accumulate = true});
  }
  std::vector<std::vector<double>> numbers() const { return {doubles(hidden), doubles(before), doubles(sum)}; }
};

TEST_P(CaptureOnDevice, RecordedProductsHaveTheBitsOfOrdinaryOnesAndAreNotTimedAgain) {
  const Products products(fastest);
  const KeptMemory memory(fastest, stream);
  run(products);
  const auto timed = logged("algorithms tried");
#ifdef KEEL_HAVE_CUBLASLT
  EXPECT_EQ(timed, 2);
#endif
  run(products);
  const auto ordinary = products.numbers();
  const Graph graph = record(products);
  for (const Tensor& result : {products.hidden, products.before, products.sum}) kernels::fill(result, 7);
  for (const int repeat : {1, 2}) {
    launch(graph);
    EXPECT_TRUE(products.numbers() == ordinary) << "launch " << repeat;
  }
  EXPECT_EQ(logged("algorithms tried"), timed);
  EXPECT_EQ(logged("in a graph that is recorded before this product ever ran"), 0);
}

TEST_P(CaptureOnDevice, AProductThatIsNewToARecordingIsKeelsOwnThereAndTimedLater) {
  const Tensor a = uniform_tensor(fastest, {24, 32}, 1, DType::bf16),
               b = uniform_tensor(fastest, {32, 40}, 2, DType::bf16);
  const Tensor out = kernels::full(fastest, {24, 40}, 7, DType::bf16);
  const auto product = [&] { kernels::matmul(a, b, {.into = out}); };
  const Graph graph = record(product);
  EXPECT_EQ(logged("algorithms tried"), 0);
  EXPECT_EQ(doubles(out), std::vector<double>(24 * 40, 7));
  launch(graph);
  EXPECT_EQ(doubles(out), doubles(kernels::matmul(a, b, {.same_bits = true})));
#ifdef KEEL_HAVE_CUBLASLT
  EXPECT_EQ(logged("keel's own kernel in a graph that is recorded before this product ever ran"), 1);
  run(product);
  EXPECT_EQ(logged("algorithms tried"), 1);
#endif
}

}  // namespace
}  // namespace keel
