// Who calls, and what he may do. Bearer tokens come from a file; whoever may open the daemon's unix
// socket is an admin, by the permissions of that file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::coordinator {

enum class Role { kSubmit, kAdmin, kAgent };

struct Caller {
  std::string user;
  Role role = Role::kSubmit;
};

class Access {
 public:
  // No tokens: only the unix socket is let in.
  Access() = default;
  // Lines "ROLE USER TOKEN" with ROLE submit, admin or agent, or "ROLE USER sha256:HEX" with the
  // hash of one; '#' begins a comment. InvalidArgument names the line; FailedPrecondition if others
  // than the owner may read the file.
  static absl::StatusOr<Access> Load(const std::string& token_file);

  // `authorization`: that header of the call, or empty. Unauthenticated: no token, or one that is
  // not known.
  absl::StatusOr<Caller> Identify(bool by_unix_socket, std::string_view authorization) const;
  // Whether a token gives it.
  bool HasRole(Role role) const;

 private:
  struct Token {
    std::string hash;  // 32 bytes
    Caller caller;
  };
  std::vector<Token> tokens_;
};

// PermissionDenied unless the caller is an admin, or `owner` himself with the role submit.
absl::Status MayTouch(const Caller& caller, const std::string& owner);
absl::Status MustBe(const Caller& caller, Role role);

}  // namespace trireme::coordinator
