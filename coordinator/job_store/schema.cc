#include "coordinator/job_store/schema.h"

#include <memory>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr Migration kMigrations[] = {
    {0, R"sql(
CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL,
                   sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('last_job_id', 0, row_sum('last_job_id', 0));
CREATE TABLE jobs (id INTEGER PRIMARY KEY, job BLOB NOT NULL, sum INTEGER NOT NULL) STRICT;
CREATE TABLE requests (owner TEXT NOT NULL, request_id TEXT NOT NULL,
                       job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
                       sum INTEGER NOT NULL, PRIMARY KEY (owner, request_id)) STRICT, WITHOUT ROWID;
CREATE TABLE events (sequence INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, event BLOB NOT NULL,
                     sum INTEGER NOT NULL) STRICT;
CREATE INDEX events_of_job ON events (job_id);
CREATE TABLE nodes (name TEXT PRIMARY KEY NOT NULL, node BLOB NOT NULL,
                    sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
)sql"},
    // Jobs are dropped, and their requests with them.
    {1, "CREATE INDEX requests_of_job ON requests (job_id);"},
    // A random UUID (version 4), in a row of its own first: a subquery may be evaluated twice.
    {2, R"sql(
CREATE TABLE identity (store TEXT PRIMARY KEY NOT NULL, sum INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO identity VALUES (
  lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) ||
        '-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))), 0);
UPDATE identity SET sum = row_sum(store);
CREATE TABLE epochs (epoch INTEGER PRIMARY KEY, opening INTEGER NOT NULL,
                     after_sequence INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT;
)sql"},
    // Which jobs are read before a daemon is ready, and where run folders were ever made. A job
    // that was damaged before stays so.
    {3, R"sql(
CREATE TABLE jobs_with_live (id INTEGER PRIMARY KEY, live INTEGER NOT NULL, job BLOB NOT NULL,
                             sum INTEGER NOT NULL) STRICT;
INSERT INTO jobs_with_live
  SELECT id, job_live(job), job,
         iif(sum = row_sum(id, job), row_sum('job', id, job_live(job), job), -1)
  FROM jobs;
DROP TABLE jobs;
ALTER TABLE jobs_with_live RENAME TO jobs;
CREATE INDEX live_jobs ON jobs (id) WHERE live = 1;
INSERT INTO meta SELECT 'live_jobs', count(*), row_sum('live_jobs', count(*)) FROM jobs
  WHERE live = 1;
CREATE TABLE run_parents (folder TEXT PRIMARY KEY NOT NULL, sum INTEGER NOT NULL) STRICT,
  WITHOUT ROWID;
INSERT INTO run_parents SELECT folder, row_sum(folder)
  FROM (SELECT DISTINCT job_run_parent(job) AS folder FROM jobs) WHERE folder <> '';
)sql"},
};

// Each finds the first row that is not as it was written, and names it. These read what is small
// whatever the daemon has seen.
constexpr const char* kSmallFaults[] = {
    "SELECT 'meta ' || name FROM meta WHERE sum <> row_sum(name, value) LIMIT 1",
    "SELECT 'node ' || name FROM nodes WHERE sum <> row_sum(name, node) LIMIT 1",
    "SELECT 'identity' FROM identity WHERE sum <> row_sum(store) LIMIT 1",
    "SELECT 'identity' WHERE (SELECT count(*) FROM identity) <> 1",
    "SELECT 'epoch ' || epoch FROM epochs"
    " WHERE sum <> row_sum(epoch, opening, after_sequence) LIMIT 1",
    "SELECT 'the last job id' FROM (SELECT max(id) AS largest FROM jobs) WHERE largest >"
    " ifnull((SELECT value FROM meta WHERE name = 'last_job_id'), 0)",
    "SELECT 'the count of live jobs' WHERE (SELECT value FROM meta WHERE name = 'live_jobs')"
    " IS NOT (SELECT count(*) FROM jobs INDEXED BY live_jobs WHERE live = 1)",
    "SELECT 'folder ' || folder FROM run_parents WHERE sum <> row_sum(folder) LIMIT 1",
};
constexpr const char* kRowFaults[] = {
    "SELECT 'job ' || id FROM jobs"
    " WHERE sum <> row_sum('job', id, live, job) OR live <> job_live(job) LIMIT 1",
    "SELECT 'request ' || request_id || ' of ' || owner FROM requests"
    " WHERE sum <> row_sum(owner, request_id, job_id) LIMIT 1",
    "SELECT 'event ' || sequence FROM events WHERE sum <> row_sum(sequence, job_id, event) LIMIT 1",
    "SELECT 'the sequence of events' FROM (SELECT min(sequence) AS first, max(sequence) AS last,"
    " count(*) AS events FROM events) WHERE first < 1 OR last - first >= events",
    "SELECT 'a request without its job (rowid or key in ' || \"table\" || ')'"
    " FROM pragma_foreign_key_check LIMIT 1",
};

absl::Status FindFault(const Connection& connection, std::span<const char* const> queries) {
  for (const char* sql : queries) {
    ASSIGN_OR_RETURN(const std::string fault, connection.Text(sql));
    if (!fault.empty()) return Damaged(connection, fault);
  }
  return absl::OkStatus();
}

constexpr const char* kSchemaText =
    "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || ifnull(sql, '') FROM sqlite_schema"
    " ORDER BY type, name";

absl::Status RunSteps(Connection& connection, std::span<const Migration> migrations) {
  const auto newest = static_cast<int64_t>(migrations.size());
  ASSIGN_OR_RETURN(const int64_t version, connection.Integer("PRAGMA user_version"));
  for (int64_t from = version; from < newest; ++from) {
    const Migration& step = migrations[static_cast<size_t>(from)];
    TRIREME_CHECK(step.from == from);
    if (auto status = connection.Execute(step.sql); !status.ok()) {
      status = base::Annotate(
          status, base::Text("migration of the job store from version ", from, " to ", from + 1));
      // The step is right SQL: where it cannot run, the file is not of the version that it says.
      return absl::IsInternal(status) ? absl::DataLossError(base::MessageOf(status)) : status;
    }
  }
  if (version == newest) return absl::OkStatus();
  return connection.Execute(
      base::Text("PRAGMA application_id = ", kApplicationId, "; PRAGMA user_version = ", newest));
}

absl::StatusOr<std::string> ExpectedSchema(std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> fresh, Connection::Open(":memory:"));
  RETURN_IF_ERROR(RunSteps(*fresh, migrations));
  return fresh->Text(kSchemaText);
}

}  // namespace

absl::Status Damaged(const Connection& connection, const std::string& what) {
  return absl::DataLossError(base::Text(connection.path(), ": the job store is damaged (", what,
                                        "); put back a backup, or move it away to begin anew"));
}

std::span<const Migration> Migrations() { return kMigrations; }

absl::Status Identify(const Connection& connection, int64_t newest) {
  ASSIGN_OR_RETURN(const int64_t application, connection.Integer("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, connection.Integer("PRAGMA user_version"));
  if (application != kApplicationId || version < 1) {
    return absl::DataLossError(base::Text(connection.path(), ": is no job store (application_id ",
                                          application, ", version ", version,
                                          "); name another file, or move it away to begin anew"));
  }
  if (version > newest) {
    return absl::FailedPreconditionError(base::Text(
        connection.path(), ": is a job store of version ", version, ", this program knows up to ",
        newest, "; install the newer Trireme again, or begin anew with another store"));
  }
  return absl::OkStatus();
}

absl::Status Migrate(Connection& connection, std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const std::string expected, ExpectedSchema(migrations));
  Transaction transaction(connection);
  RETURN_IF_ERROR(transaction.Begin());
  ASSIGN_OR_RETURN(const int64_t version, connection.Integer("PRAGMA user_version"));
  RETURN_IF_ERROR(RunSteps(connection, migrations));
  ASSIGN_OR_RETURN(const std::string schema, connection.Text(kSchemaText));
  if (schema != expected) return Damaged(connection, "its schema is not that of its version");
  // A step may have taken rows over into another form: a fault there leaves the file as it was.
  if (version != static_cast<int64_t>(migrations.size())) RETURN_IF_ERROR(CheckRows(connection));
  return transaction.Commit();
}

absl::Status CheckPages(const Connection& connection) {
  ASSIGN_OR_RETURN(const std::string fault, connection.Text("PRAGMA integrity_check(1)"));
  return fault == "ok" ? absl::OkStatus() : Damaged(connection, fault);
}

absl::Status CheckSmallTables(const Connection& connection) {
  return FindFault(connection, kSmallFaults);
}

absl::Status CheckRows(const Connection& connection) {
  RETURN_IF_ERROR(CheckSmallTables(connection));
  return FindFault(connection, kRowFaults);
}

}  // namespace trireme::coordinator
