#include "keel/data/line_index.h"

#include <algorithm>
#include <cstring>

#include "keel/data/gzip.h"
#include "keel/data/kept_index.h"
#include "keel/data/line_scan.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::uint64_t kLeastGroup = 4096, kMostGroups = std::uint64_t{1} << 20;
constexpr std::uint64_t kReadAtOnce = 64 << 10;

// Where the line that begins at `at` ends: at its line feed, or with the text.
std::size_t line_end(std::string_view text, std::size_t at, bool with_quotes) {
  for (bool inside = false;;) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    if (!with_quotes) return end;
    for (std::size_t quote = text.substr(0, end).find('"', at); quote != std::string_view::npos;
         quote = text.substr(0, end).find('"', quote + 1))
      inside = !inside;
    if (!inside || end == text.size()) return end;
    at = end + 1;
  }
}

}  // namespace

LineIndex::LineIndex(std::string path, LineIndexOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      file_(is_gzip(path_)
                ? decompress_once(path_, {.cache_folder = options_.cache_folder, .progress = options_.progress})
                : path_),
      group_bytes_(kLeastGroup) {
  while (file_.size() / group_bytes_ >= kMostGroups) group_bytes_ *= 2;
  KeptIndex kept(*this);
  was_kept_ = kept.load();
  if (was_kept_) return;
  LineScan(*this).run();
  kept.save();
}

std::size_t LineIndex::group_of(std::int64_t number) const {
  // The last group before which no more lines begin: those without lines have the number of the next one.
  const auto behind = std::ranges::upper_bound(lines_before_, static_cast<std::uint64_t>(number));
  return static_cast<std::size_t>(behind - lines_before_.begin()) - 1;
}

std::uint64_t LineIndex::begin_of(std::size_t group) const {
  const auto number = static_cast<std::int64_t>(lines_before_[group]);
  if (number == lines_) return file_.size();
  const std::size_t with_line = group_of(number);
  return with_line * group_bytes_ + first_line_[with_line];
}

void LineIndex::read(std::span<const std::int64_t> numbers, FunctionRef<void(const Line& line)> f) const {
  std::vector<char> buffer;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    KEEL_CHECK(numbers[i] >= 0 && numbers[end - 1] < lines_, "lines ", numbers[i], " to ", numbers[end - 1],
               " are outside the ", lines_, " lines of '", path(), "'");
    read_run(numbers[i], numbers[end - 1] + 1, buffer, f);
    i = end;
  }
}

void LineIndex::read_run(std::int64_t first, std::int64_t end, std::vector<char>& buffer,
                         FunctionRef<void(const Line& line)> f) const {
  const std::size_t last_group = group_of(end - 1);
  for (std::size_t group = group_of(first), next = group; group <= last_group; group = next) {
    const std::uint64_t from = begin_of(group);
    std::uint64_t to = from;
    while (next <= last_group && to - from < kReadAtOnce) to = begin_of(++next);
    buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(to - from) + kReadableBehindLine));
    const std::span<char> bytes = std::span(buffer).first(static_cast<std::size_t>(to - from));
    file_.read(from, std::as_writable_bytes(bytes));
    const std::string_view text(bytes.data(), bytes.size());

    auto number = static_cast<std::int64_t>(lines_before_[group]);
    const auto behind = static_cast<std::int64_t>(lines_before_[next]);
    for (std::size_t at = 0; at < text.size() && number < end; ++number) {
      const std::size_t line_feed = line_end(text, at, options_.separator != 0);
      KEEL_CHECK(number < behind, "'", path(), "' has changed since it was opened: it has more lines");
      std::string_view line = text.substr(at, line_feed - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (number >= first) f({number, from + at, line});
      for (at = line_feed + 1; at < text.size() && is_empty_line(text.substr(at));)
        at = std::min(text.find('\n', at), text.size() - 1) + 1;
    }
    KEEL_CHECK(number >= std::min(end, behind), "'", path(), "' has changed since it was opened: it has fewer lines");
  }
}

std::int64_t LineIndex::line_at(std::uint64_t offset) const {
  std::vector<char> buffer(kReadAtOnce);
  std::int64_t line = 1;
  for (std::uint64_t done = 0; done < offset;) {
    const auto here = std::span(buffer).first(static_cast<std::size_t>(std::min(kReadAtOnce, offset - done)));
    file_.read(done, std::as_writable_bytes(here));
    line += std::ranges::count(here, '\n');
    done += here.size();
  }
  return line;
}

std::optional<std::int64_t> LineIndex::empty_line() const {
  return empty_at_ ? std::optional(line_at(*empty_at_)) : std::nullopt;
}

void check_empty_lines(const LineIndex& index, EmptyLines rule) {
  if (rule == EmptyLines::left_out) return;
  if (const auto line = index.empty_line())
    throw Error(concat("'", index.path(), "', line ", *line,
                       ": the line is empty, and others stand behind it; write what it is to say, or take it out"));
}

std::string line_of(const LineIndex& index, std::int64_t number) {
  std::string place;
  index.read(std::span(&number, 1), [&](const Line& line) { place = concat("line ", index.line_at(line.offset)); });
  return place;
}

}  // namespace keel
