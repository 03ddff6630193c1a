#include "coordinator/cli/byte_size.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trireme::cli {
namespace {

struct Unit {
  absl::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},         {"b", 1},        {"kib", 0x1p10}, {"mib", 0x1p20},
                           {"gib", 0x1p30}, {"tib", 0x1p40}, {"kb", 1e3},     {"mb", 1e6},
                           {"gb", 1e9},     {"tb", 1e12}};

absl::Status Refused(const std::string& text, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(text), "\" is no size, expected ", expected));
}

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(const std::string& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string number = text.substr(0, end);
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(end)));
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) {
    return Refused(text, "a number with its unit, as in 2GiB or 1500MB, or of bytes alone");
  }
  if (unit == "k" || unit == "m" || unit == "g" || unit == "t") {
    const std::string prefix = number + absl::AsciiStrToUpper(unit);
    return Refused(text,
                   absl::StrCat(prefix, "iB (powers of 1024) or ", prefix, "B (powers of 1000)"));
  }
  constexpr double kMost = 0x1p60;
  for (const Unit& each : kUnits) {
    if (each.name != unit) continue;
    const double bytes = value * each.bytes;
    if (!(bytes >= 1 && bytes <= kMost)) return Refused(text, "1 byte to 2^60 bytes");
    return static_cast<uint64_t>(bytes);
  }
  return Refused(text, absl::StrCat("KiB, MiB, GiB or TiB, or KB, MB, GB or TB, behind ", number));
}

}  // namespace trireme::cli
