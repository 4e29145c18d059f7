#include "keel/dist/checkpoint/save_job.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "keel/dist/checkpoint/rank_parts.h"
#include "keel/dist/checkpoint/visibility.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/remove_folder.h"

namespace keel {
namespace {

namespace fs = std::filesystem;
using State = SaveNote::State;

// How long a thread may take to end.
constexpr auto kEndsWithin = std::chrono::seconds(2), kCommitsWithin = std::chrono::seconds(10);

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

// What the thread and its rank have in common. It outlives a job whose thread hangs.
struct SaveJob::Shared {
  std::string path, folder;
  Json state;
  std::function<void()> on_commit;
  std::optional<AtomicFolder> made;  // of the first rank
  int rank = 0, ranks = 1;
  std::atomic<bool> cancelled = false;

  std::mutex mutex;
  std::condition_variable ended;
  State now = State::idle;
  bool is_running = false;
  std::string failure, warning;
  std::thread thread;

  // The first rank may have removed the folder while another one wrote there. Without its part nobody commits.
  ~Shared() {
    if (rank != 0 && now != State::written && !folder.empty()) remove_folder(folder);
  }

  void end(State then, std::string reason = {}) {
    const std::lock_guard lock(mutex);
    now = then;
    failure = std::move(reason);
    is_running = false;
    ended.notify_all();
  }

  void write(const std::vector<Section>& sections) {
    std::error_code code;
    if (!becomes_visible([&] { return cancelled || fs::is_directory(folder, code); }))
      throw Error(concat("'", folder,
                         "', which the first rank has made, does not appear; do all ranks see the same "
                         "folder?"),
                  ErrorKind::io);
    ManifestJoin join;
    for (const Section& section : sections) join.add(write_section(folder, section, cancelled));
    write_part(folder, rank, std::move(join).part());
  }

  void commit() {
    warning = commit_parts(*made, ranks, state);
    try {
      if (on_commit) on_commit();
    } catch (...) { warning += concat(warning.empty() ? "" : "; ", message_of(std::current_exception())); }
  }
};

SaveJob::SaveJob(const std::string& path, std::uint32_t number, Communicator& ranks, const Json& state,
                 std::function<void()> on_commit)
    : ranks_(ranks), number_(number), shared_(std::make_shared<Shared>()) {
  shared_->path = path;
  shared_->rank = ranks.rank();
  shared_->ranks = ranks.size();
  together(ranks, [&] {
    if (ranks.rank() != 0) return;
    shared_->state = Json::parse(state.dump());  // what cannot be written is an Error now
    shared_->on_commit = std::move(on_commit);
    shared_->made.emplace(path, IfExists::replace);
  });
  shared_->folder = broadcast_text(ranks, ranks.rank() == 0 ? shared_->made->temporary() : "");
}

SaveJob::~SaveJob() {
  shared_->cancelled = true;
  wait(note().state == State::committing ? kCommitsWithin : kEndsWithin);
  if (!shared_->thread.joinable()) return;
  const std::unique_lock lock(shared_->mutex);
  if (shared_->is_running) shared_->thread.detach();
  else shared_->thread.join();
}

const std::string& SaveJob::path() const { return shared_->path; }

bool SaveJob::is_broken() const { return ranks_.size() != shared_->ranks; }

void SaveJob::write(std::function<std::vector<Section>()> sections) {
  run(State::writing, State::written, [sections = std::move(sections)](Shared& shared) { shared.write(sections()); });
}

void SaveJob::fail(const std::string& reason) { shared_->end(State::failed, reason); }

void SaveJob::run(State during, State then, std::function<void(Shared&)> work) {
  if (shared_->thread.joinable()) shared_->thread.join();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->now = during;
    shared_->is_running = true;
  }
  try {
    shared_->thread = std::thread([shared = shared_, then, work = std::move(work)] {
      try {
        work(*shared);
        shared->end(then);
      } catch (...) {
        const State failed = shared->cancelled ? State::given_up : State::failed;
        shared->end(failed, message_of(std::current_exception()));
      }
    });
  } catch (const std::system_error& error) { fail(concat("no thread can be started: ", error.what())); }
}

void SaveJob::wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(shared_->mutex);
  shared_->ended.wait_for(lock, limit, [&] { return !shared_->is_running; });
}

SaveNote SaveJob::note() const {
  const std::lock_guard lock(shared_->mutex);
  return {number_, shared_->now};
}

std::optional<SaveResult> SaveJob::hear(std::span<const SaveNote> notes) {
  KEEL_CHECK(static_cast<int>(notes.size()) == shared_->ranks, "there are ", shared_->ranks, " ranks, but ",
             notes.size(), " notes");
  const auto says = [&](const SaveNote& note, State state) { return note.number == number_ && note.state == state; };
  const auto find = [&](State state) {
    return std::find_if(notes.begin(), notes.end(), [&](const SaveNote& note) { return says(note, state); });
  };
  if (const auto failed = find(State::failed); failed != notes.end()) {
    shared_->cancelled = true;
    if (find(State::writing) != notes.end()) return std::nullopt;  // their threads end soon
    const auto rank = static_cast<int>(failed - notes.begin());
    std::string reason;
    ranks_.attempt([&] {
      reason = is_broken() ? "the reason is not known, as ranks were lost"
                           : broadcast_text(ranks_, rank == shared_->rank ? shared_->failure : "", rank);
    });
    shared_->made.reset();
    return SaveResult{shared_->path, shared_->ranks == 1 ? reason : concat("rank ", rank, ": ", reason)};
  }
  if (says(notes.front(), State::committed)) return SaveResult{.path = shared_->path, .warning = shared_->warning};
  const bool all_have_written =
      std::all_of(notes.begin(), notes.end(), [&](const SaveNote& note) { return says(note, State::written); });
  if (!all_have_written || std::exchange(has_begun_commit_, true)) return std::nullopt;
  if (shared_->rank == 0) run(State::committing, State::committed, [](Shared& shared) { shared.commit(); });
  return std::nullopt;
}

// Ranks wait for each other no longer than their communicator allows, however long a disk takes.
SaveResult SaveJob::finish() {
  for (;;) {
    wait(ranks_.timeout() / 4);
    if (std::optional<SaveResult> result = hear(gather_values(ranks_, note()))) return *std::move(result);
  }
}

}  // namespace keel
