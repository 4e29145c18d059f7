// What reading data sets costs, indexing included: every example of a csv and of two jsonl files (texts, and lists of
// tokens), by two threads that take steps of 256 neighbours in turn. Each beside plain reads of the same bytes by two
// threads in the same round; the files lie in the system's cache.
//
// usage: bench_data_files FOLDER [MIB] [ROUNDS] [NAME]   the files are made in FOLDER and removed

#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "keel/data/csv.h"
#include "keel/data/jsonl.h"
#include "keel/runtime/file.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kStep = 256;
constexpr std::size_t kPiece = 64 << 10;

void by_two_threads(const std::function<void(std::atomic<std::int64_t>&)>& work) {
  std::atomic<std::int64_t> next = 0;
  std::thread other([&] { work(next); });
  work(next);
  other.join();
}

// Bytes of values, so that nothing is left out.
std::atomic<std::uint64_t> values_seen = 0;

void read_examples(const Dataset& data) {
  by_two_threads([&](std::atomic<std::int64_t>& next) {
    std::vector<std::int64_t> rows;
    std::uint64_t seen = 0;
    for (std::int64_t first = kStep * next++; first < data.size(); first = kStep * next++) {
      rows.resize(static_cast<std::size_t>(std::min(kStep, data.size() - first)));
      std::iota(rows.begin(), rows.end(), first);
      for (const Example& example : data.examples(rows)) seen += example.fields().size();
    }
    values_seen += seen;
  });
}

void read_plainly(const std::string& path) {
  const InputFile file(path);
  by_two_threads([&](std::atomic<std::int64_t>& next) {
    std::vector<std::byte> piece(kPiece);
    for (std::uint64_t at = kPiece * static_cast<std::uint64_t>(next++); at < file.size();
         at = kPiece * static_cast<std::uint64_t>(next++))
      file.read(at, std::span(piece).first(std::min<std::size_t>(kPiece, file.size() - at)));
  });
}

template <class Line>
void make_file(const std::string& path, std::uint64_t bytes, std::string text, Line&& line) {
  AtomicFile file(path);
  while (file.size() < bytes) {
    line(text);
    file.write(text);
    text.clear();
  }
  file.commit();
}

std::mt19937_64 engine(1);
std::size_t below(std::size_t bound) { return engine() % bound; }

// Ten columns of numbers with up to seven digits.
void csv_line(std::string& text) {
  char cell[32];
  for (int i = 0; i < 10; ++i) {
    std::snprintf(cell, sizeof cell, "%s%.*f", i == 0 ? "" : ",", 2 + static_cast<int>(below(5)),
                  static_cast<double>(below(2000000)) * 1e-4 - 100);
    text += cell;
  }
  text += '\n';
}

// Documents of 200 to 4,000 characters with an escape in each 60 or so.
void text_line(std::string& text) {
  text += R"({"id": )" + std::to_string(below(1000000)) + R"(, "source": "web", "text": ")";
  const std::size_t words = 40 + below(760);
  for (std::size_t i = 0; i < words; ++i) {
    text.append(1 + below(8), static_cast<char>('a' + below(26)));
    text += below(12) == 0 ? "\\n" : " ";
  }
  text += "\"}\n";
}

void token_line(std::string& text) {
  text += R"({"input_ids": [)";
  const std::size_t tokens = 100 + below(900);
  for (std::size_t i = 0; i < tokens; ++i) text += (i == 0 ? "" : ", ") + std::to_string(below(50257));
  text += "]}\n";
}

// Of the process, in the program and in the system. On a machine with other work it says more than the clock does.
double processor_seconds() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double processor_seconds_of(const std::function<void()>& f) {
  const double begin = processor_seconds();
  f();
  return processor_seconds() - begin;
}

struct Costs {
  std::vector<double> seconds, processor;
  void measure(const std::function<void()>& f) {
    processor.push_back(processor_seconds_of([&] { seconds.push_back(seconds_of(f)); }));
  }
};

void report(const std::string& name, const std::string& path, int rounds, const std::function<DatasetPtr()>& open) {
  const auto forget = [&] { std::filesystem::remove(path + ".keel-index"); };
  DatasetPtr data;
  Costs opening, reading, plain;
  for (int round = 0; round <= rounds; ++round) {
    if (round == 1) opening = reading = plain = {};  // the first one warms up
    forget();
    plain.measure([&] { read_plainly(path); });
    opening.measure([&] { data = open(); });
    reading.measure([&] { read_examples(*data); });
  }
  forget();
  const double megabytes = static_cast<double>(std::filesystem::file_size(path)) * 1e-6;
  // Two processors that do nothing else would take half of the processor's time.
  const double processor = median(opening.processor) + median(reading.processor);
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "%-13s %5.0f MB %8lld examples: %5.0f MB/s by the clock, %5.0f by processor time (indexing %5.0f, reading "
      "%5.0f); "
      "plain reads %5.0f by processor time, ratio %.3f; %ld MB resident at most\n",
      name.c_str(), megabytes, static_cast<long long>(data->size()),
      megabytes / (median(opening.seconds) + median(reading.seconds)), 2 * megabytes / processor,
      2 * megabytes / median(opening.processor), 2 * megabytes / median(reading.processor),
      2 * megabytes / median(plain.processor), median(plain.processor) / processor, usage.ru_maxrss / 1000);
}

int run(const std::string& folder, std::uint64_t bytes, int rounds, const std::string& only) {
  const auto measure = [&](const std::string& name, const std::string& first, auto line, auto open) {
    if (!only.empty() && only != name) return;
    const std::string path = folder + "/bench_data_files." + name;
    make_file(path, bytes, first, line);
    report(name, path, rounds, [&] { return open(path); });
    std::filesystem::remove(path);
  };
  const auto csv = [](const std::string& path) { return open_csv(path); };
  const auto vectors = [](const std::string& path) {
    return open_csv(path, {.fields = {{"x", "c0..c8"}, {"y", "c9"}}});
  };
  const auto jsonl = [](const std::string& path) { return open_jsonl(path); };
  const std::string header = "c0,c1,c2,c3,c4,c5,c6,c7,c8,c9\n";
  measure("columns.csv", header, csv_line, csv);
  measure("vectors.csv", header, csv_line, vectors);
  measure("texts.jsonl", "", text_line, jsonl);
  measure("tokens.jsonl", "", token_line, jsonl);
  return 0;
}

}  // namespace
}  // namespace keel::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::cerr << "usage: bench_data_files FOLDER [MIB] [ROUNDS] [NAME]\n";
    return 2;
  }
  try {
    const long long mebibytes = argc > 2 ? std::atoll(argv[2]) : 256;
    return keel::bench::run(argv[1], static_cast<std::uint64_t>(mebibytes) << 20, argc > 3 ? std::atoi(argv[3]) : 5,
                            argc > 4 ? argv[4] : "");
  } catch (const std::exception& error) {
    std::cerr << "bench_data_files: " << error.what() << '\n';
    return 1;
  }
}
