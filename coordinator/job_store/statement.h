// Prepared statements. A Statement owns one; an Execution is one run of it, which binds values,
// steps through rows and resets the statement at its end, whatever happened in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

struct sqlite3_stmt;

namespace trireme::coordinator {

class Connection;

// Bytes, where a plain string_view would be text.
struct Blob {
  std::string_view bytes;
};

// Not longer-lived than its connection. Threads: as its connection.
class Statement {
 public:
  Statement() = default;
  Statement(const Connection& connection, sqlite3_stmt* owned);

 private:
  friend class Execution;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  const Connection* connection_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Execution {
 public:
  // Binds `values` to ?1, ?2 ...; text and blobs must outlive this. What fails is told by Step.
  template <typename... Values>
  explicit Execution(Statement& statement, const Values&... values) : statement_(statement) {
    int index = 0;
    (Bind(++index, values), ...);
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution();

  // True: there is a row to look at; false: there are no more.
  absl::StatusOr<bool> Step();
  // For statements without rows.
  absl::Status Finish();

  // Of the current row, columns from 0; views are valid until the next Step.
  int64_t Integer(int column) const;
  std::string_view Bytes(int column) const;

 private:
  void Bind(int index, int64_t value);
  void Bind(int index, std::string_view text);
  void Bind(int index, Blob blob);
  void Note(int result);

  Statement& statement_;
  absl::Status bound_;
};

}  // namespace trireme::coordinator
