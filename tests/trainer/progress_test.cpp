#include "keel/trainer/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace keel {
namespace {

StepReport report_of(std::int64_t step, std::int64_t steps = 2000) {
  return {.step = step,
          .steps = steps,
          .loss = 2.34567,
          .units_per_s = 20100,
          .lr = 1e-3,
          .grad_norm = 0.5,
          .seconds_left = 83};
}

// A console whose clock and width the test turns.
struct FakeConsole {
  std::ostringstream out;
  double time = 0;
  int columns = 80;
  ConsoleOptions options(bool terminal, bool utf8 = false) {
    return {.terminal = terminal, .utf8 = utf8, .width = [this] { return columns; }, .now = [this] { return time; }};
  }
  std::string take() {
    std::string text = out.str();
    out.str("");
    return text;
  }
};

std::size_t columns_of(const std::string& text) {
  std::size_t count = 0;
  for (const unsigned char c : text) count += (c & 0xc0) != 0x80;
  return count;
}

TEST(Progress, APipeGetsPlainLinesAtIntervals) {
  FakeConsole console;
  ConsoleObserver observer(console.out, console.options(false));
  observer.on_step(report_of(1));
  EXPECT_EQ(console.take(), "step 1/2000  loss 2.3457  1:23 left  20.1k tok/s  lr 0.001  grad 0.50\n");
  console.time = 9.9;
  observer.on_step(report_of(2));
  EXPECT_EQ(console.take(), "");
  console.time = 10;
  observer.on_step(report_of(3));
  EXPECT_EQ(console.take().substr(0, 11), "step 3/2000");
  observer.on_step(report_of(2000));  // the last step is always told
  EXPECT_EQ(console.take().substr(0, 14), "step 2000/2000");
}

TEST(Progress, OtherEventsAreOneLineEach) {
  FakeConsole console;
  ConsoleObserver observer(console.out, console.options(false));
  observer.on_eval({.step = 250, .values = {{"validation_loss", 1.88}}, .seconds = 0.25});
  observer.on_eval({.step = 300, .values = {{"exact_match", 0.9876}, {"validation_loss", 0.01}}, .seconds = 2});
  observer.on_checkpoint({.step = 500, .path = "runs/add/step-500"});
  observer.on_message(LogLevel::info, "auto chose bf16");
  observer.on_message(LogLevel::warning, "few threads");
  observer.on_message(LogLevel::error, "no memory");
  EXPECT_EQ(console.take(),
            "step 250  validation loss 1.8800  (0.2 s)\n"
            "step 300  exact match 0.9876  validation loss 0.0100  (2.0 s)\n"
            "step 500  saved runs/add/step-500\n"
            "auto chose bf16\n"
            "warning: few threads\n"
            "error: no memory\n");
}

TEST(Progress, ATerminalLineIsRedrawnAtMostTenTimesASecond) {
  FakeConsole console;
  console.columns = 100;
  {
    ConsoleObserver observer(console.out, console.options(true));
    observer.on_step(report_of(500));
    const std::string line =
        " 500/2000 [#######......................]  loss 2.3457  1:23 left  20.1k tok/s  lr 0.001  grad 0.50";
    EXPECT_EQ(console.take(), "\r" + line + "\x1b[K");
    console.time = 0.09;
    observer.on_step(report_of(501));
    EXPECT_EQ(console.take(), "");
    observer.on_message(LogLevel::info, "hello");
    EXPECT_EQ(console.take(), "\rhello\x1b[K\n" + line + "\x1b[K");
    console.time = 0.11;
    observer.on_step(report_of(502));
    EXPECT_EQ(console.take().substr(0, 10), "\r 502/2000");
  }
  EXPECT_EQ(console.take(), "\n");  // the shell's prompt starts on a line of its own
}

TEST(Progress, TheLineNeverReachesTheLastColumn) {
  for (int columns = 0; columns <= 200; ++columns)
    for (const bool utf8 : {false, true}) {
      FakeConsole console;
      console.columns = columns;
      ConsoleObserver observer(console.out, console.options(true, utf8));
      observer.on_step(report_of(1999));
      std::string text = console.take();
      ASSERT_TRUE(text.starts_with("\r") && text.ends_with("\x1b[K"));
      text = text.substr(1, text.size() - 4);
      EXPECT_LE(columns_of(text), static_cast<std::size_t>(std::max(columns - 1, 0)));
      EXPECT_EQ(text.starts_with("1999/2000"), columns >= 10);
      EXPECT_EQ(text.find("loss 2.3457") != std::string::npos, columns >= 23);
      EXPECT_EQ(text.find("grad 0.50") != std::string::npos, columns >= 91);
      const std::size_t begin = text.find('['), end = text.find(']');
      const std::size_t bar = begin == std::string::npos ? 0 : columns_of(text.substr(begin, end - begin)) - 1;
      if (text.find("tok/s") != std::string::npos) { EXPECT_GE(bar, 20u) << "what is less important leaves a bar"; }
    }
}

// The parts of a line for which there is room, the first that has none and all behind it left out, and a bar of 4 to 30
// columns in what remains; without room for one, the line's beginning.
TEST(Progress, TheLineHasWhatThereIsRoomFor) {
  const std::string count = "1999/2000";
  const std::vector<std::string> parts = {"  loss 2.3457", "  1:23 left", "  20.1k tok/s", "  lr 0.001", "  grad 0.50"};
  for (int columns = 1; columns <= 140; ++columns) {
    const int width = columns - 1;
    std::string tail = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const int needed = static_cast<int>(count.size() + tail.size() + parts[i].size()) + (i == 1 ? 0 : 3 + 20);
      if (needed > width) break;
      tail += parts[i];
    }
    std::string line = (count + tail).substr(0, static_cast<std::size_t>(width));
    if (const int room = width - static_cast<int>(count.size() + tail.size()) - 3; room >= 4) {
      const int bar = std::min(room, 30);
      line = concat(count, " [", std::string(static_cast<std::size_t>(bar - 1), '#'), ".]", tail);  // 0.05% are left
    }
    FakeConsole console;
    console.columns = columns;
    ConsoleObserver observer(console.out, console.options(true));
    observer.on_step(report_of(1999));
    EXPECT_EQ(console.take(), concat("\r", line, "\x1b[K")) << columns;
  }
}

TEST(Progress, AConsoleOfUnknownWidthHasEightyColumnsAndAClockOfItsOwn) {
  std::ostringstream out;
  ConsoleObserver observer(out, {.terminal = true});
  observer.on_step(report_of(500));
  EXPECT_EQ(out.str(), "\r 500/2000 [#####...............]  loss 2.3457  1:23 left  20.1k tok/s  lr 0.001\x1b[K");
  observer.on_step(report_of(2000));
  EXPECT_NE(out.str().find("2000/2000"), std::string::npos);
}

TEST(Progress, ARunWithoutATimeLimitShowsStepsHoweverLongItTakes) {
  FakeConsole console;
  ConsoleObserver observer(console.out, console.options(false));
  StepReport report = report_of(500);
  report.seconds = 5;
  report.seconds_left.reset();
  observer.on_step(report);
  EXPECT_EQ(console.take(), "step 500/2000  loss 2.3457  20.1k tok/s  lr 0.001  grad 0.50\n");
  console.time = 10;
  report.time_limit = 20;  // a quarter of both
  observer.on_step(report);
  EXPECT_EQ(console.take(), "step 500/2000  loss 2.3457  20.1k tok/s  lr 0.001  grad 0.50\n");
  console.time = 20;
  report.seconds = 5.5;
  report.unit = "rows";
  observer.on_step(report);
  EXPECT_EQ(console.take(), "0:06/0:20  loss 2.3457  step 500  20.1k rows/s  lr 0.001  grad 0.50\n");
}

TEST(Progress, ARunOfNoStepsHasDoneNothingOfThem) {
  FakeConsole console;
  console.columns = 40;
  ConsoleObserver observer(console.out, console.options(true));
  observer.on_step({.loss = 1, .units_per_s = 2, .seconds_left = std::nullopt});
  EXPECT_EQ(console.take(), "\r0/0 [...........]  loss 1.0000  2 tok/s\x1b[K");
}

TEST(Progress, BarsFillFromLeftToRight) {
  const std::pair<double, const char*> plain[] = {{-1, "[....]"},   {0, "[....]"},    {0.24, "[....]"},
                                                  {0.25, "[#...]"}, {0.74, "[##..]"}, {0.75, "[###.]"},
                                                  {1, "[####]"},    {9, "[####]"}};
  for (const auto& [done, bar] : plain) EXPECT_EQ(progress_bar(done, 4, false), bar) << done;
  const char* blocks[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  for (int eighths = 0; eighths <= 24; ++eighths) {
    std::string bar = "[";
    for (const int before : {0, 8, 16}) bar += blocks[std::clamp(eighths - before, 0, 8)];
    EXPECT_EQ(progress_bar(eighths / 24.0 + 1e-9, 3, true), bar + "]") << eighths;
  }
  EXPECT_EQ(progress_bar(0.5, 0, false), "[]");
}

TEST(Progress, TheBarCanBeReadOnEightyColumns) {
  FakeConsole console;
  ConsoleObserver observer(console.out, console.options(true));
  observer.on_step(report_of(500));
  EXPECT_EQ(console.take(), "\r 500/2000 [#####...............]  loss 2.3457  1:23 left  20.1k tok/s  lr 0.001\x1b[K");
}

TEST(Progress, TheBarIsFullAtTheEndOfAsManyStepsOrSecondsAsThereAre) {
  for (const std::int64_t steps : {1, 2, 7}) {
    FakeConsole console;
    ConsoleObserver observer(console.out, console.options(true));
    observer.on_step(report_of(steps, steps));
    const std::string text = console.take();
    EXPECT_NE(text.find("[###"), std::string::npos) << text;
    EXPECT_EQ(text.find(".]"), std::string::npos) << text;
  }
}

TEST(Progress, WhereTheTimeEndsTheRunItIsWhatTheBarShows) {
  FakeConsole console;
  StepReport report = report_of(31, 1000000);
  report.seconds = 15;
  report.time_limit = 60;
  report.seconds_left = 45;
  {
    ConsoleObserver observer(console.out, console.options(true));
    observer.on_step(report);
    EXPECT_EQ(console.take(),
              "\r0:15/1:00 [#####.................]  loss 2.3457  step 31  20.1k tok/s  lr 0.001\x1b[K");
    report.step = 32;
    report.seconds = 60;  // the last step, told at once
    observer.on_step(report);
    EXPECT_EQ(console.take().substr(0, 11), "\r1:00/1:00 ");
  }
  console.take();
  ConsoleObserver lines(console.out, console.options(false));
  lines.on_step(report);
  EXPECT_EQ(console.take(), "1:00/1:00  loss 2.3457  step 32  20.1k tok/s  lr 0.001  grad 0.50\n");
  // A limit that the run does not reach is not what it ends by.
  console.time = 100;
  lines.on_step({.step = 901, .steps = 1000, .loss = 1, .seconds_left = 1, .seconds = 15, .time_limit = 60});
  EXPECT_NE(console.take().find("step 901/1000  loss 1.0000  0:01 left"), std::string::npos);
}

TEST(Progress, BlocksFillInEighths) {
  FakeConsole console;
  console.columns = 40;  // the rate does not fit, so the bar gets its room
  ConsoleObserver observer(console.out, console.options(true, true));
  observer.on_step(report_of(31, 80));
  EXPECT_EQ(console.take(), "\r31/80 [██▋    ]  loss 2.3457  1:23 left\x1b[K");
}

TEST(Progress, NumbersAndTimesAreShort) {
  const std::pair<double, const char*> numbers[] = {
      {0, "0"},         {949.6, "950"},    {999.4, "999"},     {999.6, "1.00k"},   {9994, "9.99k"},   {9996, "10.0k"},
      {20100, "20.1k"}, {412345, "412k"},  {1.25e6, "1.25M"},  {999.6e6, "1.00G"}, {INFINITY, "inf"}, {NAN, "nan"},
      {1, "1"},         {999.5, "1.00k"},  {9995, "10.0k"},    {9994.9, "9.99k"},  {99949, "99.9k"},  {99950, "100k"},
      {-7, "-7"},       {1.5e12, "1500G"}, {9.995e6, "10.0M"}, {2e15, "2000000G"}};
  for (const auto& [value, text] : numbers) EXPECT_EQ(compact_number(value), text) << value;
  const std::pair<double, const char*> times[] = {
      {0, "0:00"},        {42.4, "0:42"},    {59.6, "1:00"},     {187, "3:07"},     {3723, "1:02:03"},
      {183600, "2d 03h"}, {-1, "?"},         {INFINITY, "?"},    {NAN, "?"},        {59, "0:59"},
      {3599, "59:59"},    {3600, "1:00:00"}, {60, "1:00"},       {7325, "2:02:05"}, {86399, "23:59:59"},
      {1, "0:01"},        {86400, "1d 00h"}, {172799, "1d 23h"}, {1e9, "?"},        {999999999, "11574d 01h"}};
  for (const auto& [value, text] : times) EXPECT_EQ(compact_duration(value), text) << value;
}

// Sets variables of the environment (none: unset) and puts them back.
class Environment {
 public:
  void set(const char* name, const std::optional<std::string>& value) {
    if (!before_.contains(name)) {
      const char* old = std::getenv(name);
      before_.emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    }
    put(name, value);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) put(name.c_str(), value);
  }

 private:
  static void put(const char* name, const std::optional<std::string>& value) {
    if (value) ::setenv(name, value->c_str(), 1);
    else ::unsetenv(name);
  }
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(Progress, TheFirstVariableThatIsSetSaysTheAlphabet) {
  struct Locale {
    std::optional<std::string> all, ctype, lang;
    bool is_utf8;
  };
  const std::optional<std::string> none;
  for (const Locale& each : {Locale{none, none, none, false},
                             {none, none, "en_US.UTF-8", true},
                             {none, none, "en_US.utf8", true},
                             {none, none, "C", false},
                             {none, "de_DE.utf-8", "C", true},
                             {none, "C", "en_US.UTF-8", false},
                             {"C", "en_US.UTF-8", "en_US.UTF-8", false},
                             {"", "", "en_US.UTF-8", true},
                             {"C.UTF8", "C", "C", true}}) {
    Environment environment;
    environment.set("LC_ALL", each.all);
    environment.set("LC_CTYPE", each.ctype);
    environment.set("LANG", each.lang);
    EXPECT_EQ(locale_is_utf8(), each.is_utf8)
        << each.all.value_or("-") << ' ' << each.ctype.value_or("-") << ' ' << each.lang.value_or("-");
  }
}

// A terminal of the kernel's, without one around it.
TEST(Progress, ATerminalTellsItsWidthAndKind) {
  const int outside = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (outside < 0 || ::grantpt(outside) != 0 || ::unlockpt(outside) != 0) GTEST_SKIP() << "there are no terminals here";
  const int inside = ::open(::ptsname(outside), O_RDWR | O_NOCTTY);
  ASSERT_GE(inside, 0);
  Environment environment;
  environment.set("LC_ALL", "C.UTF-8");
  for (const auto& [kind, is_terminal] :
       {std::pair<std::optional<std::string>, bool>{"xterm", true}, {"dumb", false}, {std::nullopt, false}}) {
    environment.set("TERM", kind);
    EXPECT_EQ(console_options(inside).terminal, is_terminal) << kind.value_or("none");
    EXPECT_EQ(console_options(inside).utf8, is_terminal) << kind.value_or("none");
  }
  environment.set("TERM", "xterm");
  environment.set("LC_ALL", "C");
  const ConsoleOptions options = console_options(inside);
  EXPECT_TRUE(options.terminal && !options.utf8);
  for (const auto& [columns, width] : {std::pair<unsigned short, int>{0, 80}, {1, 1}, {2, 2}, {132, 132}}) {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = columns;
    ASSERT_EQ(::ioctl(inside, TIOCSWINSZ, &size), 0);
    EXPECT_EQ(options.width(), width);
  }
  ::close(inside);
  ::close(outside);
}

TEST(Progress, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  const ConsoleOptions options = console_options(fileno(file));
  EXPECT_FALSE(options.terminal);
  EXPECT_EQ(options.width(), 80);
  std::fclose(file);
}

}  // namespace
}  // namespace keel
