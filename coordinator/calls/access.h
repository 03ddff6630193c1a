// Who calls, and what he may do. Bearer tokens come from a file; who comes by the daemon's unix
// socket is named by the kernel.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

enum class Role { kSubmit, kOperator, kAdmin, kAgent };

// As in the token file: "submit", "operator", "admin", "agent".
std::string_view WordOf(Role role);

struct Caller {
  std::string user;
  Role role = Role::kSubmit;
  // Of an agent: the names that its node may have, each as it is or, with '*' at its end, by its
  // beginning. Empty: any.
  std::vector<std::string> nodes = {};
  std::string token_hash = {};  // by which he was known; empty: by no token
};

// For people: "anna", or "anna (unix user)", who may be another one than the token file's anna.
std::string NameOf(const Caller& caller);

// Of who comes by the unix socket: root, and the daemon's own user.
bool IsLocalAdmin(uid_t uid);

class Access {
 public:
  // No tokens: only the unix socket is let in.
  Access() = default;
  // Lines "ROLE USER TOKEN" with ROLE a word as of WordOf, or "ROLE USER sha256:HEX" with the
  // hash of one; '#' begins a comment. An agent's may end with "nodes=NAME,NAME": see Caller.
  // InvalidArgument names the line; FailedPrecondition if others
  // than the owner may read the file.
  static absl::StatusOr<Access> Load(const std::string& token_file);

  // Reads the token file again, if there is one; on an error all stays as it was. Any thread. Calls
  // from now on are let in by the new tokens; whoever keeps streams asks StillKnows.
  absl::Status Reload();

  // Of who has opened the unix socket: root and the daemon's own user are admins, others may
  // submit, under the name that the machine knows them by. Nobody: the machine does not know him,
  // or does not say so now. Whoever has subordinate uids might be as many users as he likes
  // otherwise. Asks the machine's user database, which may block.
  std::optional<Caller> LocalCaller(uid_t uid) const;
  // `local`: that, for a call by the unix socket; else null. `authorization`: that header of the
  // call, or empty; a token names its caller wherever he comes from. Unauthenticated: neither, or a
  // token that is not known.
  absl::StatusOr<Caller> Identify(const Caller* local, std::string_view authorization) const;
  // Unauthenticated: his token was taken back since, or stands for another user or role.
  absl::Status StillKnows(const Caller& caller) const;

 private:
  struct Shared {  // by copies
    absl::Mutex mutex;
    std::vector<Caller> tokens ABSL_GUARDED_BY(mutex);
  };
  std::optional<Caller> Find(const std::string& hash) const;
  static absl::StatusOr<std::vector<Caller>> ReadTokens(const std::string& token_file);

  std::string token_file_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// PermissionDenied unless the caller is an admin, or `owner` himself and no agent.
absl::Status MayTouch(const Caller& caller, const std::string& owner);
// PermissionDenied of a user who asks to be before the others.
absl::Status MayAskPriority(const Caller& caller, int64_t priority);
// The caps of users do not hold him.
inline bool IsUncapped(const Caller& caller) {
  return caller.role == Role::kOperator || caller.role == Role::kAdmin;
}
// PermissionDenied of a token that is for other nodes.
absl::Status MayBeNode(const Caller& caller, const std::string& node);
// An admin has every role, an operator that of submit as well.
absl::Status MustBe(const Caller& caller, Role role);

}  // namespace trireme::coordinator
