// AwaitRequest -> ReadHead -> ReadBody -> the owner's handler -> Send -> AwaitRequest, or Linger.
#include "coordinator/http/http_connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace trireme::coordinator {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kMostHeadBytes = 32 << 10;
constexpr size_t kMostTargetBytes = 8 << 10;
constexpr size_t kMostDroppedBytes = 1 << 20;
constexpr std::chrono::milliseconds kLinger(1000);

std::string PeerOf(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto end = socket.remote_endpoint(error);
  return error ? "" : end.address().to_string();
}

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, const HttpConnectionOwner& owner)
    : socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      owner_(owner),
      buffer_(kMostHeadBytes + owner.rules.options.most_body_bytes) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

template <typename Then>
auto HttpConnection::Mine(Then then) {
  return [self = shared_from_this(), then](const Error& error, auto... more) {
    if (!self->closed_) then(*self, error, more...);
  };
}

void HttpConnection::SetDeadline(std::chrono::milliseconds longest) {
  deadline_.expires_after(longest);
  deadline_.async_wait(Mine([](HttpConnection& self, const Error& error) {
    // One that was set anew meanwhile counts no more.
    if (error || self.deadline_.expiry() > std::chrono::steady_clock::now()) return;
    // A body that does not come is told so; whoever takes no answer gets none.
    Error ignored;
    self.socket_.cancel(ignored);
  }));
}

void HttpConnection::Close() {
  if (std::exchange(closed_, true)) return;
  deadline_.cancel();
  Error ignored;
  socket_.close(ignored);
  owner_.closed(this);
}

void HttpConnection::End() {
  ending_ = true;
  stays_ = false;
  // Also one whose request is half said.
  if (idle_since_ || parser_) return Close();
  SetDeadline(kLinger);
}

void HttpConnection::AwaitRequest() {
  if (buffer_.size() > 0) return ReadHead();
  idle_since_ = std::chrono::steady_clock::now();
  SetDeadline(owner_.rules.options.idle_time);
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     Mine([](HttpConnection& self, const Error& error) {
                       error ? self.Close() : self.ReadHead();
                     }));
}

void HttpConnection::ReadHead() {
  idle_since_.reset();
  request_ = HttpRequest();
  head_only_ = false;
  stays_ = ++requests_ < owner_.rules.options.most_requests;
  parser_.emplace();
  parser_->header_limit(kMostHeadBytes);
  parser_->body_limit(owner_.rules.options.most_body_bytes);
  SetDeadline(owner_.rules.options.request_time);
  http::async_read_header(
      socket_, buffer_, *parser_,
      Mine([](HttpConnection& self, const Error& error, size_t) { self.TakeHead(error); }));
}

void HttpConnection::TakeHead(const Error& error) {
  if (error == http::error::body_limit) {
    return Refuse(413, "the body has more than " +
                           std::to_string(owner_.rules.options.most_body_bytes) + " bytes");
  }
  if (error == http::error::header_limit) return Refuse(431, "the head has more than 32 KiB");
  // By others than the protocol's errors nobody is there, or the time is over.
  if (error && error.category() != make_error_code(http::error::bad_method).category()) {
    return Close();
  }
  if (error == http::error::end_of_stream) return Close();
  if (error) return Refuse(400, error.message());
  const auto& head = parser_->get();
  if (head.target().size() > kMostTargetBytes) return Refuse(414, "the path is too long");
  request_.method = std::string(head.method_string());
  request_.peer = PeerOf(socket_);
  head_only_ = request_.method == "HEAD";
  for (const auto& field : head) {
    request_.headers.emplace(absl::AsciiStrToLower(std::string(field.name_string())),
                             std::string(field.value()));
  }
  HttpResponse judged = Judge(owner_.rules, request_);
  if (judged.status != 200) return Refuse(judged.status, judged.body);
  if (!TakeTarget(std::string(head.target()), request_)) {
    return Refuse(400, "this is no path of ours");
  }
  if (absl::AsciiStrToLower(request_.Header("expect")) != "100-continue") return ReadBody();
  static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue, sizeof kContinue - 1),
                    Mine([](HttpConnection& self, const Error& written, size_t) {
                      written ? self.Close() : self.ReadBody();
                    }));
}

void HttpConnection::ReadBody() {
  http::async_read(
      socket_, buffer_, *parser_,
      Mine([](HttpConnection& self, const Error& error, size_t) { self.TakeBody(error); }));
}

void HttpConnection::TakeBody(const Error& error) {
  if (error) return Refuse(408, "the body did not come in time");
  stays_ = stays_ && parser_->get().keep_alive();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  deadline_.cancel();  // the handler has bounds of its own
  if (owner_.answer(shared_from_this(), std::move(request_))) return;
  HttpResponse busy = Refusal(503, "too many requests wait; try again");
  busy.headers.emplace_back("Retry-After", "5");
  AddHeadersOfSafety(busy);
  Send(std::move(busy));
}

// Where the request's end is not known, so that nothing may follow.
void HttpConnection::Refuse(int status, const std::string& why) {
  stays_ = false;
  parser_.reset();
  HttpResponse response = Refusal(status, std::string(absl::StripSuffix(why, "\n")));
  AddHeadersOfSafety(response);
  Send(std::move(response));
}

void HttpConnection::Send(HttpResponse response) {
  if (closed_) return;
  const auto status = static_cast<http::status>(response.status);
  const auto with_head = [&](auto message) {
    for (const auto& [name, value] : response.headers) message.insert(name, value);
    message.set(http::field::content_type, response.content_type);
    message.content_length(response.body.size());
    message.keep_alive(stays_);
    return message;
  };
  if (head_only_) return Write(with_head(http::response<http::empty_body>(status, 11)));
  auto message = with_head(http::response<http::string_body>(status, 11));
  message.body() = std::move(response.body);
  Write(std::move(message));
}

template <typename Message>
void HttpConnection::Write(Message message) {
  const auto kept = std::make_shared<Message>(std::move(message));
  SetDeadline(ending_ ? kLinger : owner_.rules.options.response_time);
  http::async_write(socket_, *kept, Mine([kept](HttpConnection& self, const Error& error, size_t) {
                      if (error) return self.Close();
                      self.stays_ && !self.ending_ ? self.AwaitRequest() : self.Linger();
                    }));
}

// Takes what the peer still sends, so that the answer is not lost with a reset.
void HttpConnection::Linger() {
  Error ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  SetDeadline(kLinger);
  Drop(kMostDroppedBytes);
}

void HttpConnection::Drop(size_t left) {
  const auto dropped = std::make_shared<std::array<char, 4096>>();
  socket_.async_read_some(
      asio::buffer(*dropped),
      Mine([dropped, left](HttpConnection& self, const Error& error, size_t count) {
        error || count >= left ? self.Close() : self.Drop(left - count);
      }));
}

}  // namespace trireme::coordinator
