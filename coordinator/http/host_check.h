// Which Host headers are answered. A page of somebody else whose name resolves to our address must
// not be able to talk with us through a browser (DNS rebinding); by IP address nobody can pretend.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace trireme::coordinator {

class HostCheck {
 public:
  // The host that is listened at, and further names.
  HostCheck(const std::string& host, const std::vector<std::string>& names);
  // `header`: the value of Host, with or without a port.
  bool Allows(const std::string& header) const;

 private:
  std::set<std::string> names_;  // in small letters
};

}  // namespace trireme::coordinator
