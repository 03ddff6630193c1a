// Tokens are kept and compared as SHA-256, in a time that does not depend on their bytes.
#include "coordinator/calls/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/base/whole_file.h"

namespace trireme::coordinator {
namespace {

constexpr std::string_view kBearer = "Bearer ";  // in any case, as HTTP has it
constexpr std::string_view kHashed = "sha256:";
constexpr std::string_view kRoles = "ROLE submit, operator, admin or agent";
constexpr size_t kShortestToken = 16;
constexpr size_t kLongestUser = 200;
constexpr std::string_view kNodes = "nodes=";
constexpr size_t kMostEntryBytes = size_t{1} << 20;

std::string HashOf(std::string_view token) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

std::optional<Role> RoleOf(const std::string& word) {
  for (const Role role : {Role::kSubmit, Role::kOperator, Role::kAdmin, Role::kAgent}) {
    if (word == WordOf(role)) return role;
  }
  return std::nullopt;
}

std::optional<std::string> StoredHash(const std::string& token) {
  if (!token.starts_with(kHashed)) {
    if (token.size() < kShortestToken) return std::nullopt;
    return HashOf(token);
  }
  const std::string hex = token.substr(kHashed.size());
  if (hex.size() != 2 * SHA256_DIGEST_LENGTH ||
      hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
    return std::nullopt;
  }
  return absl::HexStringToBytes(hex);
}

// Empty: it has none.
std::string NameOfUid(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  while (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kMostEntryBytes) {
    buffer.resize(2 * buffer.size());
  }
  return found == nullptr ? "" : found->pw_name;
}

}  // namespace

bool IsLocalAdmin(uid_t uid) { return uid == 0 || uid == geteuid(); }

absl::StatusOr<Access> Access::Load(const std::string& token_file) {
  Access access;
  access.token_file_ = token_file;
  RETURN_IF_ERROR(access.Reload());
  return access;
}

absl::Status Access::Reload() {
  if (token_file_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<Caller> tokens, ReadTokens(token_file_));
  const absl::MutexLock lock(&shared_->mutex);
  shared_->tokens = std::move(tokens);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Caller>> Access::ReadTokens(const std::string& token_file) {
  struct stat about {};
  ASSIGN_OR_RETURN(const std::string text, base::ReadWholeFile(token_file));
  if (stat(token_file.c_str(), &about) != 0) {
    return absl::ErrnoToStatus(errno, "cannot read the token file " + token_file);
  }
  if ((about.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        fmt::format("{}: others than its owner may read it; chmod 600 {}", token_file, token_file));
  }
  std::vector<Caller> tokens;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string role_word, user, token, nodes, more;
    if (!(words >> role_word)) continue;
    const std::optional<Role> role = RoleOf(role_word);
    bool whole = static_cast<bool>(words >> user >> token);
    const bool bound = whole && static_cast<bool>(words >> nodes);
    if (bound) whole = role == Role::kAgent && nodes.starts_with(kNodes) && !(words >> more);
    const std::optional<std::string> hash = whole ? StoredHash(token) : std::nullopt;
    if (!role || !hash) {
      return absl::InvalidArgumentError(fmt::format(
          "{}:{}: expected 'ROLE USER TOKEN' with {} and a TOKEN of at least {} characters or "
          "sha256:HEX; of an agent nodes=NAME,NAME may follow",
          token_file, number, kRoles, kShortestToken));
    }
    if (base::ShowableLine(user, kLongestUser) != user) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}: the user's name is not UTF-8, or longer than {} bytes", token_file,
                      number, kLongestUser));
    }
    Caller caller{user, *role};
    if (bound) caller.nodes = absl::StrSplit(nodes.substr(kNodes.size()), ',');
    caller.token_hash = *hash;
    tokens.push_back(std::move(caller));
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{}: holds no token; a line is 'ROLE USER TOKEN' with {}", token_file, kRoles));
  }
  return tokens;
}

std::optional<Caller> Access::LocalCaller(uid_t uid) const {
  const bool admin = IsLocalAdmin(uid);
  std::string name = NameOfUid(uid);
  const bool plain = !name.empty() && base::ShowableLine(name, kLongestUser) == name;
  if (!plain && !admin) return std::nullopt;
  if (!plain) name = fmt::format("uid:{}", uid);  // as in a container
  return Caller{std::move(name), admin ? Role::kAdmin : Role::kSubmit};
}

std::optional<Caller> Access::Find(const std::string& hash) const {
  const absl::MutexLock lock(&shared_->mutex);
  const Caller* found = nullptr;
  for (const Caller& one : shared_->tokens) {
    if (CRYPTO_memcmp(one.token_hash.data(), hash.data(), hash.size()) == 0) found = &one;
  }
  return found == nullptr ? std::nullopt : std::optional<Caller>(*found);
}

absl::Status Access::StillKnows(const Caller& caller) const {
  if (caller.token_hash.empty()) return absl::OkStatus();
  const std::optional<Caller> now = Find(caller.token_hash);
  if (now && now->user == caller.user && now->role == caller.role && now->nodes == caller.nodes) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(fmt::format(
      "the token of {} was taken back, or stands for something else now; call again with one that "
      "the daemon's token file names",
      caller.user));
}

absl::StatusOr<Caller> Access::Identify(const Caller* local, std::string_view authorization) const {
  if (absl::StartsWithIgnoreCase({authorization.data(), authorization.size()},
                                 {kBearer.data(), kBearer.size()})) {
    const std::string hash = HashOf(authorization.substr(kBearer.size()));
    if (std::optional<Caller> found = Find(hash)) return *std::move(found);
    return absl::UnauthenticatedError("this daemon does not know your token");
  }
  if (local != nullptr) return *local;
  return absl::UnauthenticatedError(
      "this daemon wants a token: give --token-file (one that the daemon's token file names)");
}

std::string NameOf(const Caller& caller) {
  return caller.token_hash.empty() ? caller.user + " (unix user)" : caller.user;
}

std::string_view WordOf(Role role) {
  switch (role) {
    case Role::kSubmit:
      return "submit";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
    case Role::kAgent:
      return "agent";
  }
  return "";
}

absl::Status MayTouch(const Caller& caller, const std::string& owner) {
  if (caller.role == Role::kAdmin) return absl::OkStatus();
  if (caller.role != Role::kAgent && caller.user == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("this job belongs to {}; you are {}, and no admin", owner, caller.user));
}

absl::Status MayAskPriority(const Caller& caller, int64_t priority) {
  if (priority <= 0 || IsUncapped(caller)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("job.resources.priority: {0} is above 0, for which {1} needs the role operator; "
                  "ask for 0 or less, or have an admin give {1} that role in the daemon's token "
                  "file",
                  priority, caller.user));
}

absl::Status MayBeNode(const Caller& caller, const std::string& node) {
  const auto is = [&](const std::string& name) {
    if (!name.ends_with('*')) return name == node;
    return node.starts_with(std::string_view(name).substr(0, name.size() - 1));
  };
  if (caller.nodes.empty() || std::any_of(caller.nodes.begin(), caller.nodes.end(), is)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      fmt::format("the token of {} is for other nodes than {}: its line in the daemon's token file "
                  "says nodes={}",
                  caller.user, node, absl::StrJoin(caller.nodes, ",")));
}

absl::Status MustBe(const Caller& caller, Role role) {
  const bool operates = caller.role == Role::kOperator && role == Role::kSubmit;
  if (caller.role == role || caller.role == Role::kAdmin || operates) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("{} has not the role that this needs: {}", caller.user, WordOf(role)));
}

}  // namespace trireme::coordinator
