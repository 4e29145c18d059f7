// Updates of optimizers.

#include "bench/micro/micro.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"

namespace keel::bench {
namespace {

using Prepared = MemoryKernel::Prepared;

class Updates {
 public:
  Updates(const Options& options, DType dtype) : options_(options), dtype_(dtype) {}

  void add(const std::string& name, const UpdateSettings& settings) const {
    const std::size_t kept = state_names(settings).size();
    add(name, 8.0 * static_cast<double>(kept) + written(), [=, dtype = dtype_](const Context& context, std::int64_t n) {
      return Prepared{[args = args_of(context, n, dtype, settings)] { kernels::update(args); }};
    });
  }
  // Finding norms reads the same and writes nothing.
  void add_norms(const std::string& name, const UpdateSettings& settings) const {
    const auto kept = static_cast<double>(state_names(settings).size());
    add(name, 4 * kept + 4 + static_cast<double>(size_of(dtype_)),
        [=, dtype = dtype_](const Context& context, std::int64_t n) {
          return Prepared{[args = args_of(context, n, dtype, settings)] { kernels::measure_norms(args, args.shared); }};
        });
  }
  // States in codes: a byte a number, and the scales of its block.
  void add_codes(const std::string& name, const UpdateSettings& settings) const {
    const auto kept = static_cast<double>(state_names(settings).size());
    add(name, 2 * kept * (1 + 4.0 / kStateBlock) + written(),
        [=, dtype = dtype_](const Context& context, std::int64_t n) {
          UpdateArgs args = args_of(context, n, dtype, settings);
          for (std::size_t kind = 0; kind < state_names(settings).size(); ++kind) {
            args.state[kind] = zeros(context, {n}, DType::u8);
            args.scales[kind] = zeros(context, {state_blocks(n)});
          }
          return Prepared{[=] { kernels::update(args); }};
        });
  }

 private:
  // Bytes of an element besides states: the master is read and written, the gradient read; fp32 weights are their own
  // master, a narrow parameter is written besides.
  double written() const { return 8 + (dtype_ == DType::f32 ? 1 : 2) * static_cast<double>(size_of(dtype_)); }

  // `prepare` takes the number of elements.
  template <class F>
  void add(const std::string& name, double bytes, F prepare) const {
    const std::int64_t width = MemoryKernel().width;
    add_memory_kernel(
        options_, {concat("update/", name, '/', dtype_), bytes,
                   [=](const Context& context, std::int64_t rows) { return prepare(context, rows * width); }, width});
  }

  static UpdateArgs args_of(const Context& context, std::int64_t n, DType dtype, const UpdateSettings& settings) {
    const auto flat = [&](DType type, std::uint32_t seed) { return numbers(context, {n}, type, seed, 0.01, 2); };
    UpdateArgs args{};
    args.parameter = flat(dtype, 1);
    if (dtype != DType::f32) args.master = flat(DType::f32, 1);
    args.gradient = flat(dtype, 2);
    for (std::size_t kind = 0; kind < state_names(settings).size(); ++kind)
      args.state[kind] = flat(DType::f32, static_cast<std::uint32_t>(3 + kind));
    args.settings = settings;
    if (decays(settings)) args.range.weight_decay = 0.1;
    args.shared = kernels::full(context, {std::max(1, norm_count(settings))}, 0.9, DType::f64);
    args.step = kernels::make_step_state(context, {.steps = 10, .taken = 1, .lr = 1e-3});
    return args;
  }

  Options options_;
  DType dtype_;
};

}  // namespace

void add_updates(const Options& options) {
  const AdamSettings adamw{.beta2 = 0.99, .decoupled = true};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Updates family(options, dtype);
    family.add_codes("adamw_8bit", adamw);
    family.add("adamw", adamw);
    family.add("adam", AdamSettings{});
    family.add("adam_amsgrad", AdamSettings{.amsgrad = true});
    family.add("adamax", AdamaxSettings{});
    family.add("nadam", NAdamSettings{});
    family.add("radam", RAdamSettings{});
    family.add("sgd", SgdSettings{});
    family.add("sgd_momentum", SgdSettings{.momentum = 0.9});
    family.add("adagrad", AdagradSettings{});
    family.add("adadelta", AdadeltaSettings{});
    family.add("rmsprop", RmspropSettings{});
    family.add("rmsprop_centered_momentum", RmspropSettings{.momentum = 0.9, .centered = true});
    family.add("rprop", RpropSettings{});
    family.add("asgd", AsgdSettings{});
    family.add("lion", LionSettings{});
    family.add("muon", MuonSettings{});
    family.add("muon_momentum", MuonSettings{.before = true});
    family.add("schedule_free", ScheduleFreeSettings{});
    family.add("lamb", LambSettings{});
    family.add_norms("lamb_norms", LambSettings{});
    family.add("lars", LarsSettings{});
    family.add_norms("lars_norms", LarsSettings{});
    family.add("adafactor", AdafactorSettings{});
    family.add_norms("adafactor_norms", AdafactorSettings{});
  }
}

}  // namespace keel::bench
