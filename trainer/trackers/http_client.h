#pragma once
// Requests to a server over HTTP or HTTPS, by libcurl.
//
// The library is loaded when the first client is made, and not linked: of all programs only those that feed a server
// need it and the two dozen libraries that it brings.

#include <memory>
#include <string>

#include "keel/runtime/error.h"

namespace keel {

// The server did not answer, or not as it should (5xx): another try may succeed.
class ServerAway : public Error {
 public:
  explicit ServerAway(const std::string& message) : Error(message, ErrorKind::io) {}
};

struct HttpReply {
  long status = 0;
  std::string body = {};
};

class HttpClient {
 public:
  // Paths of requests are appended to `base`, "http://host:5000". An Error of kind unsupported where this build or
  // machine has no libcurl.
  explicit HttpClient(std::string base);
  ~HttpClient();

  // By a user's name and password, or by a token: what is empty is left out.
  void identify(const std::string& user, const std::string& password, const std::string& token);

  // Each waits seconds at most, and answers with whatever the server says below 500. ServerAway for everything else.
  HttpReply get(const std::string& path);
  HttpReply post(const std::string& path, const std::string& json);
  HttpReply put_file(const std::string& path, const std::string& file);
  // A text as part of a path's query.
  static std::string escaped(const std::string& text);

 private:
  class Transfer;
  std::unique_ptr<Transfer> transfer_;
};

}  // namespace keel
