// cpp-httplib's Server, of which only the reading of a request's head and the writing of an answer
// are used: bodies, routes, connections and their limits are ours. It would compress what callers
// accept compressed, and serve ranges of it: neither reaches it.
#include "coordinator/http/http_worker.h"

#include <httplib.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostHeadBytes = 32 << 10;
constexpr std::chrono::milliseconds kLook(100);
constexpr std::chrono::milliseconds kLinger(1000);

const std::pair<const char*, const char*> kUnlessSet[] = {
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"}};

HttpResponse Refusal(int status, std::string why) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(why) + "\n";
  return response;
}

bool Printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

bool GoodPath(const std::string& path) {
  const std::string closed = path + "/";
  return path.starts_with('/') && Printable(path) && closed.find("/../") == std::string::npos &&
         closed.find("/./") == std::string::npos;
}

class Connection : public httplib::Stream {
 public:
  explicit Connection(SocketStream& stream)
      : stream_(stream), peer_(PeerOf(stream.fd())), local_(LocalOf(stream.fd())) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t most) override {
    const ssize_t got = stream_.Read(to, most);
    for (ssize_t i = 0; i < got; ++i) HideRange(to[i]);
    return got;
  }
  ssize_t write(const char* from, size_t count) override {
    return stream_.Write(from, count) ? static_cast<ssize_t>(count) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    std::tie(ip, port) = peer_;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    std::tie(ip, port) = local_;
  }
  socket_t socket() const override { return stream_.fd(); }

 private:
  // httplib matches the value of Range, of any length, by a std::regex, whose recursion needs half
  // a kilobyte of stack for each character. A line without its colon is no header.
  void HideRange(char& byte) {
    if (byte == ':' && absl::EqualsIgnoreCase(line_, "range")) byte = ' ';
    if (byte == '\n') {
      line_.clear();
    } else if (line_.size() < 6) {
      line_ += byte;
    }
  }

  SocketStream& stream_;
  std::string line_;  // first bytes of the line that is read
  const std::pair<std::string, int> peer_;
  const std::pair<std::string, int> local_;
};

class LibraryWorker : public HttpWorker, private httplib::Server {
 public:
  explicit LibraryWorker(const HttpRules& rules) : rules_(rules) {
    set_keep_alive_timeout(rules.options.idle_time / std::chrono::seconds(1));
    set_keep_alive_max_count(static_cast<size_t>(rules.options.most_requests));
    set_pre_routing_handler([this](const httplib::Request&, httplib::Response& response) {
      Give(Answer(), response);
      return HandlerResponse::Handled;
    });
    set_post_routing_handler(
        [this](const httplib::Request&, httplib::Response& response) { BeforeHead(response); });
  }

  void Serve(SocketStream& stream) override {
    stream_ = &stream;
    Connection connection(stream);
    for (int count = 1; count <= rules_.options.most_requests; ++count) {
      if (!WaitForRequest()) return;
      stream.LimitReads(SocketStream::Clock::now() + rules_.options.request_time, kMostHeadBytes);
      stream.LimitWrites(SocketStream::Clock::now() + rules_.options.response_time);
      request_ = HttpRequest();
      whole_ = false;
      close_ = count == rules_.options.most_requests;
      bool closed = false;
      if (!ServeOne(connection, closed) || closed) return;
      if (close_) break;
    }
    stream.Linger(kLinger);
  }

 private:
  bool ServeOne(Connection& connection, bool& closed) {
    try {
      return process_request(connection, close_, closed,
                             [this](httplib::Request& head) { TakeHead(head); });
    } catch (const std::exception& problem) {
      spdlog::warn("HTTP: a request ended in an exception: {}", problem.what());
      return false;
    }
  }

  bool WaitForRequest() {
    const auto end = SocketStream::Clock::now() + rules_.options.idle_time;
    bool first = true;
    while (!stream_->ReadableWithin(kLook)) {
      if (SocketStream::Clock::now() >= end || (rules_.hurry() && !first)) return false;
      first = false;
    }
    return true;
  }

  void TakeHead(httplib::Request& head) {
    request_.method = head.method;
    request_.path = head.path;
    request_.query = head.params;
    request_.peer = head.remote_addr;
    for (const auto& [name, value] : head.headers) {
      // Names with '_' are httplib's own words about the connection, or pretend to be.
      if (name.find('_') != std::string::npos) continue;
      request_.headers.emplace(absl::AsciiStrToLower(name), value);
    }
    head.headers.erase("Accept-Encoding");
  }

  // Not ok: an answer without a handler's help, after which the rest of the request is not known.
  std::optional<HttpResponse> TakeBody() {
    if (!request_.Header("transfer-encoding").empty()) {
      return Refusal(411, "send a Content-Length: chunked bodies are not taken");
    }
    const std::string coding = request_.Header("content-encoding");
    if (!coding.empty() && coding != "identity") {
      return Refusal(415, "compressed bodies are not taken");
    }
    if (request_.headers.count("content-length") > 1) return Refusal(400, "two Content-Lengths");
    const std::string length = request_.Header("content-length");
    uint64_t bytes = 0;
    if (!length.empty() && (!std::all_of(length.begin(), length.end(), absl::ascii_isdigit) ||
                            !absl::SimpleAtoi(length, &bytes))) {
      return Refusal(400, "the Content-Length is no number");
    }
    const size_t most = rules_.options.most_body_bytes;
    if (bytes > most) {
      return Refusal(413, "the body has more than " + std::to_string(most) + " bytes");
    }
    stream_->LimitReadBytes(bytes);
    request_.body.resize(bytes);
    for (size_t done = 0; done < bytes;) {
      const ssize_t got = stream_->Read(request_.body.data() + done, bytes - done);
      if (got <= 0) return Refusal(408, "the body did not come in time");
      done += static_cast<size_t>(got);
    }
    whole_ = true;
    return std::nullopt;
  }

  HttpResponse Answer() {
    if (auto refusal = TakeBody()) return *std::move(refusal);
    if (request_.headers.count("host") != 1 || !rules_.hosts.Allows(request_.Header("host"))) {
      return Refusal(421, "this Host is not known here; `triremed --http-name NAME` adds one");
    }
    if (!GoodPath(request_.path)) return Refusal(400, "this is no path of ours");
    RouteMatch match = rules_.routes.Find(request_.method, request_.path);
    if (match.route == nullptr && match.allowed.empty()) return Refusal(404, "not found");
    if (match.route == nullptr) {
      HttpResponse response = Refusal(405, "this method is not for this path");
      response.headers.emplace_back("Allow", match.allowed);
      return response;
    }
    request_.path_values = std::move(match.values);
    try {
      return match.route->handler(request_);
    } catch (const std::exception& problem) {
      spdlog::error("HTTP {} {}: {}", request_.method, match.route->pattern, problem.what());
      return Refusal(500, "something went wrong; the daemon's log has more");
    }
  }

  static void Give(HttpResponse from, httplib::Response& to) {
    to.status = from.status;
    for (auto& [name, value] : from.headers) {
      if (!Printable(name) || !Printable(value)) continue;
      to.headers.emplace(std::move(name), std::move(value));
    }
    to.headers.emplace("Content-Type", Printable(from.content_type) ? from.content_type : "");
    to.body = std::move(from.body);
  }

  // Of every answer, also those that httplib gives to a head that it cannot read.
  void BeforeHead(httplib::Response& response) {
    for (const auto& [name, value] : kUnlessSet) {
      if (!response.has_header(name)) response.headers.emplace(name, value);
    }
    if (!whole_ || rules_.hurry()) close_ = true;
    if (close_) {
      response.headers.erase("Keep-Alive");
      response.headers.erase("Connection");
      response.headers.emplace("Connection", "close");
    }
    stream_->LimitWrites(SocketStream::Clock::now() + rules_.options.response_time);
  }

  const HttpRules& rules_;
  SocketStream* stream_ = nullptr;  // of the connection that is served
  HttpRequest request_;
  bool whole_ = false;  // the request has been read to its end
  bool close_ = false;  // after this answer
};

}  // namespace

std::unique_ptr<HttpWorker> HttpWorker::Make(const HttpRules& rules) {
  return std::make_unique<LibraryWorker>(rules);
}

}  // namespace trireme::coordinator
