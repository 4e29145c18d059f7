#include "report.h"

#include <exception>
#include <iostream>
#include <new>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel::cli {
namespace {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::numeric: return kNotFinite;
    case ErrorKind::internal: return kInternalError;
    default: return kBadInput;
  }
}

}  // namespace

int report(std::string_view message, int code, std::string_view who) {
  std::string lines;  // written at once: ranks share one terminal
  while (true) {
    const std::size_t end = message.find('\n');
    lines += concat("keel: error: ", who, printable(message.substr(0, end)), '\n');
    if (end == std::string_view::npos) break;
    message.remove_prefix(end + 1);
  }
  std::cerr << lines << std::flush;
  return code;
}

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {exit_code(error.kind()), error.what(), error.kind() == ErrorKind::peer};
  } catch (const std::bad_alloc&) {
    return {kBadInput, "out of memory; a smaller batch.micro needs less", false};
  } catch (const std::exception& error) {
    return {kInternalError, concat(error.what(), " (unexpected; please report this)"), false};
  }
}

}  // namespace keel::cli
