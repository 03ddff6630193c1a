// One connection: requests are read, answered and written one after another, each within its time.
// Boost.Beast reads and writes; nothing here blocks, handlers run elsewhere.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/http/http_answer.h"
#include "coordinator/http/http_server.h"

namespace trireme::coordinator {

class HttpConnection;

// Of who owns the connections.
struct HttpConnectionOwner {
  const HttpRules& rules;
  // Has the request answered by HttpConnection::Send, on the connection's thread; false: too many
  // wait.
  std::function<bool(const std::shared_ptr<HttpConnection>&, HttpRequest)> answer;
  std::function<void(HttpConnection*)> closed;  // once; it may be forgotten now
};

// One thread, that of the socket's io_context. Held by what it waits for, and by its owner.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, const HttpConnectionOwner& owner);
  void Start() { AwaitRequest(); }
  // Between two requests, and since when.
  std::optional<std::chrono::steady_clock::time_point> idle_since() const { return idle_since_; }
  // The answer to the request that was given to the owner.
  void Send(HttpResponse response);
  // What a handler is about is answered, within a second of its end; nothing is read any more.
  void End();
  void Close();

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  void AwaitRequest();
  void ReadHead();
  void TakeHead(const Error& error);
  void ReadBody();
  void TakeBody(const Error& error);
  void Refuse(int status, const std::string& why);
  template <typename Message>
  void Write(Message message);
  void Linger();
  void Drop(size_t left);
  // What is begun next ends with an error when so much time has passed.
  void SetDeadline(std::chrono::milliseconds longest);
  // `then` of this connection, which lives until it has been called.
  template <typename Then>
  auto Mine(Then then);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  const HttpConnectionOwner& owner_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  HttpRequest request_;
  std::optional<std::chrono::steady_clock::time_point> idle_since_;
  int requests_ = 0;
  bool head_only_ = false;
  bool stays_ = true;  // after the next answer
  bool ending_ = false;
  bool closed_ = false;
};

}  // namespace trireme::coordinator
