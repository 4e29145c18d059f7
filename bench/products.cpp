// One product or attention call at a time, timed on request: keel's side of bench/peers/products.py.
//
// usage: bench_products [threads], then lines on standard input, each answered by one line:
//   matmul DTYPE y|gelu|dX|dW ROWS OUT IN                 prepares y = x W^T + bias (and GELU), dX = dY W, dW = dY^T X
//   attention DTYPE forward|backward BATCH HEADS TIME SIZE   prepares causal attention
//   time SECONDS                                          calls it for so long; the median of a call in seconds

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "keel/kernels/attention.h"
#include "keel/kernels/matmul.h"
#include "tests/support.h"

namespace keel::bench {
namespace {

using testing::uniform_tensor;

struct Request {
  DType dtype;
  std::string part;
  std::vector<std::int64_t> sizes;
};

Contestant matmul_call(const Context& context, const Request& request) {
  const std::int64_t rows = request.sizes.at(0), out = request.sizes.at(1), in = request.sizes.at(2);
  const Tensor x = uniform_tensor(context, {rows, in}, 1, request.dtype);
  const Tensor weight = uniform_tensor(context, {out, in}, 2, request.dtype);
  const Tensor grad = uniform_tensor(context, {rows, out}, 3, request.dtype);
  const Tensor bias = uniform_tensor(context, {out}, 4, request.dtype);
  const Tensor grad_weight = empty(context, {out, in}, DType::f32);
  if (request.part == "y")
    return [=] { kernels::matmul(x, weight.transpose(0, 1), {.epilogue = Epilogue::bias, .bias = bias}); };
  if (request.part == "gelu")
    return [=] {
      Tensor before;
      kernels::matmul(x, weight.transpose(0, 1),
                      {.epilogue = Epilogue::bias_gelu, .bias = bias, .pre_activation = &before});
    };
  if (request.part == "dX") return [=] { kernels::matmul(grad, weight); };
  if (request.part == "dW") return [=] { kernels::matmul(grad.transpose(0, 1), x, {.into = grad_weight}); };
  throw Error("there is no product " + request.part);
}

Contestant attention_call(const Context& context, const Request& request) {
  const Dims shape = {request.sizes.at(0), request.sizes.at(1), request.sizes.at(2), request.sizes.at(3)};
  AttentionArgs args;
  args.q = uniform_tensor(context, shape, 1, request.dtype);
  args.k = uniform_tensor(context, shape, 2, request.dtype);
  args.v = uniform_tensor(context, shape, 3, request.dtype);
  args.causal = true;
  if (request.part == "forward") return [=] { kernels::attention(args); };
  if (request.part != "backward") throw Error("attention has no " + request.part);
  AttentionBackwardArgs backward;
  backward.forward = kernels::attention(args);
  backward.grad_out = uniform_tensor(context, shape, 4, request.dtype);
  return [=] { kernels::attention_backward(backward); };
}

double median_of_calls(const Contestant& call, double seconds) {
  std::vector<double> samples;
  for (double spent = 0; spent < seconds || samples.size() < 3; spent += samples.back())
    samples.push_back(seconds_of(call));
  return median(samples);
}

void serve(const Context& context) {
  Contestant call;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string kind, dtype;
    words >> kind;
    if (kind == "time") {
      double seconds = 0;
      words >> seconds;
      std::printf("%.9g\n", median_of_calls(call, seconds));
    } else {
      Request request;
      words >> dtype >> request.part;
      request.dtype = dtype == "bf16" ? DType::bf16 : DType::f32;
      for (std::int64_t size; words >> size;) request.sizes.push_back(size);
      call = kind == "attention" ? attention_call(context, request) : matmul_call(context, request);
      call();
      std::printf("ready: %s\n", kernels::matmul_backend(context, request.dtype).c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  try {
    keel::bench::serve(keel::testing::context(argc > 1 ? std::atoi(argv[1]) : keel::default_threads()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_products: %s\n", error.what());
    return 1;
  }
}
