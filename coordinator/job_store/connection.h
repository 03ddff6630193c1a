// One SQLite connection: settings, transactions, and what its result codes mean to callers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/job_store/statement.h"

struct sqlite3;

namespace trireme::coordinator {

// Threads: one at a time; the owner has a mutex. Statuses name the path and what to do.
class Connection {
 public:
  // The existing file `path`, or ":memory:". Sets all that is not stored in the file, and nothing
  // else: the file is only looked at. SQL may call row_sum(...) (docs/formats/job_store.md). Until
  // Accept the log is left as it is when this closes.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& path);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // The file `path`, which nobody changes as long as this is used: read beside the connection that
  // holds it. SQLite knows both, so that the locks of that one outlive this.
  // What runs or begins while `stop` is set ends with Cancelled.
  static absl::StatusOr<std::unique_ptr<Connection>> OpenStill(const std::string& path,
                                                               const std::atomic<bool>& stop);
  // What runs ends with Cancelled: also where SQLite does not look at `stop`, as in the midst of
  // an integrity_check. What begins later does not. Threads: any.
  void Interrupt();

  // The file is ours: closing it may tidy it up.
  void Accept();

  // Statements without parameters; their rows are dropped.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const char* sql) const;
  // First column of the first row; 0 if there is none.
  absl::StatusOr<int64_t> Integer(const char* sql) const;
  // First columns of all rows, joined by line feeds.
  absl::StatusOr<std::string> Text(const char* sql) const;

  // Of the call that has just returned `result`.
  absl::Status StatusOf(int result) const;
  bool InTransaction() const;
  const std::string& path() const { return path_; }
  // For what SQLite does between two connections.
  sqlite3* database() const { return database_; }

 private:
  Connection(std::string path, sqlite3* owned);

  const std::string path_;
  sqlite3* const database_;
};

// From BEGIN IMMEDIATE to Commit; rolled back at its end if that was not reached or has failed.
class Transaction {
 public:
  explicit Transaction(Connection& connection) : connection_(connection) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();

  absl::Status Begin() { return connection_.Execute("BEGIN IMMEDIATE"); }
  absl::Status Commit() { return connection_.Execute("COMMIT"); }

 private:
  Connection& connection_;
};

}  // namespace trireme::coordinator
