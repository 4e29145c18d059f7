#pragma once
// Muon: momentum whose matrices are made orthogonal. Jordan et al. 2024, "Muon: an optimizer for hidden layers in
// neural networks"; keel/kernels/newton_schulz.h has what happens to a matrix in between.
//   buffer = momentum * buffer + (1 - momentum) * g; u = buffer, or (1 - momentum) * g + momentum * buffer with
//   nesterov; O = newton_schulz(u); p = p * (1 - lr * decay) - lr * scale * O.
// The scale of a matrix (rows, columns) is sqrt(max(1, rows / columns)) in Jordan's form, and 0.2 sqrt(max(rows,
// columns)) where updates shall be as large as AdamW's (Liu et al. 2025, "Muon is scalable for LLM training"). What is
// no hidden matrix moves as with AdamW.

#include "keel/kernels/rules/adam.h"
#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct MuonRule;

enum class MuonProducts : unsigned char { bf16, fp32 };
enum class MuonScale : unsigned char { match_rms_adamw, original };
// Which parameters Muon moves: the weights that keel/nn/hidden_matrices.h names, every one of two dimensions, or none.
enum class MuonMatrices : unsigned char { hidden, all, none };

struct MuonSettings {
  double momentum = 0.95;
  bool nesterov = true, maximize = false;
  int newton_schulz_steps = 5;
  MuonProducts products = MuonProducts::bf16;  // fp64 for fp64 weights, whatever it says
  MuonScale scaling = MuonScale::match_rms_adamw;
  MuonMatrices matrices = MuonMatrices::hidden;
  // What AdamW's part has for itself.
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, adamw_lr_factor = 1;
  // The two halves of a matrix's step: before its transformation a range's `parameter` is u, which the rule writes, and
  // its gradient g; behind it they are p and O.
  bool before = false;
  double scale = 1;

  static constexpr std::string_view kName = "muon";
  template <class A>
  using Rule = MuonRule<A>;
  std::vector<std::string_view> state_names() const {
    if (!before) return {};
    return {"momentum"};
  }
  std::string problem() const {
    if (!(momentum >= 0 && momentum < 1)) return concat("momentum must be in [0, 1), got ", momentum);
    if (newton_schulz_steps < 1) return concat("newton_schulz_steps must be at least 1, got ", newton_schulz_steps);
    if (adamw_lr_factor < 0) return concat("adamw_lr_factor must not be negative, got ", adamw_lr_factor);
    return rules::problem_of_betas(beta1, beta2);
  }
  double scale_of(std::int64_t rows, std::int64_t columns) const {
    const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
    if (scaling == MuonScale::original) return math::sqrt(m > n ? m / n : 1.0);
    return 0.2 * math::sqrt(m > n ? m : n);
  }
  AdamSettings adamw() const {
    return {.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .maximize = maximize, .decoupled = true};
  }
};

template <class A>
struct MuonRule {
  A factor, keep, take, ahead, behind, decay, rate;

  static KEEL_HD MuonRule of(const MuonSettings& settings, const RangeSettings& range, const StepState& state,
                             const double*) {
    const double lr = rules::rate_of(range, state), keep = rules::momentum_of(settings.momentum, state);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(keep),
            static_cast<A>(1 - keep),
            settings.nesterov ? static_cast<A>(1 - keep) : A(0),
            settings.nesterov ? static_cast<A>(keep) : A(1),
            static_cast<A>(1 - lr * range.weight_decay),
            static_cast<A>(lr * settings.scale)};
  }

  KEEL_HD void operator()(A gradient, A& u, A& buffer) const {
    const A g = gradient * factor;
    buffer = keep * buffer + take * g;
    u = ahead * g + behind * buffer;
  }
  KEEL_HD void operator()(A orthogonal, A& weight) const { weight = weight * decay - rate * orthogonal; }
};

}  // namespace keel
