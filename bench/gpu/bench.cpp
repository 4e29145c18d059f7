#include "bench/gpu/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <iterator>
#include <utility>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/random.h"

namespace keel::bench {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Context context_of(Device device, KernelChoice kernels, LogSink log = {}) {
  ContextOptions options;
  options.device = device;
  options.kernels = kernels;
  options.log = std::move(log);
  return Context::create(options);
}

// Names as the driver gives them. Dense bf16 products with fp32 sums, at the boost clock, by NVIDIA's data sheets.
struct Peak {
  std::string_view name;  // the beginning
  double tflops;
};
constexpr Peak kPeaks[] = {{"NVIDIA H200", 989.4}, {"NVIDIA H100 80GB HBM3", 989.4}, {"NVIDIA A100", 312}};
// The slower cards whose names begin likewise.
constexpr std::string_view kOthers[] = {"NVIDIA H200 NVL"};

double peak_of(std::string_view name) {
  for (const std::string_view other : kOthers)
    if (name.starts_with(other)) return 0;
  for (const Peak& peak : kPeaks)
    if (name.starts_with(peak.name)) return 1e12 * peak.tflops;
  return 0;
}

// "group/case" of each line of a file, which may end in the middle of one.
std::set<std::string> cases_of(const std::string& path) {
  std::set<std::string> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json read = Json::parse(line, nullptr, false);
    if (read.is_object()) cases.insert(concat(read.value("group", ""), '/', read.value("case", "")));
  }
  return cases;
}

}  // namespace

GpuBench::GpuBench(Device device, const GpuOptions& options)
    : options_(options),
      host_(Context::create()),
      plain_(context_of(device, KernelChoice::plain)),
      automatic_(context_of(device, KernelChoice::automatic,
                            [this](LogLevel, std::string_view message) { log_.emplace_back(message); })),
      done_(options.resume ? cases_of(options.out) : std::set<std::string>()),
      file_(options.out, options.resume ? std::ios::app : std::ios::out),
      start_(now()) {
  KEEL_CHECK(file_.good(), "'", options.out, "' cannot be written");
  if (options.resume) file_ << '\n';  // the last line may have been cut
  const std::string description = describe_device(device);
  const std::string name = description.substr(0, description.find(','));
  peak_ = peak_of(name);
  Json line = {{"group", "device"}, {"case", to_string(device)}, {"name", name}, {"description", description}};
  if (options.rehearse) line["rehearsed"] = true;
  else if (peak_ > 0) line["peak_tflops"] = 1e-12 * peak_;
  else line["peak_missing"] = "no dense bf16 peak is known for this card, so there is no MFU";
  write(line);
}

double GpuBench::seconds_since_start() const { return now() - start_; }

void GpuBench::write(const Json& line) {
  file_ << line.dump() << std::endl;
  std::cout << line.dump() << std::endl;
}

void GpuBench::run(std::string_view group, const std::string& name, const std::function<Json()>& measure) {
  const std::string full_name = concat(group, '/', name);
  if (full_name.find(options_.only) == std::string::npos || done_.contains(full_name)) return;
  Json line = {{"group", group}, {"case", name}};
  if (options_.seconds_limit > 0 && seconds_since_start() > options_.seconds_limit) {
    line["skipped"] = "no time was left";
    return write(line);
  }
  log_.clear();
  Json begun = line;
  begun["begun"] = true;
  write(begun);
  bool failed = false;
  try {
    const Json measured = measure();
    if (options_.rehearse) line["rehearsed"] = true;
    else line.update(measured);
  } catch (const std::exception& error) {
    line["error"] = error.what();
    failed = failed_ = true;
  }
  if (!log_.empty()) line["log"] = log_;
  write(line);
  try {
    for (const Context& context : {plain_, automatic_}) {
      if (failed) context.synchronize();
      context.allocator().trim();
    }
  } catch (const std::exception& error) {
    throw DeviceLost(concat("after ", full_name, " the device is lost: ", error.what()));
  }
}

std::vector<double> GpuBench::race(const std::vector<Contestant>& contestants, double shortest) const {
  const auto seconds_of = [](const Contestant& contestant, int runs) {
    contestant.context.synchronize();
    const double start = now();
    for (int i = 0; i < runs; ++i) contestant.run();
    contestant.context.synchronize();
    return now() - start;
  };
  if (options_.rehearse) {
    for (const Contestant& contestant : contestants) seconds_of(contestant, 1);
    return std::vector<double>(contestants.size(), 1.0);
  }
  std::vector<int> runs;
  for (const Contestant& contestant : contestants) {
    seconds_of(contestant, 3);
    const double once = std::max(seconds_of(contestant, 2) / 2, 1e-6);
    runs.push_back(std::max(1, static_cast<int>(std::ceil(shortest / once))));
  }
  const int rounds = options_.quick ? 3 : 5;
  std::vector<std::vector<double>> samples(contestants.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contestants.size(); ++i)
      samples[i].push_back(seconds_of(contestants[i], runs[i]) / runs[i]);
  std::vector<double> medians;
  for (std::vector<double>& sample : samples) {
    std::sort(sample.begin(), sample.end());
    medians.push_back(sample[sample.size() / 2]);
  }
  return medians;
}

Tensor GpuBench::random(const Context& context, const Dims& shape, DType dtype, double low, double high) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 22;
  const Tensor result = empty(context, shape, dtype);
  const std::int64_t count = std::min(kBlock, result.numel());
  const PhiloxKey key = key_of(++seed_, "bench");
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; i += 4)
    for (const std::uint32_t word : stream_block(key, static_cast<std::uint64_t>(i / 4)))
      numbers.push_back(static_cast<float>(low + (high - low) * static_cast<double>(to_uniform(word))));
  numbers.resize(static_cast<std::size_t>(count));
  const Tensor block = kernels::to(kernels::cast(from_values(host_, numbers, {count}), dtype), context);
  const Tensor flat = result.flatten();
  for (std::int64_t at = 0; at < flat.numel(); at += count) {
    const std::int64_t part = std::min(count, flat.numel() - at);
    kernels::copy_into(flat.slice(0, at, at + part), block.slice(0, 0, part));
  }
  context.synchronize();  // other contexts may read it
  return result;
}

Tensor GpuBench::random_tokens(const Context& context, const Dims& shape, std::int64_t limit) {
  const PhiloxKey key = key_of(++seed_, "tokens");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < product(shape); ++i) {
    const double uniform = static_cast<double>(to_uniform(stream_word(key, static_cast<std::uint64_t>(i))));
    tokens.push_back(static_cast<std::int32_t>(static_cast<double>(limit) * std::pow(uniform, 4)));
  }
  return from_values(context, tokens, shape);
}

Tensor GpuBench::shared_with(const Context& context, const Tensor& tensor) {
  return from_external(context, tensor.raw(), tensor.shape(), tensor.strides(), tensor.dtype());
}

}  // namespace keel::bench
