// A caller of an HttpServer that says exactly what it is told to, byte by byte.
#pragma once

#include <string>

namespace trireme::coordinator {

class HttpCaller {
 public:
  explicit HttpCaller(int port);
  ~HttpCaller();
  HttpCaller(const HttpCaller&) = delete;
  HttpCaller& operator=(const HttpCaller&) = delete;

  // False: the other side has closed.
  bool Say(const std::string& bytes);
  // Head and body of one answer; empty: the other side has closed. Fails the test after a minute.
  std::string Answer(bool head_only = false);
  // No more bytes will come.
  bool Closed();

 private:
  bool Receive();

  int fd_ = -1;
  std::string received_;
};

// "GET <path> HTTP/1.1" with Host: localhost and further header lines, each with its "\r\n".
std::string Get(const std::string& path, const std::string& more = "");
// The answer to one request on a connection of its own.
std::string Ask(int port, const std::string& request);
int StatusOf(const std::string& answer);
std::string BodyOf(const std::string& answer);

}  // namespace trireme::coordinator
