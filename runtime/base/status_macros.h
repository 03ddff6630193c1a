// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TRIREME_CONCAT_INNER(a, b) a##b
#define TRIREME_CONCAT(a, b) TRIREME_CONCAT_INNER(a, b)

// Returns from the function with the status of `expression` unless it is ok.
#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status trireme_status = (expression); !trireme_status.ok()) { \
      return trireme_status;                                                \
    }                                                                       \
  } while (false)

#define TRIREME_ASSIGN_OR_RETURN(temporary, declaration, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return std::move(temporary).status();         \
  declaration = std::move(temporary).value()

// `declaration` = value of the StatusOr `expression`; returns from the function with its status if
// it has none.
#define ASSIGN_OR_RETURN(declaration, expression) \
  TRIREME_ASSIGN_OR_RETURN(TRIREME_CONCAT(trireme_statusor_, __LINE__), declaration, expression)

// The message as std::string: absl::string_view is a type of its own in Debian's abseil, which fmt
// does not print.
namespace trireme::base {
inline std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }
}  // namespace trireme::base

// A message with `context` in front, code kept: log once at the end of the way, add context on it.
namespace trireme::base {
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), std::string(context) + ": " + std::string(status.message()));
}
}  // namespace trireme::base
