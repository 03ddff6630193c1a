// Whose desired state this agent acts on, remembered in STATE/store.json: docs/adr/0018.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::agent {

// One thread.
class ServedStore {
 public:
  // DataLoss: the file is none of ours. Nobody can say then what would be ended.
  static absl::StatusOr<ServedStore> Load(const std::string& state_folder);

  // The newest that was noted; without a store: none.
  const v1::StorePosition& served() const { return served_; }
  // A line was made.
  void Meet(const v1::AgentWelcome& welcome);
  // An admin has said that desired states from `revision` on are to be acted on.
  void Adopt(uint64_t revision);
  // Whether a desired state of the daemon that was met is to be acted on. `live`: attempts are held
  // that have not ended; without any there is nothing to lose. Once true, it stays so for the line.
  bool Serves(bool live, uint64_t revision);
  // It has been acted on. On the disk when this returns OK; else to be noted again.
  absl::Status Note(const v1::StorePosition& position);

 private:
  explicit ServedStore(std::string path) : path_(std::move(path)) {}

  std::string path_;
  v1::StorePosition served_;
  bool serves_ = false;         // of this line
  bool adopted_ = false;        // likewise
  uint64_t from_revision_ = 0;  // of adopted_
};

}  // namespace trireme::agent
