#pragma once
// A file that grows by whole pieces: neither its readers nor a full disk see half of one.

#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

class AppendFile {
 public:
  // Opens the file at its end, and makes it where there is none. Every failure is an Error of kind io that names the
  // path and the system's reason.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  // Hands the piece to the system by one call before it returns. Of a piece that the disk takes a part of, nothing
  // stays.
  void write(std::string_view piece);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace keel
