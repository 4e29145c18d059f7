// Runs every operation of the kernel table once, small, on an emulated GPU: the program behind scripts/step-kernel.
//
//   run_kernels                        lists the kernels
//   run_kernels NAME [BLOCK [THREAD]]  calls keel_stop_here() before this thread of this block of the kernel begins

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keel/kernels/combine.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "keel/kernels/table.h"
#include "keel/kernels/update.h"
#include "keel/runtime/emulation/grid.h"

namespace {

using namespace keel;

struct Operation {
  std::string name;
  std::function<void()> run;
};

// The operations, on numbers made for them. What the device does not offer throws.
class Operations {
 public:
  explicit Operations(Context device) : device_(std::move(device)) {}

  const std::vector<Operation>& all() {
    add_elementwise();
    add_data_movement();
    add_products();
    add_rows();
    add_attention();
    add_selection();
    add_codecs();
    add_updates();
    return list_;
  }

 private:
  void add(std::string name, std::function<void()> run) { list_.push_back({std::move(name), std::move(run)}); }

  // Between 0.1 and 0.9, where every operation is defined.
  Tensor numbers(const Dims& shape, DType dtype = DType::f32) const {
    std::vector<float> values(static_cast<std::size_t>(product(shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5f + 0.4f * std::sin(static_cast<float>(i));
    return kernels::to(kernels::cast(from_values(host_, values, shape), dtype), device_);
  }
  Tensor indices(std::int64_t count, std::int64_t limit) const {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(i * 7 % limit);
    return from_values(device_, values, {count});
  }
  Tensor zeros_of(const Dims& shape, DType dtype = DType::f32) const { return zeros(device_, shape, dtype); }

  void add_elementwise() {
    for (int op = 0; op < UnaryOps::size; ++op) {
      const std::string name(name_of_unary(op));
      add(name, [=, this] { kernels::unary(op, numbers({3, 40}), 0.5); });
      add("backward of " + name, [=, this] { kernels::unary_backward(op, numbers({3, 40}), numbers({3, 40}), 0.5); });
    }
    for (int op = 0; op < BinaryOps::size; ++op) {
      const std::string name(name_of_binary(op));
      add(name, [=, this] { kernels::binary(op, numbers({3, 40}), numbers({40})); });
      if (!is_comparison_op(op))
        add("backward of " + name, [=, this] {
          kernels::binary_backward(op, 0, numbers({3, 40}), numbers({3, 40}), numbers({3, 40}));
        });
    }
    add("dropout", [this] {
      kernels::dropout(numbers({2, 3, 8}), 0.5, {.seed = 1},
                       from_values(device_, std::vector<std::int64_t>{0, 1}, {2}));
    });
  }

  void add_data_movement() {
    add("copy", [this] { kernels::contiguous(numbers({40, 50}).transpose(0, 1)); });
    add("strided copy", [this] { kernels::contiguous(numbers({4, 6}).slice(1, 1, 3)); });
    add("cast", [this] { kernels::cast(numbers({50}), DType::bf16); });
    add("fill", [this] { kernels::fill(numbers({50}), 2); });
    add("where", [this] {
      const Tensor x = numbers({50});
      kernels::where(kernels::cast(x, DType::u8), x, x);
    });
    add("accumulate", [this] { kernels::accumulate(numbers({50}), numbers({50}, DType::bf16)); });
    add("scale", [this] { kernels::scale(numbers({50}), 3); });
    add("scale_by", [this] { kernels::scale_by(numbers({50}), numbers({})); });
    add("arange", [this] { kernels::arange(device_, 0, 50); });
  }

  void add_products() {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const std::string suffix = concat(" in ", dtype);
      add("matmul" + suffix, [=, this] { kernels::matmul(numbers({20, 24}, dtype), numbers({24, 17}, dtype)); });
      add("matmul of whole tiles" + suffix, [=, this] {
        kernels::matmul(numbers({64, 64}, dtype), numbers({64, 64}, dtype).transpose(0, 1));
      });
    }
    add("matmul with bias and GELU", [this] {
      MatmulOptions options;
      options.epilogue = Epilogue::bias_gelu;
      options.bias = numbers({17});
      kernels::matmul(numbers({20, 24}), numbers({24, 17}), options);
    });
  }

  void add_rows() {
    const auto x = [this] { return numbers({3, 40}); };
    add("sum", [=] { kernels::sum(x()); });
    add("sum over rows", [=] { kernels::sum_rows(x()); });
    add("mean", [=] { kernels::mean(x(), {1}); });
    add("max", [=] { kernels::max(x(), {1}); });
    add("min", [=] { kernels::min(x(), {0}); });
    add("argmax", [=] { kernels::argmax(x(), 1); });
    add("softmax", [=] { kernels::softmax(x()); });
    add("log_softmax", [=] { kernels::log_softmax(x()); });
    add("backward of softmax", [=] { kernels::softmax_backward(x(), x()); });
    add("backward of log_softmax", [=] { kernels::log_softmax_backward(x(), x()); });
    add("cross_entropy",
        [=, this] { kernels::cross_entropy(x(), indices(3, 40), -100, 0.1, kernels::LogitsGradient::fresh); });
    add("blocked cross_entropy", [=, this] {
      const BlockedLoss loss = kernels::start_blocked_loss(indices(3, 40), 40, DType::f32, -100, 0.1);
      kernels::fold_logits(loss, x(), 0, 0);
      const kernels::SettledLoss settled = kernels::settle_loss(loss);
      kernels::logits_gradient(loss, x(), 0, 0, kernels::full(device_, {}, 1), settled.count);
    });
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const std::string name = kind == NormKind::layer ? "layer norm" : "RMS norm";
      const auto bias = [=, this] { return kind == NormKind::layer ? numbers({40}) : Tensor(); };
      add(name, [=, this] { kernels::norm(kind, x(), x(), numbers({40}), bias(), 1e-5); });
      add("backward of " + name, [=, this] {
        NormBackwardArgs args;
        args.kind = kind;
        args.grad_output = args.x = x();
        args.weight = numbers({40});
        args.mean = kind == NormKind::layer ? numbers({3}) : Tensor();
        args.rstd = numbers({3});
        args.grad_weight = zeros_of({40});
        args.grad_bias = kind == NormKind::layer ? zeros_of({40}) : Tensor();
        kernels::norm_backward(args);
      });
    }
  }

  void add_attention() {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const bool backward : {false, true})
        add(concat(backward ? "backward of attention in " : "attention in ", dtype), [=, this] {
          AttentionArgs forward;
          forward.q = forward.k = forward.v = numbers({1, 2, 20, 64}, dtype);
          forward.causal = true;
          if (!backward) {
            kernels::attention(forward);
            return;
          }
          forward.out = numbers({1, 2, 20, 64}, dtype);
          forward.lse = numbers({1, 2, 20});
          AttentionBackwardArgs args;
          args.forward = forward;
          args.grad_out = forward.out;
          kernels::attention_backward(args);
        });
  }

  void add_selection() {
    add("embedding", [this] { kernels::embedding(numbers({10, 8}), indices(5, 10)); });
    add("backward of embedding", [this] {
      kernels::embedding_backward(numbers({5, 8}), indices(5, 10), zeros_of({10, 8}), false);
    });
    add("gather", [this] { kernels::gather(numbers({5, 8}), 1, indices(10, 8).view({5, 2})); });
    add("index_select", [this] { kernels::index_select(numbers({10, 8}), 0, indices(5, 10)); });
    add("index_add", [this] { kernels::index_add(zeros_of({10, 8}), 0, indices(5, 10), numbers({5, 8})); });
    add("top_k", [this] { kernels::top_k(numbers({3, 40}), 4); });
  }

  void add_codecs() {
    for (const auto& [codec, suffix] :
         {std::pair<Codec, std::string>{{}, " as int8"},
          {{.kind = Codec::Kind::top_k, .fraction = 0.1}, " of the largest"},
          {{.kind = Codec::Kind::top_k_2bit, .fraction = 0.1}, " of the largest in two bits"}}) {
      const auto payload = [this, codec = codec] { return zeros_of({2, codec.bytes(300)}, DType::u8); };
      add("encode" + suffix, [this, payload, codec = codec] {
        kernels::encode({numbers({2, 300}), payload(), codec});
      });
      add("decode_add" + suffix, [this, payload, codec = codec] {
        kernels::decode_add({numbers({2, 300}), payload(), codec});
      });
    }
    add("orthonormalise", [this] { kernels::orthonormalise(numbers({40, 3})); });
    add("fill_empty_rows", [this] { kernels::fill_empty_rows(zeros_of({3, 40}), 1, "a name"); });
  }

  void add_updates() {
    add("combine", [this] {
      const std::vector<Tensor> terms = {numbers({100}), numbers({100}), numbers({100})};
      kernels::combine({terms, numbers({100})});
    });
    const auto state = [this] {
      StepState taken;
      taken.steps = taken.taken = 1;
      taken.lr = 1e-3;
      return kernels::make_step_state(device_, taken);
    };
    add("add_squares", [=, this] { kernels::add_squares(numbers({100}), state()); });
    add("clip_values", [=, this] { kernels::clip_values(numbers({100}), state(), 0.5); });
    add("add_tokens", [=] { kernels::add_tokens(state(), 3); });
    add("decide_step", [=] {
      StepArgs args;
      args.state = state();
      args.clip = 1;
      kernels::decide_step(args);
    });
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto master = [=, this] { return dtype == DType::f32 ? Tensor() : numbers({100}); };
      add(concat("adamw in ", dtype), [=, this] {
        UpdateArgs args;
        args.parameter = numbers({100}, dtype);
        args.master = master();
        args.gradient = numbers({100});
        args.state = {zeros_of({100}), zeros_of({100})};
        args.step = state();
        args.settings = AdamSettings{.decoupled = true};
        args.range.weight_decay = 0.1;
        kernels::update(args);
      });
      add(concat("sgd in ", dtype), [=, this] {
        UpdateArgs args;
        args.parameter = numbers({100}, dtype);
        args.master = master();
        args.gradient = numbers({100});
        args.state = {zeros_of({100})};
        args.step = state();
        args.settings = SgdSettings{.momentum = 0.9};
        kernels::update(args);
      });
    }
  }

  Context device_;
  Context host_ = Context::create();
  std::vector<Operation> list_;
};

std::string to_string(const emulation::Extent3& extent) {
  if (extent.z != 1) return concat(extent.x, ',', extent.y, ',', extent.z);
  return extent.y != 1 ? concat(extent.x, ',', extent.y) : concat(extent.x);
}

// The launches by kernel name: how many, and the shape of the first.
struct Seen {
  int launches = 0;
  std::string grid, block, operation;
  bool had_place = false;
};

int run(const std::vector<std::string>& words) {
  emulation::Probe probe;
  if (!words.empty()) {
    std::string text;
    for (const std::string& word : words) text += word + ' ';
    probe = emulation::probe_of(text);
  }
  std::map<std::string, Seen> seen;
  std::string operation;
  probe.on_grid = [&](const emulation::Grid& grid) {
    Seen& kernel = seen[grid.kernel];
    const auto holds = [](const emulation::Extent3& extent, const emulation::Index3& at) {
      return at.x < extent.x && at.y < extent.y && at.z < extent.z;
    };
    kernel.had_place |= holds(grid.grid, probe.block) && holds(grid.block, probe.thread);
    if (++kernel.launches == 1) kernel = {1, to_string(grid.grid), to_string(grid.block), operation, kernel.had_place};
  };
  emulation::grid_options().probe = &probe;

  ContextOptions options;
  options.device = {DeviceType::emulated, 0};
  options.kernels = KernelChoice::plain;
  const Context device = Context::create(options);
  Operations operations(device);
  for (const Operation& one : operations.all()) {
    operation = one.name;
    try {
      one.run();
      device.synchronize();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw Error(concat(one.name, ": ", error.what()), error.kind());
    }
    if (!words.empty() && seen.contains(probe.kernel) && seen[probe.kernel].had_place) return 0;
  }

  if (words.empty()) {
    std::printf("%-24s %-10s %-10s %s\n", "kernel", "grid", "block", "first launched by");
    for (const auto& [name, kernel] : seen)
      std::printf("%-24s %-10s %-10s %s\n", name.c_str(), kernel.grid.c_str(), kernel.block.c_str(),
                  kernel.operation.c_str());
    return 0;
  }
  if (!seen.contains(probe.kernel)) {
    std::vector<std::string> names;
    for (const auto& [name, kernel] : seen) names.push_back(name);
    const std::string likely = nearest(probe.kernel, names);
    throw Error(concat("there is no kernel '", probe.kernel, "'",
                       likely.empty() ? "" : concat(", did you mean '", likely, "'?")));
  }
  const Seen& kernel = seen[probe.kernel];
  throw Error(concat("no launch of ", probe.kernel, " has such a block and thread; the first has a grid of ",
                     kernel.grid, " and blocks of ", kernel.block));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_kernels: %s\n", error.what());
    return 2;
  }
}
