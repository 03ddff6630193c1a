// A formatter of spdlog's, called on the thread that logs.
#include "coordinator/process/log_format.h"

#include <fmt/format.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/json/json_text.h"

namespace trireme::coordinator {
namespace {

// Of the program, set once.
LogOptions& Options() {
  static LogOptions options;
  return options;
}

LogSubject& Subject() {
  thread_local LogSubject subject;
  return subject;
}

std::string TimeText(int64_t unix_ms) {
  const time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, unix_ms % 1000);
}

std::string Visible(const std::string& message) {
  std::string text;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

class Formatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const auto since = message.time.time_since_epoch();
    LogLine line{std::chrono::duration_cast<std::chrono::milliseconds>(since).count(),
                 {},
                 std::string(message.payload.data(), message.payload.size()),
                 Subject()};
    const auto level = spdlog::level::to_string_view(message.level);
    line.level.assign(level.data(), level.size());
    if (line.subject.node.empty()) line.subject.node = Options().node;
    const std::string text =
        Options().format == LogFormat::kJson ? JsonLine(Options().program, line) : TextLine(line);
    to.append(text.data(), text.data() + text.size());
    to.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<Formatter>();
  }
};

}  // namespace

std::string TextLine(const LogLine& line) {
  return TimeText(line.unix_ms) + " " + line.level + " " + Visible(line.message);
}

std::string JsonLine(const std::string& program, const LogLine& line) {
  nlohmann::ordered_json json{{"time", TimeText(line.unix_ms)},
                              {"level", line.level},
                              {"program", program},
                              {"message", line.message}};
  if (line.subject.job != 0) json["job"] = line.subject.job;
  if (line.subject.attempt != 0) json["attempt"] = line.subject.attempt;
  if (!line.subject.node.empty()) json["node"] = line.subject.node;
  return json_text::Write(json);
}

void StartLog(const LogOptions& options) {
  Options() = options;
  auto logger = spdlog::stderr_logger_mt(options.program);
  logger->set_formatter(std::make_unique<Formatter>());
  spdlog::set_default_logger(std::move(logger));
}

void LogEnd(const std::string& message) {
  if (Options().format == LogFormat::kJson) {
    spdlog::critical("{}", message);
  } else {
    std::fprintf(stderr, "%s: %s\n", Options().program.c_str(), message.c_str());
  }
}

LogAbout::LogAbout(LogSubject subject) : before_(std::exchange(Subject(), std::move(subject))) {}

LogAbout::~LogAbout() { Subject() = std::move(before_); }

}  // namespace trireme::coordinator
