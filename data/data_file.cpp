#include "keel/data/data_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "keel/data/columns.h"
#include "keel/data/csv.h"
#include "keel/data/file_dataset.h"
#include "keel/data/file_list.h"
#include "keel/data/foreign_tokens.h"
#include "keel/data/jsonl.h"
#include "keel/data/lines.h"
#include "keel/data/token_file.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"

namespace keel {
namespace {

struct Ending {
  std::string_view ending;
  DataKind kind;
};
constexpr Ending kEndings[] = {{".csv", DataKind::csv},
                               {".tsv", DataKind::csv},
                               {".tab", DataKind::csv},
                               {".jsonl", DataKind::jsonl},
                               {".ndjson", DataKind::jsonl}};

DataKind kind_of_folder(const std::string& path) {
  try {
    if (kind_of_file(token_files_at(path).front()) == DataKind::tokens) return DataKind::tokens;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::io) throw;  // else there is no file, which its reader says
  }
  return DataKind::files;
}

}  // namespace

std::string_view name_of(DataKind kind) {
  switch (kind) {
    case DataKind::tokens: return "a file of tokens";
    case DataKind::columns: return "a columnar file";
    case DataKind::csv: return "a table";
    case DataKind::jsonl: return "JSON lines";
    case DataKind::files: return "a folder of files";
    default: return "a text";
  }
}

DataKind kind_of_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return kind_of_folder(path);
  if (!std::filesystem::exists(path, ignored))
    if (const std::string first = files_at(path).front(); first != path) return kind_of_file(first);
  const InputFile file(path);
  std::array<char, 8> mark = {};
  file.read(0, std::as_writable_bytes(std::span(mark).first(std::min<std::size_t>(mark.size(), file.size()))));
  const std::string_view begin(mark.data(), mark.size());
  if (begin == kColumnsMagic) return DataKind::columns;
  if (begin == kTokenFileMagic || foreign_tokens(file)) return DataKind::tokens;
  std::string_view name = path;
  if (name.ends_with(".gz")) name.remove_suffix(3);
  for (const auto& [ending, kind] : kEndings)
    if (name.ends_with(ending)) return kind;
  return DataKind::text;
}

DatasetPtr open_data(const std::string& name, const LineFileOptions& options) {
  const DataKind kind = kind_of_file(name);
  const std::string path = kind == DataKind::tokens ? name : one_file_at(name);
  switch (kind) {
    case DataKind::columns: return open_columns(path);
    case DataKind::csv: return open_csv(path, {.lines = options});
    case DataKind::jsonl: return open_jsonl(path, options);
    case DataKind::files: return open_files(files_at(path), {.progress = options.progress});
    case DataKind::text: return open_lines(path, options);
    case DataKind::tokens: break;
  }
  throw Error(
      concat("'", path,
             "' holds tokens, which have no examples of their own; tasks that learn from tokens read them where "
             "data.type=tokens, or as files of data.mixture"));
}

}  // namespace keel
