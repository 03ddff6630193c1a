#include "checkpoint/client/snapshot_key.h"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "runtime/base/durable.h"
#include "runtime/base/random_hex.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"

namespace trireme::checkpoint {
namespace {

constexpr size_t kDigits = 2 * sizeof(SnapshotKey);
constexpr size_t kMostBytes = 64;

std::string PathIn(const std::string& run_folder) {
  return base::Text(run_folder, "/", kSnapshotKeyName);
}

// `digits`: as many as a key has.
SnapshotKey KeyOf(std::string_view digits) {
  SnapshotKey key;
  for (size_t at = 0; at < key.size(); ++at) {
    uint8_t byte = 0;
    std::from_chars(digits.data() + 2 * at, digits.data() + 2 * at + 2, byte, 16);
    key[at] = std::byte{byte};
  }
  return key;
}

// Behind the digits: which folder it is, under whatever name and however it is mounted.
absl::StatusOr<std::string> RestOf(const std::string& run_folder) {
  struct stat about {};
  if (stat(run_folder.c_str(), &about) != 0) return base::ErrnoStatus(errno, run_folder);
  return base::Text(" ", about.st_ino, "\n");
}

}  // namespace

std::string SnapshotKeyText(const SnapshotKey& key) {
  std::string text;
  for (const std::byte each : key) {
    absl::StrAppend(&text, absl::Hex(std::to_integer<unsigned>(each), absl::kZeroPad2));
  }
  return text;
}

absl::StatusOr<SnapshotKey> ReadSnapshotKey(const std::string& run_folder) {
  const std::string path = PathIn(run_folder);
  const absl::StatusOr<std::string> text = base::ReadPlainFile(path, kMostBytes);
  const bool no_text =
      absl::IsResourceExhausted(text.status()) || absl::IsFailedPrecondition(text.status());
  if (!no_text) RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const std::string rest, RestOf(run_folder));
  const bool is_key = !no_text && text->size() > kDigits &&
                      text->find_first_not_of("0123456789abcdef") == kDigits &&
                      text->substr(kDigits) == rest;
  if (is_key) return KeyOf(*text);
  return absl::DataLossError(base::Text(path, ": is no key of this folder's snapshots"));
}

absl::StatusOr<SnapshotKey> ReadOrDrawSnapshotKey(const std::string& run_folder) {
  absl::StatusOr<SnapshotKey> there = ReadSnapshotKey(run_folder);
  if (!absl::IsNotFound(there.status()) && !absl::IsDataLoss(there.status())) return there;
  const std::string drawn = base::RandomHex(kDigits);
  ASSIGN_OR_RETURN(const std::string rest, RestOf(run_folder));
  RETURN_IF_ERROR(base::WriteWholeFile(PathIn(run_folder), drawn + rest, 0600));
  return KeyOf(drawn);
}

}  // namespace trireme::checkpoint
