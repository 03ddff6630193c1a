#include "coordinator/job_store/statement.h"

#include <sqlite3.h>

#include "coordinator/job_store/connection.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {

Statement::Statement(const Connection& connection, sqlite3_stmt* owned)
    : connection_(&connection), statement_(owned) {}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Execution::~Execution() {
  sqlite3_reset(statement_.statement_.get());
  sqlite3_clear_bindings(statement_.statement_.get());
}

absl::StatusOr<bool> Execution::Step() {
  RETURN_IF_ERROR(bound_);
  const int result = sqlite3_step(statement_.statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return statement_.connection_->StatusOf(result);
}

absl::Status Execution::Finish() {
  bool more = true;
  while (more) {
    ASSIGN_OR_RETURN(more, Step());
  }
  return absl::OkStatus();
}

int64_t Execution::Integer(int column) const {
  return sqlite3_column_int64(statement_.statement_.get(), column);
}

std::string_view Execution::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.statement_.get(), column);
  return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
}

void Execution::Bind(int index, int64_t value) {
  Note(sqlite3_bind_int64(statement_.statement_.get(), index, value));
}

void Execution::Bind(int index, std::string_view text) {
  // A null pointer would be NULL.
  Note(sqlite3_bind_text64(statement_.statement_.get(), index, text.empty() ? "" : text.data(),
                           text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

void Execution::Bind(int index, Blob blob) {
  Note(sqlite3_bind_blob64(statement_.statement_.get(), index,
                           blob.bytes.empty() ? "" : blob.bytes.data(), blob.bytes.size(),
                           SQLITE_STATIC));
}

void Execution::Note(int result) {
  if (result != SQLITE_OK && bound_.ok()) bound_ = statement_.connection_->StatusOf(result);
}

}  // namespace trireme::coordinator
