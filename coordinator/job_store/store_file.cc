#include "coordinator/job_store/store_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "runtime/base/durable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

absl::Status SystemFault(const std::string& path, const char* what, int error) {
  return base::ErrnoStatus(error, base::Text(path, ": ", what));
}

absl::Status FillNewFile(const std::string& path, std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(path));
  // Half made it is thrown away, so it needs no journal on disk.
  RETURN_IF_ERROR(connection->Execute("PRAGMA journal_mode = MEMORY"));
  return Migrate(*connection, migrations);
}

// Leaves an existing file as it is: another process may have been quicker.
absl::Status MakeFile(const std::string& path, std::span<const Migration> migrations) {
  for (const char* suffix : {"-wal", "-journal"}) {
    struct stat about {};
    if (stat((path + suffix).c_str(), &about) == 0 && about.st_size > 0) {
      return absl::DataLossError(base::Text(path, ": is missing, but its log ", path, suffix,
                                            " is there; put the file back, or move the log away "
                                            "to begin anew"));
    }
  }
  std::string fresh = path + ".XXXXXX";
  const int file = mkostemp(fresh.data(), O_CLOEXEC);  // mode 0600
  if (file < 0) return SystemFault(path, "cannot be made", errno);
  close(file);
  absl::Status status = FillNewFile(fresh, migrations);
  if (status.ok() && link(fresh.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    status = SystemFault(path, "cannot be made", errno);
  }
  unlink(fresh.c_str());
  // The folder must keep the name of a new file through a power cut too.
  if (status.ok()) status = base::SyncFolderOf(path);
  if (status.ok()) status = base::SyncWayTo(path);
  return base::Annotate(status, "making the job store");
}

// True: there is a regular file.
absl::StatusOr<bool> Exists(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return false;
    return SystemFault(path, "cannot be looked at", errno);
  }
  if (S_ISREG(about.st_mode)) return true;
  return absl::FailedPreconditionError(path + ": is no regular file; name a file");
}

// The file and its log. By name: opening and closing it here would drop the locks of the
// connection.
absl::Status MakePrivate(const std::string& path) {
  for (const std::string& name : {path, path + "-wal"}) {
    struct stat about {};
    if (stat(name.c_str(), &about) != 0 || (about.st_mode & 0777) == 0600) continue;
    if (chmod(name.c_str(), 0600) != 0) return SystemFault(name, "cannot be made private", errno);
  }
  return absl::OkStatus();
}

absl::Status UseLog(Connection& connection) {
  ASSIGN_OR_RETURN(const std::string mode, connection.Text("PRAGMA journal_mode = WAL"));
  if (mode == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(base::Text(
      connection.path(), ": this file system cannot hold its log; choose a store on a local disk"));
}

std::string NoteOf(const std::string& path) { return path + "-damaged"; }

bool IsNoted(const std::string& path) { return access(NoteOf(path).c_str(), F_OK) == 0; }

// `check`: kAll where that is due.
absl::StatusOr<std::unique_ptr<Connection>> Recognise(const std::string& path, int64_t newest,
                                                      StoreCheck& check) {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connection::Open(path));
  RETURN_IF_ERROR(Identify(*connection, newest));
  // Steps of a migration build on what they find.
  ASSIGN_OR_RETURN(const int64_t version, connection->Integer("PRAGMA user_version"));
  if (version != newest || IsNoted(path)) check = StoreCheck::kAll;
  if (check == StoreCheck::kAll) RETURN_IF_ERROR(CheckPages(*connection));
  return connection;
}

absl::StatusOr<std::unique_ptr<Connection>> OpenFile(const std::string& path,
                                                     std::span<const Migration> migrations,
                                                     StoreCheck& check) {
  ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists) RETURN_IF_ERROR(MakeFile(path, migrations));
  auto connection = Recognise(path, static_cast<int64_t>(migrations.size()), check);
  // What SQLite has no code of its own for, such as a format of file that it does not know.
  if (absl::IsInternal(connection.status())) {
    return absl::DataLossError(base::MessageOf(connection.status()));
  }
  if (!connection.ok()) return connection;
  RETURN_IF_ERROR(MakePrivate(path));
  RETURN_IF_ERROR(UseLog(**connection));
  return connection;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> OpenStoreFile(const std::string& path,
                                                          std::span<const Migration> migrations,
                                                          StoreCheck check) {
  if (path.empty()) return absl::InvalidArgumentError("the path of the job store is empty");
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection,
                   path == ":memory:" ? Connection::Open(path) : OpenFile(path, migrations, check));
  RETURN_IF_ERROR(Migrate(*connection, migrations));
  const bool all = check == StoreCheck::kAll;
  RETURN_IF_ERROR(all ? CheckRows(*connection) : CheckSmallTables(*connection));
  if (all) unlink(NoteOf(path).c_str());
  connection->Accept();
  RETURN_IF_ERROR(connection->Execute("PRAGMA foreign_keys = ON"));
  return connection;
}

absl::Status NoteDamage(const std::string& path, const absl::Status& damage) {
  const int note = open(NoteOf(path).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (note < 0) {
    return absl::Status(
        damage.code(),
        base::Text(base::MessageOf(damage), "; ", NoteOf(path), " cannot be made (",
                   strerror(errno), "), so that the next start does not check all of it first"));
  }
  close(note);
  base::SyncFolderOf(path).IgnoreError();
  return damage;
}

}  // namespace trireme::coordinator
