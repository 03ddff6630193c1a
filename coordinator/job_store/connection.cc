#include "coordinator/job_store/connection.h"

#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "coordinator/job_store/job_facts.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::coordinator {
namespace {

constexpr int kStepsALook = 100;  // of SQLite's machine, between looks at whether it is to stop

uint32_t SumOn(uint32_t sum, const void* data, size_t bytes) {
  return checksum::Crc32c({static_cast<const std::byte*>(data), bytes}, sum);
}

uint32_t SumOn(uint32_t sum, uint64_t number) {
  std::byte bytes[8];
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  return SumOn(sum, bytes, sizeof bytes);
}

// row_sum(column, ...): the `sum` of docs/formats/job_store.md.
void RowSum(sqlite3_context* context, int count, sqlite3_value** values) {
  uint32_t sum = 0;
  for (sqlite3_value* value : std::span(values, static_cast<size_t>(count))) {
    if (sqlite3_value_type(value) == SQLITE_INTEGER) {
      sum = SumOn(sum, static_cast<uint64_t>(sqlite3_value_int64(value)));
      continue;
    }
    const void* data = sqlite3_value_blob(value);
    const auto bytes = static_cast<size_t>(sqlite3_value_bytes(value));
    sum = SumOn(SumOn(sum, bytes), data, bytes);
  }
  sqlite3_result_int64(context, sum);
}

// Of columns `job`. What cannot be read is live, so that it is looked at.
void JobLive(sqlite3_context* context, int, sqlite3_value** values) {
  v1::Job job;
  const bool read = job.ParseFromArray(sqlite3_value_blob(*values), sqlite3_value_bytes(*values));
  sqlite3_result_int64(context, !read || IsLive(job) ? 1 : 0);
}

void JobRunParent(sqlite3_context* context, int, sqlite3_value** values) {
  v1::Job job;
  const bool read = job.ParseFromArray(sqlite3_value_blob(*values), sqlite3_value_bytes(*values));
  const std::string parent = read ? RunParentOf(job) : "";
  sqlite3_result_text(context, parent.data(), static_cast<int>(parent.size()), SQLITE_TRANSIENT);
}

void AddFunctions(sqlite3* database) {
  const int pure = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
  sqlite3_create_function(database, "row_sum", -1, pure, nullptr, &RowSum, nullptr, nullptr);
  sqlite3_create_function(database, "job_live", 1, pure, nullptr, &JobLive, nullptr, nullptr);
  sqlite3_create_function(database, "job_run_parent", 1, pure, nullptr, &JobRunParent, nullptr,
                          nullptr);
}

// For a file: URI.
std::string Escaped(const std::string& path) {
  std::string escaped;
  for (const char c : path) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.';
    escaped += plain ? std::string(1, c) : absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
  }
  return escaped;
}

// What the system last said of the log or the file; 0: nothing. sqlite3_system_errno is not asked:
// it is silent about a COMMIT.
int LastError(sqlite3* database) {
  int of_log = 0, of_file = 0;
  sqlite3_file* log = nullptr;
  sqlite3_file_control(database, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
  // One in memory has no such call.
  if (log != nullptr && log->pMethods != nullptr && log->pMethods->xFileControl != nullptr) {
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &of_log);
  }
  sqlite3_file_control(database, "main", SQLITE_FCNTL_LAST_ERRNO, &of_file);
  return of_log != 0 ? of_log : of_file;
}

// SQLITE_FULL is ENOSPC alone.
bool IsFull(int result, int error) {
  const bool written = result == SQLITE_IOERR_WRITE || result == SQLITE_IOERR_FSYNC;
  return result == SQLITE_FULL ||
         (written && (error == ENOSPC || error == EDQUOT || error == EFBIG));
}

absl::Status InputOutputStatus(int result, int error, const std::string& fault) {
  switch (result) {
    case SQLITE_IOERR_SHORT_READ:
    case SQLITE_IOERR_CORRUPTFS:
    case SQLITE_IOERR_DATA:
      return absl::DataLossError(fault);
    case SQLITE_IOERR_NOMEM:
      return absl::ResourceExhaustedError(fault);
    default:
      return absl::UnavailableError(
          base::Text(fault, " (", strerror(error), "); look at the disk, then try again"));
  }
}

absl::Status CannotOpen(int error, const std::string& path) {
  const std::string fault = base::Text(path, ": cannot be opened (", strerror(error), ")");
  if (error == ENOENT) return absl::NotFoundError(fault);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(
        base::Text(fault, "; it and its folder must be writable for this user"));
  }
  return absl::UnavailableError(fault);
}

}  // namespace

Connection::Connection(std::string path, sqlite3* owned)
    : path_(std::move(path)), database_(owned) {}

Connection::~Connection() { sqlite3_close(database_); }

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& path) {
  sqlite3* database = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  if (database == nullptr) return absl::ResourceExhaustedError(path + ": no memory to open it");
  std::unique_ptr<Connection> connection(new Connection(path, database));
  if (result != SQLITE_OK) return connection->StatusOf(result);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_busy_timeout(database, 1000);
  AddFunctions(database);
  // EXCLUSIVE before the first read: the log then needs no shared memory.
  RETURN_IF_ERROR(
      connection->Execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL;"
                          "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON"));
  return connection;
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::OpenStill(const std::string& path,
                                                                  const std::atomic<bool>& stop) {
  sqlite3* database = nullptr;
  const std::string uri = "file:" + Escaped(path) + "?immutable=1";
  const int flags =
      SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(uri.c_str(), &database, flags, nullptr);
  if (database == nullptr) return absl::ResourceExhaustedError(path + ": no memory to open it");
  std::unique_ptr<Connection> connection(new Connection(path, database));
  if (result != SQLITE_OK) return connection->StatusOf(result);
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  AddFunctions(database);
  sqlite3_progress_handler(
      database, kStepsALook,
      [](void* flag) { return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0; },
      const_cast<std::atomic<bool>*>(&stop));
  return connection;
}

void Connection::Interrupt() { sqlite3_interrupt(database_); }

void Connection::Accept() {
  sqlite3_db_config(database_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
}

absl::Status Connection::Execute(const std::string& sql) {
  const int result = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : StatusOf(result);
}

absl::StatusOr<Statement> Connection::Prepare(const char* sql) const {
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (result != SQLITE_OK) return StatusOf(result);
  return Statement(*this, statement);
}

absl::StatusOr<int64_t> Connection::Integer(const char* sql) const {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  Execution query(statement);
  ASSIGN_OR_RETURN(const bool found, query.Step());
  return found ? query.Integer(0) : 0;
}

absl::StatusOr<std::string> Connection::Text(const char* sql) const {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  Execution query(statement);
  std::string text;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return text;
    if (!text.empty()) text += '\n';
    text += query.Bytes(0);
  }
}

absl::Status Connection::StatusOf(int result) const {
  const int open_error = sqlite3_system_errno(database_);
  const int error = LastError(database_);
  // A backup leaves no message behind while it is under way.
  const bool told = sqlite3_extended_errcode(database_) == result;
  const std::string fault =
      base::Text(path_, ": ", told ? sqlite3_errmsg(database_) : sqlite3_errstr(result));
  if (IsFull(result, error)) {
    return absl::UnavailableError(
        base::Text(path_, ": its disk is full (", strerror(result == SQLITE_FULL ? ENOSPC : error),
                   "); nothing was changed: free space there, then try again"));
  }
  switch (result & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          base::Text(path_, ": is held by another process; stop that one (`fuser ", path_,
                     "` names it) or give this one another store"));
    case SQLITE_NOTADB:
      return absl::DataLossError(base::Text(path_, ": is no job store, or its head is damaged"));
    case SQLITE_CORRUPT:
      return absl::DataLossError(
          base::Text(fault, "; put back a backup, or move it away to begin anew"));
    case SQLITE_IOERR:
      return InputOutputStatus(result, error, fault);
    case SQLITE_CANTOPEN:
      return CannotOpen(open_error, path_);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(
          base::Text(fault, "; it and its folder must be writable for this user"));
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(fault);
    case SQLITE_INTERRUPT:
      return absl::CancelledError(fault);
    case SQLITE_TOOBIG:
      return absl::InvalidArgumentError(fault);
    default:
      return absl::InternalError(base::Text(fault, " (SQLite ", result, ")"));
  }
}

bool Connection::InTransaction() const { return sqlite3_get_autocommit(database_) == 0; }

Transaction::~Transaction() {
  // After some errors SQLite has rolled back by itself.
  if (connection_.InTransaction()) connection_.Execute("ROLLBACK").IgnoreError();
}

}  // namespace trireme::coordinator
