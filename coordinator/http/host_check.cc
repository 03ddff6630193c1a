// localhost, this machine's name, the host listened at, names given, and all IP addresses.
#include "coordinator/http/host_check.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "runtime/base/own_program.h"

namespace trireme::coordinator {
namespace {

bool IsIpAddress(const std::string& text) {
  in6_addr any{};
  return inet_pton(AF_INET, text.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

}  // namespace

HostCheck::HostCheck(const std::string& host, const std::vector<std::string>& names)
    : names_{"localhost", absl::AsciiStrToLower(host), absl::AsciiStrToLower(base::HostName())} {
  for (const std::string& name : names) names_.insert(absl::AsciiStrToLower(name));
}

bool HostCheck::Allows(const std::string& header) const {
  std::string host = absl::AsciiStrToLower(header);
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end != std::string::npos && IsIpAddress(host.substr(1, end - 1));
  }
  host = host.substr(0, host.find(':'));
  return IsIpAddress(host) || (!host.empty() && names_.contains(host));
}

}  // namespace trireme::coordinator
