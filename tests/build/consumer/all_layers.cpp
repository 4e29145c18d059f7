// Every layer through the top one: a configuration is read, and a matrix product computed.
#include <cstdio>

#include "data/text.h"
#include "keel/data/safetensors.h"
#include "keel/kernels/matmul.h"
#include "keel/trainer/config.h"
#include "runtime/tensor.h"

int main() {
  const keel::Config config = keel::parse_config("steps: 3\ndata: {type: addition}\n", "consumer");
  const keel::Context context = keel::Context::create();
  const keel::Tensor ones = keel::from_values<float>(context, std::vector<float>(9, 1.0F), {3, 3});
  keel::write_safetensors("product.safetensors",
                          std::vector<keel::NamedTensor>{{"product", keel::kernels::matmul(ones, ones)}});
  const double product =
      keel::SafetensorsFile("product.safetensors").tensor("product", context).select(0, 1).select(0, 1).item();
  std::printf("%d %lld %g\n", consumer::answer(), static_cast<long long>(config.steps), product);
  return product == 3 ? 0 : 1;
}
