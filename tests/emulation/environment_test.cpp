// What the environment asks of the emulator is done, or refused by name.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "keel/runtime/cuda/launch.h"

namespace keel::emulation {
namespace {

// A variable for as long as it lives; then it is unset.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// A thread takes its order from the environment when it first asks for it. Returns the message of its error, or "".
std::string options_of_new_thread(const char* order, GridOptions& options) {
  const Variable variable("KEEL_EMULATED_ORDER", order);
  std::string message;
  std::thread([&] {
    try {
      options = grid_options();
    } catch (const Error& error) { message = error.what(); }
  }).join();
  return message;
}

std::string error_of_machine(const char* name, const char* value) {
  const Variable variable(name, value);
  try {
    Machine::get().reset(options_of_environment());
  } catch (const Error& error) { return error.what(); }
  return {};
}

struct EmulatorEnvironment : ::testing::Test {
  void TearDown() override { Machine::get().reset({}); }
};

TEST_F(EmulatorEnvironment, SaysHowManyDevicesThereAre) {
  for (const auto& [text, count] : {std::pair("1", 1), {"4", 4}, {"64", 64}, {"", 1}}) {
    EXPECT_EQ(error_of_machine("KEEL_EMULATED_DEVICES", text), "");
    int found = 0;
    EXPECT_EQ(cudaGetDeviceCount(&found), cudaSuccess);
    EXPECT_EQ(found, count) << "KEEL_EMULATED_DEVICES='" << text << "'";
  }
  const Variable variable("KEEL_EMULATED_DEVICES", "4");
  Machine::get().reset({.devices = 2});
  EXPECT_EQ(Machine::get().devices(), 2) << "what the program asks for goes first";
}

TEST_F(EmulatorEnvironment, NamesTheNumberThatIsNone) {
  for (const char* text : {"0", "65", "two", "4x", "-1", " 4", "99999999999999999999"})
    EXPECT_EQ(error_of_machine("KEEL_EMULATED_DEVICES", text),
              concat("KEEL_EMULATED_DEVICES is '", text, "'; it must be a number from 1 to 64"));
  EXPECT_EQ(error_of_machine("KEEL_EMULATED_GUARD", "yes"),
            "KEEL_EMULATED_GUARD is 'yes'; it must be a number from 0 to 1");
  EXPECT_NE(error_of_machine("KEEL_EMULATED_DRAIN", "7.5").find("KEEL_EMULATED_DRAIN is '7.5'"), std::string::npos);
  EXPECT_GE(Machine::get().devices(), 1) << "a refused environment changes nothing";
}

TEST_F(EmulatorEnvironment, SeedsTheDrainingAndClosesMemory) {
  const Variable drain("KEEL_EMULATED_DRAIN", "7"), guard("KEEL_EMULATED_GUARD", "1");
  const MachineOptions options = options_of_environment();
  EXPECT_EQ(options.drain_seed, 7u);
  EXPECT_TRUE(options.guard_memory);
}

TEST_F(EmulatorEnvironment, OrdersBlocksAndThreads) {
  for (const auto& [text, order, seed] :
       std::vector<std::tuple<const char*, Order, std::uint64_t>>{{"forward", Order::forward, 1},
                                                                  {"", Order::forward, 1},
                                                                  {"reverse", Order::reverse, 1},
                                                                  {"17", Order::shuffled, 17}}) {
    GridOptions options;
    EXPECT_EQ(options_of_new_thread(text, options), "");
    EXPECT_EQ(options.blocks, order) << text;
    EXPECT_EQ(options.threads, order) << text;
    if (order == Order::shuffled) { EXPECT_EQ(options.seed, seed); }
  }
  for (const char* text : {"backwards", "7x", "-7"}) {
    GridOptions options;
    EXPECT_EQ(options_of_new_thread(text, options),
              concat("KEEL_EMULATED_ORDER is '", text, "'; it must be forward, reverse or a number"));
  }
}

// The order that is asked for is the one in which a kernel's blocks begin.
TEST_F(EmulatorEnvironment, TheOrderIsThatOfAKernel) {
  for (const auto& [text, expected] : std::vector<std::pair<const char*, std::vector<unsigned>>>{
           {"forward", {0, 1, 2, 3}}, {"reverse", {3, 2, 1, 0}}}) {
    const Variable variable("KEEL_EMULATED_ORDER", text);
    std::vector<unsigned> begun;
    std::thread([&] {
      run_grid({.kernel = "note", .grid = 4, .block = 1}, grid_options(), [&] { begun.push_back(blockIdx.x); });
    }).join();
    EXPECT_EQ(begun, expected) << text;
  }
}

}  // namespace
}  // namespace keel::emulation
