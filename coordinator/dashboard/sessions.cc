// Secrets are looked up by their hashes, so the time of a search says nothing of a secret.
#include "coordinator/dashboard/sessions.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "runtime/base/check.h"

namespace trireme::dashboard {
namespace {

constexpr size_t kSecretBytes = 32;

// Letters, digits, '-' and '_': as it is in a link and in a cookie.
std::string NewSecret() {
  std::string bytes(kSecretBytes, '\0');
  TRIREME_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                           static_cast<int>(bytes.size())) == 1);
  std::string text = absl::WebSafeBase64Escape(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

std::string HashOf(const std::string& secret) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

bool IsOlder(int64_t then_ns, std::chrono::nanoseconds life, int64_t now_ns) {
  return now_ns - then_ns > life.count();
}

}  // namespace

void Sessions::DropOne(Entries& entries) {
  std::map<std::string, size_t> counts;  // by user
  size_t most = 0;
  for (const auto& [hash, entry] : entries) most = std::max(most, ++counts[entry.caller.user]);
  auto oldest = entries.end();
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (counts[entry->second.caller.user] < most) continue;
    if (oldest == entries.end() || entry->second.used_ns < oldest->second.used_ns) oldest = entry;
  }
  entries.erase(oldest);
}

void Sessions::Add(Entries& entries, const std::string& secret, const coordinator::Caller& caller,
                   int64_t now_ns) {
  if (entries.size() >= kMost) DropOne(entries);
  entries[HashOf(secret)] = {caller, now_ns, now_ns};
}

std::string Sessions::MakeKey(const coordinator::Caller& caller, int64_t now_ns) {
  std::string key = NewSecret();
  const absl::MutexLock lock(&mutex_);
  Add(keys_, key, caller, now_ns);
  return key;
}

std::optional<std::string> Sessions::Redeem(const std::string& key, int64_t now_ns) {
  Entry entry;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = keys_.find(HashOf(key));
    if (found == keys_.end()) return std::nullopt;
    entry = std::move(found->second);
    keys_.erase(found);
  }
  if (IsOlder(entry.made_ns, kKeyLife, now_ns) || !MayComeIn(entry.caller)) return std::nullopt;
  std::string secret = NewSecret();
  const absl::MutexLock lock(&mutex_);
  Add(sessions_, secret, entry.caller, now_ns);
  return secret;
}

std::optional<coordinator::Caller> Sessions::Find(const std::string& secret, int64_t now_ns) {
  std::optional<coordinator::Caller> caller = FindEntry(secret, now_ns);
  if (!caller || MayComeIn(*caller)) return caller;
  End(secret);
  return std::nullopt;
}

std::optional<coordinator::Caller> Sessions::FindEntry(const std::string& secret, int64_t now_ns) {
  const absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(HashOf(secret));
  if (found == sessions_.end()) return std::nullopt;
  Entry& entry = found->second;
  if (IsOlder(entry.used_ns, kIdleLife, now_ns) || IsOlder(entry.made_ns, kLongestLife, now_ns)) {
    sessions_.erase(found);
    return std::nullopt;
  }
  entry.used_ns = std::max(entry.used_ns, now_ns);
  return entry.caller;
}

void Sessions::End(const std::string& secret) {
  const absl::MutexLock lock(&mutex_);
  sessions_.erase(HashOf(secret));
}

void Sessions::EndAll() {
  const absl::MutexLock lock(&mutex_);
  keys_.clear();
  sessions_.clear();
}

}  // namespace trireme::dashboard
