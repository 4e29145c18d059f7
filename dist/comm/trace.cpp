#include "keel/dist/comm/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include "keel/dist/comm/exchange.h"
#include "keel/runtime/stopwatch.h"

namespace keel {
namespace {

// "reduce_scatter h.3", or "reduce_scatter 12" of a subject without a name. An engine has one for each unit.
std::string_view write_name(const Collective& collective, const Trace& trace, std::span<char> buffer) {
  const std::string_view kind = name_of(collective.kind);
  char* end = std::copy(kind.begin(), kind.end(), buffer.data());
  if (collective.subject != 0) {
    *end++ = ' ';
    char* const last = buffer.data() + buffer.size();
    if (const std::string_view name = trace.name_of(collective.subject); name.empty())
      end = std::to_chars(end, last, collective.subject).ptr;
    else end += name.copy(end, static_cast<std::size_t>(last - end));
  }
  return {buffer.data(), end};
}

class TracedOperation : public Operation {
 public:
  // `sent`: bytes that the communicator counted before it returned.
  TracedOperation(Work work, Trace& trace, const Collective& collective, std::int64_t begin, std::int64_t sent)
      : work_(std::move(work)),
        trace_(trace),
        name_length_(write_name(collective, trace, name_).size()),
        begin_(begin),
        bytes_(collective.count() * static_cast<std::int64_t>(size_of(collective.dtype()))),
        sent_(sent) {}

  bool advance() override {
    if (!is_over_ && work_.has_finished()) finish();
    return is_over_;
  }
  void wait() override {
    if (advance()) return;
    const std::int64_t begin = Trace::now();
    work_.wait();
    trace_.add(TraceRow::waiting, name(), begin, bytes_);
    finish();
  }

 private:
  std::string_view name() const { return {name_.data(), name_length_}; }
  void finish() {
    is_over_ = true;
    trace_.add(TraceRow::communication, name(), begin_, bytes_, work_.sent().value_or(sent_));
  }

  Work work_;
  Trace& trace_;
  std::array<char, sizeof TraceSpan::text> name_;
  std::size_t name_length_;
  std::int64_t begin_, bytes_, sent_;
  bool is_over_ = false;
};

// A group that was split off, with the communicator that it records.
class TracedGroup : public TracedCommunicator {
 public:
  TracedGroup(std::unique_ptr<Communicator> group, Trace& trace)
      : TracedCommunicator(*group, trace), group_(std::move(group)) {}

 private:
  std::unique_ptr<Communicator> group_;
};

// The length of what the intervals cover together.
double covered_ms(std::vector<std::pair<std::int64_t, std::int64_t>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0, reached = INT64_MIN;
  for (const auto& [begin, end] : intervals) {
    const std::int64_t from = std::max(begin, reached);
    if (end <= from) continue;
    sum += end - from;
    reached = end;
  }
  return static_cast<double>(sum) / 1000;
}

void append_quoted(std::string& text, std::string_view words) {
  constexpr char kHex[] = "0123456789abcdef";
  text += '"';
  for (const char c : words) {
    if (c == '"' || c == '\\') (text += '\\') += c;
    else if (const auto code = static_cast<unsigned char>(c); code < 0x20 || code > 0x7e)
      ((text += "\\u00") += kHex[code / 16]) += kHex[code % 16];  // as if it were Latin-1
    else text += c;
  }
  text += '"';
}

// {"name":..., "ph":"M"}: what Chrome calls a process or thread.
void append_label(std::string& text, std::string_view kind, int rank, int thread, std::string_view label) {
  text += concat("{\"name\":\"", kind, "\",\"ph\":\"M\",\"pid\":", rank, ",\"tid\":", thread, ",\"args\":{\"name\":");
  append_quoted(text, label);
  text += "}},\n";
}

// Collectives that are under way together cannot share a line: viewers expect what overlaps to be nested. Which of its
// row's lines each span gets, the first that is free.
std::vector<int> lines_of(std::span<const TraceSpan> spans) {
  std::vector<std::size_t> by_begin(spans.size());
  std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
  std::stable_sort(by_begin.begin(), by_begin.end(),
                   [&](std::size_t a, std::size_t b) { return spans[a].begin < spans[b].begin; });
  std::map<int, std::vector<std::int64_t>> busy_until;  // of each rank's lines
  std::vector<int> lines(spans.size(), 0);
  for (const std::size_t i : by_begin) {
    if (spans[i].row != TraceRow::communication) continue;
    std::vector<std::int64_t>& busy = busy_until[spans[i].rank];
    const auto free = std::find_if(busy.begin(), busy.end(), [&](std::int64_t end) { return end <= spans[i].begin; });
    lines[i] = static_cast<int>(free - busy.begin());
    if (free == busy.end()) busy.push_back(spans[i].end);
    else *free = spans[i].end;
  }
  return lines;
}

// Chrome's thread: one for each row, and behind them the further lines of communication.
int thread_of(TraceRow row, int line) { return line == 0 ? static_cast<int>(row) : kTraceRows - 1 + line; }

// What all ranks have, on rank 0; nothing elsewhere. `place` is told whose each is.
template <class Record, class Place>
std::vector<Record> gather(std::span<const Record> own, Communicator& communicator, const Place& place) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const std::vector<std::int64_t> counts = gather_values(communicator, std::ssize(own));
  const Context host = Context::create({.threads = 1});
  const auto room_for = [&](std::int64_t count) {
    return empty(host, {count * static_cast<std::int64_t>(sizeof(Record))}, DType::u8);
  };
  if (communicator.rank() != 0) {
    if (own.empty()) return {};
    const Tensor bytes = room_for(std::ssize(own));
    std::memcpy(bytes.raw(), own.data(), bytes.bytes());
    communicator.send(bytes, 0).wait();
    return {};
  }
  std::vector<Record> all(own.begin(), own.end());
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    if (counts[rank] == 0) continue;
    const Tensor bytes = room_for(counts[rank]);
    communicator.receive(bytes, static_cast<int>(rank)).wait();
    const std::size_t first = all.size();
    all.resize(first + static_cast<std::size_t>(counts[rank]));
    std::memcpy(static_cast<void*>(&all[first]), bytes.raw(), bytes.bytes());
    for (std::size_t i = first; i < all.size(); ++i) place(rank, all[i]);
  }
  return all;
}

}  // namespace

std::string_view name_of(TraceRow row) {
  constexpr std::string_view kNames[kTraceRows] = {"compute", "communication", "waiting"};
  return kNames[static_cast<int>(row)];
}

TraceSpan make_span(int rank, TraceRow row, std::string_view name, std::int64_t begin, std::int64_t end,
                    std::int64_t bytes, std::int64_t sent) {
  TraceSpan span{.begin = begin, .end = end, .bytes = bytes, .sent = sent, .rank = rank, .row = row};
  std::copy_n(name.begin(), std::min(name.size(), sizeof span.text - 1), span.text);
  return span;
}

Trace::Trace(int rank, std::size_t capacity) : rank_(rank) { spans_.reserve(capacity); }

std::int64_t Trace::now() { return microseconds_now(); }

std::string_view Trace::name_of(int subject) const {
  const auto found = subjects_.find(subject);
  return found == subjects_.end() ? std::string_view() : found->second;
}

void Trace::add(TraceRow row, std::string_view name, std::int64_t begin, std::int64_t bytes, std::int64_t sent) {
  const std::int64_t end = now();
  if (row == TraceRow::waiting) waited_ += end - begin;
  if (spans_.size() == spans_.capacity()) ++dropped_;
  else spans_.push_back(make_span(rank_, row, name, begin, end, bytes, sent));
}

void Trace::note(const std::shared_ptr<Operation>& collective) {
  if (under_way_.size() == under_way_.capacity())
    std::erase_if(under_way_, [](const std::weak_ptr<Operation>& each) { return each.expired(); });
  under_way_.push_back(collective);
}

void Trace::settle() {
  for (const std::weak_ptr<Operation>& each : std::exchange(under_way_, {}))
    if (const std::shared_ptr<Operation> collective = each.lock()) collective->wait();
}

void Trace::clear() {
  spans_.clear();
  dropped_ = waited_ = 0;
}

Work TracedCommunicator::begin(const Collective& collective) {
  const std::int64_t begin = Trace::now(), before = inner_.traffic().sent();
  Work work = inner_.begin(collective);
  const std::int64_t sent = inner_.traffic().sent() - before;
  auto operation = std::make_shared<TracedOperation>(std::move(work), trace_, collective, begin, sent);
  trace_.note(operation);
  return Work(std::move(operation));
}

std::unique_ptr<Communicator> TracedCommunicator::split(int color, int key) {
  return std::make_unique<TracedGroup>(inner_.split(color, key), trace_);
}

std::unique_ptr<Communicator> TracedCommunicator::split_apart(int color, int key) {
  return std::make_unique<TracedGroup>(inner_.split_apart(color, key), trace_);
}

Recording gather_recording(const Trace& trace, std::span<const MemoryChange> memory, Communicator& communicator) {
  communicator.barrier();
  const std::vector<std::int64_t> clocks = gather_values(communicator, Trace::now());
  std::vector<std::int64_t> ahead(clocks.size(), 0);  // of rank 0's clock
  for (std::size_t rank = 0; rank < clocks.size(); ++rank)
    if (communicator.nodes()[rank] != communicator.nodes()[0]) ahead[rank] = clocks[rank] - clocks[0];
  return {.spans = gather<TraceSpan>(trace.spans(), communicator,
                                     [&](std::size_t rank, TraceSpan& span) {
                                       span.begin -= ahead[rank];
                                       span.end -= ahead[rank];
                                     }),
          .memory = gather<MemoryChange>(memory, communicator,
                                         [&](std::size_t rank, MemoryChange& change) { change.time -= ahead[rank]; })};
}

std::vector<TraceSpan> gather_trace(const Trace& trace, Communicator& communicator) {
  return gather_recording(trace, {}, communicator).spans;
}

std::int64_t start_of(std::span<const TraceSpan> spans) {
  std::int64_t start = INT64_MAX;
  for (const TraceSpan& span : spans) start = std::min(start, span.begin);
  return start;
}

std::string chrome_trace(std::span<const TraceSpan> spans) {
  const std::vector<int> lines = lines_of(spans);
  const std::int64_t start = start_of(spans);
  std::map<int, int> last_line;  // of each rank's communication
  for (std::size_t i = 0; i < spans.size(); ++i) {
    int& last = last_line[spans[i].rank];
    last = std::max(last, lines[i]);
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const auto& [rank, last] : last_line) {
    append_label(text, "process_name", rank, 0, concat("rank ", rank));
    for (int row = 0; row < kTraceRows; ++row)
      append_label(text, "thread_name", rank, row, name_of(static_cast<TraceRow>(row)));
    for (int line = 1; line <= last; ++line)
      append_label(text, "thread_name", rank, thread_of(TraceRow::communication, line),
                   concat(name_of(TraceRow::communication), ' ', line + 1));
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TraceSpan& span = spans[i];
    text += "{\"name\":";
    append_quoted(text, span.name());
    text += concat(",\"ph\":\"X\",\"pid\":", span.rank, ",\"tid\":", thread_of(span.row, lines[i]),
                   ",\"ts\":", span.begin - start, ",\"dur\":", span.end - span.begin);
    if (span.bytes != 0) text += concat(",\"args\":{\"bytes\":", span.bytes, ",\"sent\":", span.sent, '}');
    text += "},\n";
  }
  if (text.ends_with(",\n")) text.erase(text.size() - 2, 1);
  return text += "]}\n";
}

Overlap measure_overlap(std::span<const TraceSpan> spans, int rank, std::int64_t from, std::int64_t to) {
  std::vector<std::pair<std::int64_t, std::int64_t>> under_way, waits;
  for (const TraceSpan& span : spans) {
    const std::int64_t begin = std::max(span.begin, from), end = std::min(span.end, to);
    if (span.rank != rank || span.row == TraceRow::compute) continue;
    (span.row == TraceRow::communication ? under_way : waits).emplace_back(begin, end);
  }
  return {.communication_ms = covered_ms(std::move(under_way)), .exposed_ms = covered_ms(std::move(waits))};
}

}  // namespace keel
