#include "coordinator/http/http_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/strings/numbers.h"

namespace trireme::coordinator {

using boost::asio::ip::tcp;

std::string HostAndPort::Text() const {
  const bool six = host.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

absl::StatusOr<HostAndPort> ParseAddress(const std::string& address) {
  HostAndPort at;
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  at.host = address.substr(0, colon);
  const bool bracketed = at.host.size() > 2 && at.host.front() == '[' && at.host.back() == ']';
  if (bracketed) at.host = at.host.substr(1, at.host.size() - 2);
  const bool host_fits = !at.host.empty() && (bracketed || at.host.find(':') == std::string::npos);
  if (!host_fits || port.empty() || !absl::SimpleAtoi(port, &at.port) || at.port < 0 ||
      at.port > 65535) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no address to listen at; expected HOST:PORT, as in 127.0.0.1:8470", address));
  }
  return at;
}

bool IsLoopbackHost(const std::string& host) {
  boost::asio::io_context io;
  boost::system::error_code error;
  const auto found = tcp::resolver(io).resolve(host, "0", tcp::resolver::passive, error);
  return !found.empty() && std::all_of(found.begin(), found.end(), [](const auto& one) {
    return one.endpoint().address().is_loopback();
  });
}

}  // namespace trireme::coordinator
