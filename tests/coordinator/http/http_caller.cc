// A blocking socket with a deadline.
#include "tests/coordinator/http/http_caller.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

namespace trireme::coordinator {

HttpCaller::HttpCaller(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval minute{60, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

HttpCaller::~HttpCaller() { close(fd_); }

bool HttpCaller::Say(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

bool HttpCaller::Receive() {
  char buffer[4096];
  const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
  const bool late = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  REQUIRE_FALSE(late);
  if (got > 0) received_.append(buffer, static_cast<size_t>(got));
  return got > 0;
}

std::string HttpCaller::Answer(bool head_only) {
  size_t head = 0;
  while ((head = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Receive()) return "";
  }
  head += 4;
  const size_t named = received_.find("Content-Length: ");
  size_t whole = head;
  if (!head_only && named < head) {
    whole += static_cast<size_t>(std::atoi(received_.c_str() + named + 16));
  }
  while (received_.size() < whole) {
    if (!Receive()) return "";
  }
  const std::string answer = received_.substr(0, whole);
  received_.erase(0, whole);
  return answer;
}

bool HttpCaller::Closed() { return received_.empty() && !Receive(); }

std::string Get(const std::string& path, const std::string& more) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

std::string Ask(int port, const std::string& request) {
  HttpCaller caller(port);
  caller.Say(request);
  return caller.Answer(request.starts_with("HEAD "));
}

int StatusOf(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}

std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

}  // namespace trireme::coordinator
