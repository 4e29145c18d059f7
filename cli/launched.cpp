#include "launched.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

// The variables of one launcher.
struct Names {
  const char* by;
  const char* rank;
  const char* size;
};
constexpr Names kMpi[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPI", "PMI_RANK", "PMI_SIZE"},
};
// The second is set for steps alone: the script of a batch job is no rank.
constexpr Names kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
constexpr Names kOwn = {"KEEL_RANK", "KEEL_RANK", "KEEL_SIZE"};
constexpr Names kTorch = {"RANK", "RANK", "WORLD_SIZE"};

std::optional<int> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const std::string_view all(text);
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc{} || end != all.data() + all.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Launched> read(const Environment& environment, const Names& names) {
  const std::optional<int> rank = number(environment(names.rank)), size = number(environment(names.size));
  if (!rank || !size || *size < 1 || *rank >= *size) return std::nullopt;
  return Launched{names.by, *rank, *size};
}

std::string text(const char* value) { return value == nullptr ? "" : value; }

std::optional<Launched> read_own(const Environment& environment) {
  const std::string rank = text(environment(kOwn.rank)), size = text(environment(kOwn.size)),
                    address = text(environment("KEEL_ADDRESS"));
  if (rank.empty() && size.empty() && address.empty()) return std::nullopt;
  std::optional<Launched> launched = read(environment, kOwn);
  KEEL_CHECK(launched && (launched->size == 1 || !address.empty()),
             "KEEL_RANK, KEEL_SIZE and KEEL_ADDRESS are a rank, the number of ranks and the HOST:PORT of rank 0, got '",
             rank, "', '", size, "' and '", address, "'");
  launched->address = address;
  launched->token = text(environment("KEEL_TOKEN"));
  return launched;
}

std::optional<Launched> read_torch(const Environment& environment) {
  std::optional<Launched> launched = read(environment, kTorch);
  const std::string host = text(environment("MASTER_ADDR"));
  std::optional<int> port = number(environment("MASTER_PORT"));
  if (!launched || host.empty() || !port) return std::nullopt;
  // torchrun itself listens at the port then.
  if (text(environment("TORCHELASTIC_USE_AGENT_STORE")) == "True") ++*port;
  launched->address = concat(host.find(':') == std::string::npos ? host : "[" + host + "]", ':', *port);
  launched->token = text(environment("KEEL_TOKEN"));
  return launched;
}

}  // namespace

std::optional<Launched> find_launched(const Environment& environment) {
  for (const Names& names : kMpi)
    if (auto launched = read(environment, names)) return launched;
  if (auto launched = read_own(environment)) return launched;
  if (auto launched = read(environment, kSlurm)) return launched;
  return read_torch(environment);
}

std::optional<Launched> find_launched() {
  return find_launched([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace keel::cli
