#include "keel/data/tokenize_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/data/document_pieces.h"
#include "keel/data/file_list.h"
#include "keel/data/token_header.h"
#include "keel/data/tokens.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/file_lock.h"
#include "keel/runtime/json.h"
#include "keel/runtime/parallel.h"
#include "keel/runtime/partial_file.h"
#include "keel/runtime/xxh3.h"

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStateEnding = ".json", kLockEnding = ".lock";  // behind OUT.partial
constexpr std::uint64_t kBatchBytes = std::uint64_t{8} << 20;

// How far a job has come, as OUT.partial.json has it.
struct TokenizeState {
  std::int64_t file = 0;  // the one that comes next, of the job's list
  std::uint64_t place = 0;
  std::uint64_t bytes = 0;  // of the files before it
  std::int64_t shards = 0, shard_tokens = 0;
  std::int64_t tokens = 0, documents = 0;
};
using Counter = std::pair<std::string_view, std::int64_t>;

std::array<Counter, 7> counters_of(const TokenizeState& state) {
  return {{{"file", state.file},
           {"place", static_cast<std::int64_t>(state.place)},
           {"bytes", static_cast<std::int64_t>(state.bytes)},
           {"shards", state.shards},
           {"shard_tokens", state.shard_tokens},
           {"tokens", state.tokens},
           {"documents", state.documents}}};
}

// All that the tokens depend on. Files count by name, size and time of writing.
std::string job_of(const Tokenizer& tokenizer, const TokenizeOptions& options, const std::vector<std::string>& files) {
  std::string job = concat(tokenizer.to_json(), '\n', options.shard_tokens, ' ', static_cast<int>(options.documents),
                           ' ', options.end_of_document ? std::int64_t{*options.end_of_document} : -1);
  for (const std::string& file : files)
    job += concat('\n', file, ' ', fs::file_size(file), ' ', fs::last_write_time(file).time_since_epoch().count());
  return hexadecimal(xxh3(std::as_bytes(std::span(job))));
}

std::vector<std::string> files_of(const TokenizeOptions& options) {
  KEEL_CHECK(!options.files.empty(), "there is no text; name one");
  std::vector<std::string> files;
  for (const std::string& name : options.files)
    for (const std::string& file : files_at(name)) {
      (void)InputFile(file);  // says why it cannot be read
      files.push_back(file);
    }
  return files;
}

// Where tokens go: a partial file a shard, and beside it how far the job has come.
class TokenizeJob {
 public:
  TokenizeJob(const Context& context, const Tokenizer& tokenizer, const TokenizeOptions& options)
      : context_(context),
        tokenizer_(tokenizer),
        options_(options),
        files_(files_of(options)),
        state_path_(concat(PartialFile::partial_of(options.out), kStateEnding)),
        lock_(concat(PartialFile::partial_of(options.out), kLockEnding)),
        job_(job_of(tokenizer, options, files_)) {
    KEEL_CHECK(options.shard_tokens >= 0, "a shard has a positive number of tokens, not ", options.shard_tokens);
    KEEL_CHECK(options.save_every > 0, "a run saves how far it is every so many bytes, at least 1");
    KEEL_CHECK(lock_.state() != FileLock::State::taken, "'", options.out, "' is being written by ", lock_.holder());
    (void)token_header(options.out, tokenizer.vocabulary_size(), std::string(tokenizer.name()), 0,
                       options.end_of_document);
    for (const std::string& file : files_) all_bytes_ += fs::file_size(file);
    result_.bytes = all_bytes_;
    go_on();
  }

  TokenizedFiles run() {
    try {
      for (; state_.file < std::ssize(files_); ++state_.file, state_.place = 0) {
        encode(files_[state_.file]);
        state_.bytes += fs::file_size(files_[state_.file]);
      }
    } catch (const Error& error) {
      if (!is_saved_) discard();  // nothing was done that is worth going on with
      throw;
    }
    if (state_.shard_tokens > 0 || state_.shards == 0) close_shard();
    else shard_->discard();  // an earlier run had done all but the last step
    std::error_code ignored;
    fs::remove(state_path_, ignored);
    for (std::int64_t i = 0; i < state_.shards; ++i) result_.paths.push_back(path_of(i));
    result_.tokens = state_.tokens;
    result_.documents = state_.documents;
    return result_;
  }

 private:
  std::string path_of(std::int64_t shard) const {
    if (options_.shard_tokens == 0) return options_.out;
    const fs::path out(options_.out);
    const std::string name =
        concat(out.stem().string(), '-', std::setw(5), std::setfill('0'), shard) + out.extension().string();
    return (out.parent_path() / name).string();
  }

  // Takes over what an earlier run of the same job left.
  void go_on() {
    if (fs::exists(state_path_)) {
      const Json saved = Json::parse_or_null(read_text_file(state_path_));
      const Json* const job = saved.find("job");
      const bool is_same = job != nullptr && job->is_string() && job->string() == job_ && read_state(saved);
      if (is_same) {
        result_.went_on_at = state_.bytes;
        goes_on_ = is_saved_ = true;
      } else {
        state_ = {};
        result_.note = concat("what '", state_path_,
                              "' tells of was another job: other texts, tokenizer or options; it begins anew");
      }
    }
    if (!is_saved_ && options_.shard_tokens > 0)
      KEEL_CHECK(!fs::exists(path_of(0)), "'", path_of(0),
                 "' is there already; remove the shards, or choose another name");
    open_shard();
  }

  bool read_state(const Json& saved) {
    std::array<std::int64_t, 7> values = {};
    const auto names = counters_of(state_);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Json* const value = saved.find(names[i].first);
      if (value == nullptr || !value->is_integer() || value->integer() < 0) return false;
      values[i] = value->integer();
    }
    state_ = {values[0],
              static_cast<std::uint64_t>(values[1]),
              static_cast<std::uint64_t>(values[2]),
              values[3],
              values[4],
              values[5],
              values[6]};
    if (state_.file >= std::ssize(files_) && state_.shard_tokens > 0) return false;
    if (state_.shard_tokens == 0) return state_.shards == 0 || has_shard(state_.shards - 1);
    const std::string partial = PartialFile::partial_of(path_of(state_.shards));
    return fs::exists(partial) && fs::file_size(partial) >= shard_bytes();
  }

  // Whether the shard is there, whole, if need be after the last step of its writing.
  bool has_shard(std::int64_t shard) const {
    if (fs::exists(PartialFile::partial_of(path_of(shard)))) PartialFile(path_of(shard)).commit();
    return fs::exists(path_of(shard));
  }

  std::uint64_t shard_bytes() const {
    return sizeof(TokenHeader) +
           static_cast<std::uint64_t>(state_.shard_tokens * token_bytes(tokenizer_.vocabulary_size()));
  }

  void open_shard() {
    shard_ = std::make_unique<PartialFile>(path_of(state_.shards));
    if (shard_->size() < sizeof(TokenHeader) || state_.shard_tokens == 0) {
      shard_->cut(0);
      shard_->write(std::vector<std::byte>(sizeof(TokenHeader)));
    }
    shard_->cut(shard_bytes());
  }

  // What is told first is that the shard is whole: go_on() ends what a process that was killed here had begun.
  void close_shard() {
    const TokenHeader header =
        token_header(shard_->path(), tokenizer_.vocabulary_size(), std::string(tokenizer_.name()), state_.shard_tokens,
                     options_.end_of_document);
    shard_->rewrite(0, std::as_bytes(std::span(&header, 1)));
    ++state_.shards;
    state_.shard_tokens = 0;
    save();
    shard_->commit();
  }

  void discard() {
    shard_->discard();
    std::error_code ignored;
    fs::remove(state_path_, ignored);
  }

  void save() {
    shard_->flush();
    Json saved{{"format", "keel tokenize"}, {"job", job_}};
    for (const auto& [name, value] : counters_of(state_)) saved[name] = value;
    write_text_file(state_path_, saved.dump(1) + "\n");
    is_saved_ = true;
  }

  // Bytes of the file under way, of which rows are taken to be equally long.
  std::uint64_t progress_in_file() const {
    if (state_.file >= std::ssize(files_) || place_end_ == 0) return 0;
    const auto bytes = static_cast<double>(fs::file_size(files_[state_.file]));
    return static_cast<std::uint64_t>(bytes * static_cast<double>(state_.place) / static_cast<double>(place_end_));
  }

  void encode(const std::string& path) {
    try {
      DocumentPieces pieces(path, options_.documents, tokenizer_, state_.place);
      place_end_ = pieces.end();
      if (std::exchange(goes_on_, false)) result_.went_on_at += progress_in_file();
      std::uint64_t since_save = 0;
      for (;;) {
        const std::vector<DocumentPiece> batch = pieces.next(std::min(kBatchBytes, options_.save_every));
        if (batch.empty()) return;
        append(batch);
        for (const DocumentPiece& piece : batch) since_save += piece.text.size();
        if (since_save >= options_.save_every) {
          save();
          since_save = 0;
        }
        if (options_.progress) options_.progress(std::min(state_.bytes + progress_in_file(), all_bytes_), all_bytes_);
      }
    } catch (const Error& error) {
      const std::string_view text = error.what();
      if (text.find(path) != std::string_view::npos) throw;
      throw Error(concat("'", path, "': ", text), error.kind());
    }
  }

  void append(const std::vector<DocumentPiece>& batch) {
    std::vector<std::vector<std::uint32_t>> ids(batch.size());
    const std::int64_t grain = std::max<std::int64_t>(1, std::ssize(batch) / 64);
    parallel_for(context_, std::ssize(batch), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        ids[i] = tokenizer_.encode(batch[i].text);
        if (batch[i].ends_document && options_.end_of_document) ids[i].push_back(*options_.end_of_document);
      }
    });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (options_.shard_tokens > 0 && state_.shard_tokens >= options_.shard_tokens) {
        close_shard();
        open_shard();
      }
      shard_->write(token_bytes_of(options_.out, ids[i], tokenizer_.vocabulary_size(), state_.tokens));
      state_.shard_tokens += std::ssize(ids[i]);
      state_.tokens += std::ssize(ids[i]);
      state_.documents += batch[i].ends_document ? 1 : 0;
      state_.place = batch[i].next;
    }
  }

  const Context& context_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::vector<std::string> files_;
  std::string state_path_;
  FileLock lock_;
  std::string job_;
  std::uint64_t all_bytes_ = 0;
  std::uint64_t place_end_ = 0;  // of the file under way
  TokenizeState state_;
  bool is_saved_ = false;  // OUT.partial.json is there
  bool goes_on_ = false;   // in the midst of a file that an earlier run had begun
  std::unique_ptr<PartialFile> shard_;
  TokenizedFiles result_;
};

}  // namespace

TokenizedFiles tokenize_files(const Context& context, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  const fs::path folder = fs::path(options.out).parent_path();
  std::error_code ignored;
  KEEL_CHECK(folder.empty() || fs::is_directory(folder, ignored), "'", options.out,
             "' cannot be written: there is no folder '", folder.string(), "'");
  return TokenizeJob(context, tokenizer, options).run();
}

bool is_unended_tokenizing(std::string_view path) {
  for (const std::string_view ending : {kStateEnding, kLockEnding})
    if (path.ends_with(ending)) return PartialFile::is_partial(path.substr(0, path.size() - ending.size()));
  return PartialFile::is_partial(path);
}

}  // namespace keel
