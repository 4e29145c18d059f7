// `keel strats`: the names of strategies, and what each means.

#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <string_view>

#include "commands.h"
#include "keel/trainer/strategy.h"

namespace keel::cli {
namespace {

constexpr std::string_view kCommon[] = {"auto",
                                        "fp32",
                                        "bf16",
                                        "fp16",
                                        "ddp-fp32",
                                        "ddp-bf16",
                                        "zero1-bf16",
                                        "zero2-auto",
                                        "zero2-bf16",
                                        "zero2-fp16",
                                        "zero3-bf16",
                                        "zero2-bf16-cpu",
                                        "deepspeed-2-bf16",
                                        "fsdp-bf16",
                                        "deepspeed-3-bf16-cpu-cpu"};

constexpr std::string_view kGrammar = R"(
A stage alone, as in zero2, leaves the precision to the key `precision`; without one it is fp32. Names of other trainers
are read as well: deepspeed[-0|-1|-2|-3][-PREC[-OPT-PARAM]] and fsdp[-PREC[-cpu]] with PREC one of fp32, bf16, fp16, fp8, and
OPT and PARAM, where optimizer state and parameters are kept, one of none, cpu, nvme; keel's own take OPT and PARAM, too.

)";

// keel's own name for another trainer's, its meaning, and what it waits for.
void print(std::string_view name, int width) {
  const Strategy strategy = parse_strategy(name);
  const std::string own = to_string(strategy), missing = not_there_yet(strategy);
  std::cout << fmt::format("{:<{}}  {}{}{}\n", name, width, own == name ? "" : own + ": ",
                           missing.empty() ? describe(strategy) : "not there yet: ", missing);
}

void print_names(bool all) {
  std::cout << "strategy = " << kStrategyGrammar << '\n' << kGrammar;
  if (all) {
    for (const std::string& name : strategy_names()) print(name, 34);
  } else {
    for (const std::string_view name : kCommon) print(name, 24);
    std::cout << "\n`keel strats --all` lists every name; `strategy: NAME` in a configuration or `--strat NAME` "
                 "chooses one.\n";
  }
}

}  // namespace

Command strats_command() {
  const auto all = std::make_shared<bool>(false);
  return {.name = "strats",
          .help = "The names of strategies: what ranks share out, in which numbers.",
          .options = {{"--all", "", all.get(), "Every name, and what it means or waits for."}},
          .footer = "\nExamples:\n  keel strats\n  keel strats --all | grep nvme",
          .run = [all](const Call&) {
            print_names(*all);
            return 0;
          }};
}

}  // namespace keel::cli
