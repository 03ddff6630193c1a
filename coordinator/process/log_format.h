// How a program of the control plane logs: lines of text for people, or JSON for collectors.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::coordinator {

enum class LogFormat { kText, kJson };

struct LogOptions {
  std::string program;
  LogFormat format = LogFormat::kText;
  std::string node;  // told with every line; empty: none
};

// spdlog's default logger from now on, to stderr. Once, before there are threads.
void StartLog(const LogOptions& options);

// Why the program ends: "program: message" in text.
void LogEnd(const std::string& message);

// What the lines of this thread are about, for the life of this object. 0 and empty: nothing.
struct LogSubject {
  uint64_t job = 0;
  uint32_t attempt = 0;
  std::string node;
};
class LogAbout {
 public:
  explicit LogAbout(LogSubject subject);
  ~LogAbout();
  LogAbout(const LogAbout&) = delete;
  LogAbout& operator=(const LogAbout&) = delete;

 private:
  LogSubject before_;
};

// One line each, without its line feed. `unix_ms`: since 1970.
struct LogLine {
  int64_t unix_ms = 0;
  std::string level;
  std::string message;
  LogSubject subject;
};
std::string TextLine(const LogLine& line);
std::string JsonLine(const std::string& program, const LogLine& line);

}  // namespace trireme::coordinator
