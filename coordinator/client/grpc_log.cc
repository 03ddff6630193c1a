// One hearer for the process, since gRPC has one function for its log.
#include "coordinator/client/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <filesystem>

#include "runtime/base/text.h"
#include "runtime/base/utf8.h"

namespace trireme::client {
namespace {

constexpr size_t kLongestLine = 1000;

std::atomic<void (*)(const std::string&)> hearer{nullptr};

// Of messages that cannot be read, which gRPC has protobuf parse.
void OnProtobufLine(google::protobuf::LogLevel, const char*, int, const std::string& said) {
  const auto hear = hearer.load();
  if (hear != nullptr) hear("protobuf: " + base::ShowableLine(said, kLongestLine));
}

void OnLine(gpr_log_func_args* said) {
  const auto hear = hearer.load();
  if (hear == nullptr) return;
  const std::string file = std::filesystem::path(said->file).filename().string();
  hear(base::Text("gRPC: ", base::ShowableLine(said->message, kLongestLine), " (", file, ":",
                  said->line, ")"));
}

}  // namespace

void HearGrpc(void (*hear)(const std::string& line)) {
  hearer = hear;
  gpr_set_log_function(OnLine);
  google::protobuf::SetLogHandler(OnProtobufLine);
}

}  // namespace trireme::client
