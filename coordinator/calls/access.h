// Who calls, and what he may do. Bearer tokens come from a file; whoever may open the daemon's unix
// socket is an admin, by the permissions of that file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

enum class Role { kSubmit, kAdmin, kAgent };

struct Caller {
  std::string user;
  Role role = Role::kSubmit;
};

class Access {
 public:
  // No tokens: only the unix socket is let in. Before threads are made that look up users.
  Access();
  // Lines "ROLE USER TOKEN" with ROLE submit, admin or agent, or "ROLE USER sha256:HEX" with the
  // hash of one; '#' begins a comment. InvalidArgument names the line; FailedPrecondition if others
  // than the owner may read the file.
  static absl::StatusOr<Access> Load(const std::string& token_file);

  // Reads the token file again, if there is one; on an error all stays as it was. Any thread; what
  // is open goes on, calls from now on are let in by the new tokens.
  absl::Status Reload();

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
  struct Shared {  // by copies
    absl::Mutex mutex;
    std::vector<Token> tokens ABSL_GUARDED_BY(mutex);
  };
  static absl::StatusOr<std::vector<Token>> ReadTokens(const std::string& token_file);

  std::string token_file_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::string local_user_;  // whose daemon this is
};

// PermissionDenied unless the caller is an admin, or `owner` himself with the role submit.
absl::Status MayTouch(const Caller& caller, const std::string& owner);
absl::Status MustBe(const Caller& caller, Role role);

}  // namespace trireme::coordinator
