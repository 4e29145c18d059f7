#pragma once
// Files: read piece by piece or mapped into memory, and writes that happen as a whole or not at all.
//
// Every failure is an Error of kind io that names the path and the system's reason.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// Who sees a write to a mapping: nobody may write, or the writer alone (the file never changes).
enum class Mapping : unsigned char { read_only, copy_on_write };

// The path with the home folder ($HOME) for a leading `~`, alone or before a slash, as a shell would have it. Other
// paths stay as they are. An Error of kind input where HOME is not set.
std::string with_home_folder(std::string_view path);

// A whole file as memory, read by the system when touched. Move-only; a moved-from mapping is empty.
// The file must not shrink while it is mapped.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(std::string path, Mapping mapping = Mapping::read_only);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {memory_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(memory_), size_}; }
  // Writable memory of a copy_on_write mapping; an Error for a read_only one.
  std::byte* writable() const;

 private:
  std::string path_;
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  Mapping mapping_ = Mapping::read_only;
};

// A file that is read piece by piece, by any number of threads. Bytes that are no longer there are an Error, where a
// mapping would end the process by SIGBUS.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  // Fills `bytes` with those from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

// A file that replaces its target in one step. It is written beside the target (same folder, a name
// of its own); commit() makes it durable and renames it. Until then, and after any failure, the
// old file is untouched; without commit the new one disappears.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Writes again what begins at `offset` and has been written before (a header that needs a count).
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  // Flushes file and folder to the disk around the rename. Call once, last.
  void commit();

 private:
  [[noreturn]] void fail(int code) const;
  void flush();

  std::string path_;
  std::string temporary_;
  std::string buffer_;  // small writes are gathered here
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

// A name beside `path` for what is to replace it: hidden, and of no other writer.
std::string temporary_beside(const std::string& path);
// Removes the files of such names that programs which were killed left in a folder, where nobody writes now.
void remove_unfinished_files(const std::string& folder);

enum class IfExists : unsigned char { refuse, replace };

// A folder that appears under its name in one step: it is filled as NAME.<16 digits>.tmp, a name that no other has ever
// had, and commit() makes every file durable and renames it. Without commit it disappears. One writer at a time; what
// writers before it left behind is removed.
class AtomicFolder {
 public:
  // Behind the folder's name: of what it replaces.
  static constexpr const char* kReplaced = ".old";
  // The folder that such an unfinished one was to become; empty for another name.
  static std::string target_of(const std::string& unfinished);

  explicit AtomicFolder(std::string path, IfExists if_exists = IfExists::refuse);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::string& path() const { return path_; }
  // Where the files are written until commit().
  const std::string& temporary() const { return temporary_; }
  // A folder that is replaced is exchanged with the new one in one step where the file system can;
  // elsewhere it is first set aside as NAME.old, and removed last. `flushed`: every file in it is on the disk already.
  void commit(bool flushed = false);

 private:
  std::string path_;
  std::string temporary_;
  IfExists if_exists_;
  bool committed_ = false;
};

// All of a regular file. Anything else is refused, and not waited for.
std::string read_text_file(const std::string& path);
// What a person names: also up to 64 MiB of a pipe.
std::string read_text(const std::string& path);
// Through AtomicFile.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace keel
