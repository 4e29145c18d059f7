// A GPT in one file. It learns to add numbers of two digits while you watch:
//
//   g++ -std=c++20 -O3 -march=native learn/gpt.cpp -o gpt && ./gpt
//
// This is GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners") at a small size,
// with all that training needs: each operation with its derivative, the model, AdamW, the task. Plain loops.
// `keel train learn/gpt.yaml` trains the same model on the same task. docs/reading-order.md begins here, and
// says which layer of keel replaces which function.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <vector>

constexpr int kLayers = 2, kHeads = 4, kWidth = 64;  // GPT-2 has 12, 12 and 768, or more
constexpr int kQuestion = 6, kLength = 9;  // characters of "47+58=", and of all that the model reads
constexpr int kBatch = 64, kSteps = 600;   // sums in a step, and steps
const std::string kCharacters = "\n+0123456789=";

// A token is the place of a character in that list; -1 stands for any other character.
std::vector<int> encode(const std::string& text) {
  std::vector<int> tokens;
  for (const char c : text) tokens.push_back(kCharacters.find(c));
  return tokens;
}

// ---- Tensors, and the way back through a computation -----------------------------------------------------

// A matrix. After backward(), `grad` holds the derivative of the loss with respect to each number of `value`.
struct Tensor {
  int rows, cols;
  std::vector<float> value = std::vector<float>(rows * cols), grad = value;
  float* row(int r) { return &value[r * cols]; }
  float* grad_row(int r) { return &grad[r * cols]; }
};

// An operation computes y from x, and leaves a function on the tape that computes dx from dy; dy is short for
// y.grad. That function adds to dx, so that an x with several readers gets the sum of what they find.
std::deque<Tensor> results;  // a deque, whose elements stay where they are when it grows
std::vector<std::function<void()>> tape;

Tensor& new_result(int rows, int cols) { return results.emplace_back(Tensor{rows, cols}); }

// The chain rule: the last operation comes first, so that every dy is complete when it is used.
void backward() {
  for (auto step = tape.rbegin(); step != tape.rend(); ++step) (*step)();
}

// ---- Operations: forward, then backward ------------------------------------------------------------------

// The sum of a[i] b[i]; n is a multiple of 16. Sixteen sums side by side fit into a vector register.
float dot(const float* a, const float* b, int n) {
  float sums[16] = {}, total = 0;
  for (int i = 0; i < n; i += 16)
    for (int j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  for (const float sum : sums) total += sum;
  return total;
}

// y += factor x
void add_scaled(float* y, float factor, const float* x, int n) {
  for (int i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Turns numbers into probabilities: x_i becomes exp(x_i) / sum_j exp(x_j).
void softmax(float* x, int n) {
  const float largest = *std::max_element(x, x + n);  // subtracted, so that exp does not overflow
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - largest);
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

// y_n = table_i for i = tokens[n]. Backward: dtable_i += dy_n.
Tensor& look_up(Tensor& table, const std::vector<int>& tokens) {
  Tensor& y = new_result(tokens.size(), table.cols);
  for (int n = 0; n < y.rows; ++n) add_scaled(y.row(n), 1, table.row(tokens[n]), y.cols);
  tape.push_back([&table, &y, tokens] {
    for (int n = 0; n < y.rows; ++n) add_scaled(table.grad_row(tokens[n]), 1, y.grad_row(n), y.cols);
  });
  return y;
}

// y = a + b, where b's rows are repeated if they are fewer. Backward: da += dy, db += dy.
Tensor& add(Tensor& a, Tensor& b) {
  Tensor& y = new_result(a.rows, a.cols);
  for (int n = 0; n < y.rows; ++n)
    for (int i = 0; i < y.cols; ++i) y.row(n)[i] = a.row(n)[i] + b.row(n % b.rows)[i];
  tape.push_back([&a, &b, &y] {
    for (int n = 0; n < y.rows; ++n) {
      add_scaled(a.grad_row(n), 1, y.grad_row(n), y.cols);
      add_scaled(b.grad_row(n % b.rows), 1, y.grad_row(n), y.cols);
    }
  });
  return y;
}

// y = x W^T; x: (n, in), W: (out, in), y: (n, out). Backward: dx += dy W, dW += dy^T x.
Tensor& matmul(Tensor& x, Tensor& w) {
  Tensor& y = new_result(x.rows, w.rows);
  for (int n = 0; n < y.rows; ++n)
    for (int o = 0; o < y.cols; ++o) y.row(n)[o] = dot(x.row(n), w.row(o), x.cols);
  tape.push_back([&x, &w, &y] {
    for (int n = 0; n < y.rows; ++n)
      for (int o = 0; o < y.cols; ++o) {
        add_scaled(x.grad_row(n), y.grad_row(n)[o], w.row(o), x.cols);
        add_scaled(w.grad_row(o), y.grad_row(n)[o], x.row(n), x.cols);
      }
  });
  return y;
}

// GELU (Hendrycks and Gimpel 2016) in GPT-2's form: y = x/2 (1 + t), t = tanh(r (x + c x^3)), r = sqrt(2/pi).
// Backward: dx += dy slope, slope = (1 + t)/2 + x/2 (1 - t^2) r (1 + 3 c x^2).
Tensor& gelu(Tensor& x) {
  constexpr float r = 0.7978845608f, c = 0.044715f;
  Tensor &y = new_result(x.rows, x.cols), &slope = new_result(x.rows, x.cols);
  for (size_t i = 0; i < x.value.size(); ++i) {
    const float v = x.value[i], t = std::tanh(r * (v + c * v * v * v));
    y.value[i] = v / 2 * (1 + t);
    slope.value[i] = (1 + t) / 2 + v / 2 * (1 - t * t) * r * (1 + 3 * c * v * v);
  }
  tape.push_back([&x, &y, &slope] {
    for (size_t i = 0; i < x.value.size(); ++i) x.grad[i] += y.grad[i] * slope.value[i];
  });
  return y;
}

// Layer norm (Ba, Kiros and Hinton 2016), of each row: y = z weight + bias, z = (x - mean(x)) / deviation(x).
// Backward: dweight += dy z, dbias += dy, dx += (dz - mean(dz) - z mean(dz z)) / deviation, dz = dy weight.
Tensor& layer_norm(Tensor& x, Tensor& weight, Tensor& bias) {
  const int size = x.cols;
  Tensor &y = new_result(x.rows, size), &z = new_result(x.rows, size);
  for (int n = 0; n < x.rows; ++n) {
    float mean = 0, variance = 0;
    for (int i = 0; i < size; ++i) mean += x.row(n)[i] / size;
    for (int i = 0; i < size; ++i) variance += (x.row(n)[i] - mean) * (x.row(n)[i] - mean) / size;
    const float deviation = std::sqrt(variance + 1e-5f);
    for (int i = 0; i < size; ++i) {
      z.row(n)[i] = (x.row(n)[i] - mean) / deviation;
      y.row(n)[i] = z.row(n)[i] * weight.value[i] + bias.value[i];
    }
    tape.push_back([&x, &weight, &bias, &y, &z, n, size, deviation] {
      float *dx = x.grad_row(n), *dy = y.grad_row(n), *dz = z.grad_row(n), mean_dz = 0, mean_dz_z = 0;
      for (int i = 0; i < size; ++i) {
        weight.grad[i] += dy[i] * z.row(n)[i];
        bias.grad[i] += dy[i];
        dz[i] = dy[i] * weight.value[i];
        mean_dz += dz[i] / size;
        mean_dz_z += dz[i] * z.row(n)[i] / size;
      }
      for (int i = 0; i < size; ++i) dx[i] += (dz[i] - mean_dz - z.row(n)[i] * mean_dz_z) / deviation;
    });
  }
  return y;
}

// Causal self-attention (Vaswani et al. 2017). Token t mixes the values v_s of its sequence's tokens s <= t:
//   y_t = sum_s p_ts v_s, where p_t = softmax of q_t . k_s / sqrt(size) over s.
// Each head does so with `size` columns of its own. qkv: (n, 3 width), queries, keys and values side by side.
// Backward: dv_s += p_ts dy_t, dp_ts = dy_t . v_s, da_ts = p_ts (dp_ts - sum_r p_tr dp_tr) / sqrt(size),
//           dq_t += da_ts k_s, dk_s += da_ts q_t.
Tensor& attention(Tensor& qkv) {
  constexpr int size = kWidth / kHeads;
  const float scale = 1 / std::sqrt(float(size));
  Tensor &y = new_result(qkv.rows, kWidth), &probabilities = new_result(qkv.rows * kHeads, kLength);
  for (int t = 0; t < qkv.rows; ++t)
    for (int head = 0; head < kHeads; ++head) {
      const int q = head * size, k = q + kWidth, v = k + kWidth;  // the head's first columns
      const int first = t - t % kLength, seen = t - first + 1;  // its sequence's first token; how many t sees
      float* p = probabilities.row(t * kHeads + head);
      for (int s = 0; s < seen; ++s) p[s] = scale * dot(qkv.row(t) + q, qkv.row(first + s) + k, size);
      softmax(p, seen);
      for (int s = 0; s < seen; ++s) add_scaled(y.row(t) + q, p[s], qkv.row(first + s) + v, size);
      tape.push_back([&qkv, &y, p, t, q, k, v, first, seen, scale] {
        float dp[kLength], mean_dp = 0;
        for (int s = 0; s < seen; ++s) {
          add_scaled(qkv.grad_row(first + s) + v, p[s], y.grad_row(t) + q, size);
          dp[s] = dot(y.grad_row(t) + q, qkv.row(first + s) + v, size);
          mean_dp += p[s] * dp[s];
        }
        for (int s = 0; s < seen; ++s) {
          const float da = scale * p[s] * (dp[s] - mean_dp);
          add_scaled(qkv.grad_row(t) + q, da, qkv.row(first + s) + k, size);
          add_scaled(qkv.grad_row(first + s) + k, da, qkv.row(t) + q, size);
        }
      });
    }
  return y;
}

// The mean of -log p_n[target of n] over the rows that have a target, p = softmax(logits). As the last
// operation it goes back at once: dlogits = (p - 1 at the target) / number of targets.
float cross_entropy(Tensor& logits, const std::vector<int>& targets) {
  const float count = targets.size() - std::count(targets.begin(), targets.end(), -1);
  float loss = 0;
  for (int n = 0; n < logits.rows; ++n) {
    if (targets[n] == -1) continue;
    float* p = logits.grad_row(n);
    std::copy_n(logits.row(n), logits.cols, p);
    softmax(p, logits.cols);
    loss -= std::log(p[targets[n]]) / count;
    p[targets[n]] -= 1;
    for (int i = 0; i < logits.cols; ++i) p[i] /= count;
  }
  return loss;
}

// ---- Random numbers: the same on every machine -----------------------------------------------------------

// Mixes the bits of a number. Of 0, 1, 2, ... it makes random numbers: SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Uniform in [0, 1).
uint64_t drawn = 0;
double uniform() { return (mix(drawn++) >> 11) * 0x1p-53; }

// Normal with mean 0 and variance 1 (Box and Muller 1958).
double normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// ---- The model -------------------------------------------------------------------------------------------

// Weights, and what AdamW keeps of each: running means of its gradient, and of its gradient's square.
struct Parameter : Tensor {
  std::vector<float> mean = value, mean_square = value;
};
std::map<std::string, Parameter> parameters;

// The parameter of a name of GPT-2's. When first asked for, it is made of normal numbers about a centre.
Parameter& parameter(const std::string& name, int rows, int cols, float centre, float deviation) {
  if (const auto found = parameters.find(name); found != parameters.end()) return found->second;
  Parameter& p = parameters[name] = Parameter{{rows, cols}};
  for (float& weight : p.value) weight = centre + deviation * normal();
  return p;
}

// Projections into the residual stream begin smaller, since 2 kLayers of them are added up.
Tensor& linear(Tensor& x, const std::string& name, int out) {
  const float deviation = name.ends_with("c_proj") ? 0.02f / std::sqrt(2.0f * kLayers) : 0.02f;
  Tensor& weight = parameter(name + ".weight", out, x.cols, 0, deviation);
  return add(matmul(x, weight), parameter(name + ".bias", 1, out, 0, 0));
}

Tensor& norm(Tensor& x, const std::string& name) {
  Tensor& weight = parameter(name + ".weight", 1, x.cols, 1, 0);
  return layer_norm(x, weight, parameter(name + ".bias", 1, x.cols, 0, 0));
}

// tokens: sequences of kLength, one after the other. Result: logits (tokens, characters), which softmax turns
// into the probabilities of what follows each token. Every layer adds two things to a stream of one row for
// each token: what attention finds in earlier tokens, and what two linear layers make of the row itself.
Tensor& gpt(const std::vector<int>& tokens) {
  results.clear();
  tape.clear();
  Tensor& characters = parameter("wte.weight", kCharacters.size(), kWidth, 0, 0.02f);
  Tensor& positions = parameter("wpe.weight", kLength, kWidth, 0, 0.02f);
  Tensor* stream = &add(look_up(characters, tokens), positions);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string h = "h." + std::to_string(layer);
    Tensor& mixed = attention(linear(norm(*stream, h + ".ln_1"), h + ".attn.c_attn", 3 * kWidth));
    stream = &add(*stream, linear(mixed, h + ".attn.c_proj", kWidth));
    Tensor& hidden = gelu(linear(norm(*stream, h + ".ln_2"), h + ".mlp.c_fc", 4 * kWidth));
    stream = &add(*stream, linear(hidden, h + ".mlp.c_proj", kWidth));
  }
  return matmul(norm(*stream, "ln_f"), characters);
}

// AdamW (Loshchilov and Hutter 2019), of each weight w with its gradient g; step counts from 1:
//   mean = b1 mean + (1 - b1) g, mean_square = b2 mean_square + (1 - b2) g^2
//   w = (1 - rate decay) w - rate mean' / (sqrt(mean_square') + 1e-8), where ' divides by 1 - b^step
// and so corrects means that began at 0. Biases and norms do not decay. Then g is 0 for the next step.
void adamw(int step, float rate) {
  constexpr float b1 = 0.9f, b2 = 0.98f, decay = 0.1f;
  const float correct1 = 1 / (1 - std::pow(b1, step)), correct2 = 1 / (1 - std::pow(b2, step));
  for (auto& [name, p] : parameters)
    for (size_t i = 0; i < p.value.size(); ++i) {
      p.mean[i] = b1 * p.mean[i] + (1 - b1) * p.grad[i];
      p.mean_square[i] = b2 * p.mean_square[i] + (1 - b2) * p.grad[i] * p.grad[i];
      if (p.rows > 1) p.value[i] *= 1 - rate * decay;
      p.value[i] -= rate * p.mean[i] * correct1 / (std::sqrt(p.mean_square[i] * correct2) + 1e-8f);
      p.grad[i] = 0;
    }
}

// ---- The task, and learning it ---------------------------------------------------------------------------

// "47+58=501\n": the sum's last digit comes first, so that each one follows from those already there.
std::string example(int a, int b) {
  char text[40];
  std::snprintf(text, sizeof text, "%02d+%02d=%03d\n", a, b, a + b);
  std::reverse(text + kQuestion, text + kLength);
  return text;
}

// One sum in eleven is never trained on: chosen by a hash, the same for a + b and b + a.
bool held_out(int a, int b) { return mix(std::min(a, b) * uint64_t{1000000000} + std::max(a, b)) % 11 == 0; }

std::vector<std::string> random_examples(size_t count, bool are_held_out) {
  std::vector<std::string> examples;
  while (examples.size() < count) {
    const int a = 100 * uniform(), b = 100 * uniform();
    if (held_out(a, b) == are_held_out) examples.push_back(example(a, b));
  }
  return examples;
}

// One step of training; they count from 1. Returns the loss. Only what follows "=" is a target.
float train_step(int step, const std::vector<std::string>& examples) {
  std::string inputs, targets;
  for (const std::string& text : examples) {
    inputs += text.substr(0, kLength);
    targets += std::string(kQuestion - 1, ' ') + text.substr(kQuestion);
  }
  const float loss = cross_entropy(gpt(encode(inputs)), encode(targets));
  backward();
  const float rising = step / 31.0f, falling = (kSteps + 1 - step) / (kSteps - 30.0f);
  adamw(step, 3e-3f * std::min(rising, falling));
  return loss;
}

// The examples with the model's answers in place of theirs: the likeliest character, one after the other.
// What stands behind it does not matter, since attention looks back.
std::vector<std::string> answer(std::vector<std::string> examples) {
  for (int i = kQuestion; i < kLength; ++i) {
    std::string inputs;
    for (const std::string& text : examples) inputs += text.substr(0, i) + std::string(kLength - i, '\n');
    Tensor& logits = gpt(encode(inputs));
    for (size_t n = 0; n < examples.size(); ++n) {
      const float* row = logits.row(n * kLength + i - 1);
      examples[n][i] = kCharacters[std::max_element(row, row + logits.cols) - row];
    }
  }
  return examples;
}

void report(int step, float loss, const std::vector<std::string>& examples) {
  const std::vector<std::string> written = answer(examples);
  std::string bar, samples;
  int right = 0;
  for (size_t n = 0; n < examples.size(); ++n) {
    std::string text = written[n].substr(0, kLength);
    std::reverse(text.begin() + kQuestion, text.end());
    if (n < 3) samples += "   " + text + (written[n] == examples[n] ? " ✓" : " ✗");
    right += written[n] == examples[n];
  }
  for (int i = 1; i <= 20; ++i) bar += 5 * i <= right ? "█" : "░";
  std::printf("%4d   %.4f   %s %3d %%%s\n", step, loss, bar.c_str(), right, samples.c_str());
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    std::puts("usage: gpt\nTrains a small GPT to add, and shows how it adds numbers that it has never seen.");
    return argv[1] != std::string("--help");
  }
  const std::vector<std::string> unseen = random_examples(100, true);
  std::puts("step   loss     of 100 sums that it never sees, right");
  for (int step = 1; step <= kSteps; ++step) {
    const float loss = train_step(step, random_examples(kBatch, false));
    if (step == 1 || step % 25 == 0) report(step, loss, unseen);
  }
  return 0;
}
