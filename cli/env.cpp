// `keel env`: what this machine offers, what this build can use of it, and why not the rest.

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "build_info.h"
#include "commands.h"
#include "keel/kernels/cpu/sizes.h"
#include "keel/kernels/matmul.h"
#include "keel/runtime/context.h"
#include "keel/runtime/device_api.h"
#include "keel/runtime/json.h"
#include "keel/runtime/memory_limit.h"
#include "keel/runtime/scratch_file.h"
#include "machine.h"
#include "ranks.h"

namespace keel::cli {
namespace {

constexpr int kBytesOfF32 = 4;

// Takes a row; one without a name goes on with the row before it.
using Print = std::function<void(std::string_view name, std::string_view value)>;

void print_build(const Print& print) {
  const BuildInfo& info = build_info();
  print("keel", fmt::format("{} ({})", info.version, info.commit));
  print("compiler", fmt::format("{}, {}", info.compiler, info.flags));
}

void print_machine(const Print& print, const Context& context) {
  const std::string processor = file_text("/proc/cpuinfo");
  const std::string name = value_of(processor, "model name");
  print("processor", name.empty() ? "unknown" : name);
  print("features", vector_features(value_of(processor, "flags")));
  const char* wish = std::getenv("OMP_NUM_THREADS");
  print("threads", fmt::format("{} of {} processors{}", context.threads(), std::thread::hardware_concurrency(),
                               wish == nullptr ? "" : fmt::format(" (OMP_NUM_THREADS={})", wish)));

  const std::string memory = file_text("/proc/meminfo");
  const auto bytes = [&](const char* key) { return 1024 * std::atof(value_of(memory, key).c_str()); };
  std::string size =
      fmt::format("{}, {} available", binary_size(bytes("MemTotal")), binary_size(bytes("MemAvailable")));
  if (const MemoryLimit limit = memory_limit(); limit.is_of_group)
    size += fmt::format("; this group of processes (cgroup) may use {}", binary_size(static_cast<double>(limit.bytes)));
  print("memory", size);

  const std::string pages = file_text("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string use = "not offered by this system";
  if (pages.find("[always]") != std::string::npos) use = "given to all large blocks";
  else if (pages.find("[madvise]") != std::string::npos) use = "given to large blocks that ask for them, as keel's do";
  else if (pages.find("[never]") != std::string::npos) use = "switched off by this system";
  print("huge pages", use);
}

// What a run in this folder would find for numbers that lie in files (docs/offload.md).
void print_files(const Print& print) {
  const std::string folder = std::filesystem::current_path().string(),
                    type = file_system_of(folder, file_text("/proc/self/mountinfo"));
  std::string use;
  try {
    use = make_scratch_file(folder)->alignment() > 1 ? "past the system's cache (O_DIRECT)"
                                                     : "through the system's cache: it takes no O_DIRECT";
  } catch (const Error& error) { use = error.what(); }
  print("files here", fmt::format("on {}, {}", type.empty() ? "an unknown file system" : type, use));
}

void print_matmul(const Print& print, const Context& context) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    print(fmt::format("matmul {}", name_of(dtype)), kernels::matmul_backend(context, dtype));
  print("oneDNN", describe(*build_part("oneDNN")));
}

// How keel's own products and attention cut their work (keel/kernels/cpu/sizes.h).
void print_sizes(const Print& print) {
  const cpu::TileSizes& tile = cpu::kTile;
  print(
      "products",
      fmt::format("keel ({}), f32: tiles of {} x {}, panels of {} x {}, blocks of {} x {}, tasks of {} rows, {} shared",
                  tile.instructions, tile.rows, tile.columns(kBytesOfF32), tile.rows, cpu::kBlockSteps,
                  cpu::kBlockSteps, tile.block_columns(kBytesOfF32), cpu::kTaskRows,
                  binary_size(static_cast<double>(kBytesOfF32 * cpu::kSharedUnits))));
  print("attention", fmt::format("blocks of {} queries", cpu::kQueryBlock));
}

bool library_loads(const char* name) {
  void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

std::string found_program(const char* name) {
  const std::string path = program_path(name);
  return path.empty() ? fmt::format("no {} in PATH", name) : path;
}

// Every device that a run may name, and why there is no GPU among them.
void print_devices(const Print& print) {
  print("devices", "cpu");
  for (const DeviceType type : {DeviceType::cuda, DeviceType::emulated})
    for (int index = 0; index < count_devices(type).count; ++index) {
      const Device device{type, index};
      print("", fmt::format("{}: {}", to_string(device), describe_device(device)));
    }
  const DeviceCount gpus = count_devices(DeviceType::cuda);
  print("CUDA", fmt::format("{}{} (driver: {}; compiler: {})", describe(*build_part("CUDA")),
                            gpus.count > 0 ? "" : fmt::format("; no GPU is used: {}", gpus.why_none),
                            library_loads("libcuda.so.1") ? "libcuda.so.1" : "no libcuda.so.1", found_program("nvcc")));
}

// What the loader gave this process of a library that the build found. `number` asks the function for the version.
template <class Number>
void print_cuda_library(const Print& print, std::string_view name, const char* function, Number&& number) {
  const std::string built = describe(*build_part(name));
  const LoadedFunction found = loaded_function(function);
  if (found.address == nullptr) return print(name, built);  // which says why not
  const std::string version = library_version(number(found.address));
  print(name, fmt::format("{} ({}){}", version, found.file,
                          built.starts_with(version + " ") ? "" : fmt::format("; built with {}", built)));
}

void print_cuda_libraries(const Print& print) {
  if (build_part("cuBLASLt") == nullptr) return;  // not a build with nvcc
  const auto returned = [](void* f) { return static_cast<std::int64_t>(reinterpret_cast<std::size_t (*)()>(f)()); };
  const auto written = [](void* f) {
    int version = 0;
    reinterpret_cast<int (*)(int*)>(f)(&version);
    return std::int64_t{version};
  };
  print_cuda_library(print, "cuBLASLt", "cublasLtGetVersion", returned);
  print_cuda_library(print, "cuDNN", "cudnnGetVersion", returned);
  print_cuda_library(print, "NCCL", "ncclGetVersion", written);
  const std::string nvrtc(build_info().nvrtc);
  print("libnvrtc",
        library_loads(nvrtc.c_str())
            ? fmt::format("{} loads", nvrtc)
            : fmt::format("{} does not load: cuDNN has kernels that it compiles with it (LD_LIBRARY_PATH)", nvrtc));
}

void print_distribution(const Print& print) {
  const Launcher::Kind mpi = mpi_of_this_build();
  if (mpi == Launcher::Kind::none) print("MPI", describe(*build_part("MPI")));
  else print("MPI", fmt::format("{} (launcher: {})", name_of(mpi), found_program("mpirun")));
}

void print_other_parts(const Print& print) {
  for (const char* name : {"OpenMP", "Fortran", "zlib", "Oniguruma", "SentencePiece", "libcurl"})
    print(name, describe(*build_part(name)));
}

void print_environment(const Print& print) {
  const Context context = Context::create();
  print_build(print);
  print_devices(print);
  print_cuda_libraries(print);
  print_machine(print, context);
  print_files(print);
  print_matmul(print, context);
  print_sizes(print);
  print_distribution(print);
  print_other_parts(print);
}

// All rows as text, and the sizes of every build as numbers.
Json environment_json() {
  Json environment = Json::object(), products = Json::array();
  std::string last;
  print_environment([&](std::string_view name, std::string_view value) {
    if (!name.empty()) environment[last = name] = value;
    else environment[last] = concat(environment.at(last).string(), "; ", value);
  });
  for (const cpu::TileSizes& tile : cpu::kTiles)
    products.push_back({{"instructions", tile.instructions},
                        {"is_of_this_build", tile.vector_bytes == cpu::kTile.vector_bytes},
                        {"vector_bytes", tile.vector_bytes},
                        {"tile_rows", tile.rows},
                        {"tile_vectors", tile.vectors},
                        {"tile_columns", tile.columns(kBytesOfF32)},
                        {"block_steps", cpu::kBlockSteps},
                        {"block_columns", tile.block_columns(kBytesOfF32)},
                        {"task_rows", cpu::kTaskRows},
                        {"shared_bytes", kBytesOfF32 * cpu::kSharedUnits}});
  return {{"environment", environment}, {"products_f32", products}, {"attention", {{"query_block", cpu::kQueryBlock}}}};
}

}  // namespace

Command env_command() {
  const auto as_json = std::make_shared<bool>(false);
  return {
      .name = "env",
      .help = "What this machine and this build of keel offer, and why not more.",
      .options = {{"--json", "", as_json.get(),
                   "Print the rows as JSON, and the sizes of kernels on processors for every set of instructions."}},
      .footer = "\nExamples:\n  keel env\n  keel env --json",
      .run = [as_json](const Call&) {
        if (*as_json) {
          std::cout << environment_json().dump(2, BadUtf8::replace) << '\n';
          return 0;
        }
        print_environment([](std::string_view name, std::string_view value) {
          std::cout << std::left << std::setw(15) << name << value << '\n';
        });
        return 0;
      }};
}

}  // namespace keel::cli
