#include "keel/trainer/trackers/http_client.h"

#include <fmt/format.h>

#include <utility>

#ifdef KEEL_HAVE_CURL
#include <curl/curl.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#endif

namespace keel {

std::string HttpClient::escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (is_plain) safe += c;
    else safe += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return safe;
}

#ifndef KEEL_HAVE_CURL

class HttpClient::Transfer {};

HttpClient::HttpClient(std::string base) {
  throw Error(concat("'", base, "' cannot be reached: this build has no libcurl; `keel env` says why"),
              ErrorKind::unsupported);
}
HttpClient::~HttpClient() = default;
void HttpClient::identify(const std::string&, const std::string&, const std::string&) {}
HttpReply HttpClient::get(const std::string&) { return {}; }
HttpReply HttpClient::post(const std::string&, const std::string&) { return {}; }
HttpReply HttpClient::put_file(const std::string&, const std::string&) { return {}; }

#else

namespace {

constexpr long kSecondsToConnect = 3, kSecondsForAll = 30;

// The functions of libcurl that keel calls.
struct Curl {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) init;
  decltype(&::curl_easy_cleanup) cleanup;
  decltype(&::curl_easy_reset) reset;
  decltype(&::curl_easy_setopt) set;
  decltype(&::curl_easy_perform) perform;
  decltype(&::curl_easy_getinfo) info;
  decltype(&::curl_easy_strerror) error;
  decltype(&::curl_slist_append) append;
  decltype(&::curl_slist_free_all) free_list;
};

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error(concat("libcurl has no ", name), ErrorKind::unsupported);
}

const Curl& curl() {
  static const Curl functions = [] {
    void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw Error(concat("HTTP needs libcurl, which this machine does not load: ", ::dlerror()),
                  ErrorKind::unsupported);
    Curl found{};
    look_up(library, "curl_global_init", found.global_init);
    look_up(library, "curl_easy_init", found.init);
    look_up(library, "curl_easy_cleanup", found.cleanup);
    look_up(library, "curl_easy_reset", found.reset);
    look_up(library, "curl_easy_setopt", found.set);
    look_up(library, "curl_easy_perform", found.perform);
    look_up(library, "curl_easy_getinfo", found.info);
    look_up(library, "curl_easy_strerror", found.error);
    look_up(library, "curl_slist_append", found.append);
    look_up(library, "curl_slist_free_all", found.free_list);
    found.global_init(CURL_GLOBAL_DEFAULT);
    return found;
  }();
  return functions;
}

std::size_t take_body(char* bytes, std::size_t size, std::size_t count, void* body) {
  static_cast<std::string*>(body)->append(bytes, size * count);
  return size * count;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

class HttpClient::Transfer {
 public:
  explicit Transfer(std::string base) : base_(std::move(base)), handle_(curl().init()) {
    while (base_.ends_with('/')) base_.pop_back();
  }
  ~Transfer() { curl().cleanup(handle_); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // A new request, which set() completes. Headers are `Name: value`.
  void begin(const std::string& path) {
    url_ = base_ + path;
    curl().reset(handle_);
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kSecondsToConnect);
    set(CURLOPT_TIMEOUT, kSecondsForAll);
    if (!token_.empty()) {
      set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      set(CURLOPT_XOAUTH2_BEARER, token_.c_str());
    } else if (!user_.empty()) {
      set(CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
      set(CURLOPT_USERNAME, user_.c_str());
      set(CURLOPT_PASSWORD, password_.c_str());
    }
  }
  template <class Value>
  void set(CURLoption option, Value value) {
    if (curl().set(handle_, option, value) != CURLE_OK)
      throw Error(concat("libcurl does not take its option ", static_cast<int>(option)), ErrorKind::internal);
  }
  HttpReply run(const char* content_type) {
    HttpReply reply;
    set(CURLOPT_WRITEFUNCTION, &take_body);
    set(CURLOPT_WRITEDATA, &reply.body);
    curl_slist* headers = nullptr;
    if (content_type != nullptr) headers = curl().append(headers, concat("Content-Type: ", content_type).c_str());
    headers = curl().append(headers, "Expect:");  // no question before a large body
    set(CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl().perform(handle_);
    curl().free_list(headers);
    if (code != CURLE_OK) throw ServerAway(concat("'", url_, "' does not answer: ", curl().error(code)));
    curl().info(handle_, CURLINFO_RESPONSE_CODE, &reply.status);
    if (reply.status >= 500) throw ServerAway(concat("'", url_, "' answers with status ", reply.status));
    return reply;
  }
  void identify(const std::string& user, const std::string& password, const std::string& token) {
    user_ = user;
    password_ = password;
    token_ = token;
  }

 private:
  std::string base_, url_, user_, password_, token_;
  CURL* handle_;
};

HttpClient::HttpClient(std::string base) : transfer_(std::make_unique<Transfer>(std::move(base))) {}
HttpClient::~HttpClient() = default;

void HttpClient::identify(const std::string& user, const std::string& password, const std::string& token) {
  transfer_->identify(user, password, token);
}

HttpReply HttpClient::get(const std::string& path) {
  transfer_->begin(path);
  return transfer_->run(nullptr);
}

HttpReply HttpClient::post(const std::string& path, const std::string& json) {
  transfer_->begin(path);
  transfer_->set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  transfer_->set(CURLOPT_POSTFIELDS, json.c_str());
  return transfer_->run("application/json");
}

HttpReply HttpClient::put_file(const std::string& path, const std::string& file) {
  const std::unique_ptr<std::FILE, CloseFile> source(std::fopen(file.c_str(), "rbe"));
  if (!source) throw Error(concat("cannot read '", file, "': ", std::generic_category().message(errno)), ErrorKind::io);
  std::fseek(source.get(), 0, SEEK_END);
  const long size = std::ftell(source.get());
  std::rewind(source.get());
  transfer_->begin(path);
  transfer_->set(CURLOPT_UPLOAD, 1L);
  transfer_->set(CURLOPT_READDATA, source.get());
  transfer_->set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size));
  transfer_->set(CURLOPT_TIMEOUT, 0L);  // as long as some bytes move
  transfer_->set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  transfer_->set(CURLOPT_LOW_SPEED_TIME, kSecondsForAll);
  return transfer_->run("application/octet-stream");
}

#endif

}  // namespace keel
