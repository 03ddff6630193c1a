#include "coordinator/agent/served_store.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/whole_file.h"

namespace trireme::agent {

absl::StatusOr<ServedStore> ServedStore::Load(const std::string& state_folder) {
  ServedStore store(state_folder + "/store.json");
  const auto text = base::ReadWholeFile(store.path_);
  if (absl::IsNotFound(text.status())) return store;
  RETURN_IF_ERROR(text.status());
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a newer program
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &store.served_, options);
  if (parsed.ok() && !store.served_.store().empty()) return store;
  return absl::DataLossError(fmt::format(
      "{}: does not say whom this agent has served; see with ps whether ranks run here that it "
      "holds (attempts/ beside it), then remove the file: the next daemon that answers is served",
      store.path_));
}

void ServedStore::Meet(const v1::AgentWelcome& welcome) {
  serves_ = served_.store().empty() || welcome.continues();
  adopted_ = false;
}

void ServedStore::Adopt(uint64_t revision) {
  adopted_ = true;
  from_revision_ = revision;
}

bool ServedStore::Serves(bool live, uint64_t revision) {
  serves_ = serves_ || !live || (adopted_ && revision >= from_revision_);
  return serves_;
}

absl::Status ServedStore::Note(const v1::StorePosition& position) {
  // Of a daemon that has no name for its store: nothing to remember.
  if (position.store().empty()) return absl::OkStatus();
  if (position.SerializeAsString() == served_.SerializeAsString()) return absl::OkStatus();
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(position, &text).ok()) {
    return absl::InternalError("a position of a store cannot be written as JSON");
  }
  RETURN_IF_ERROR(base::WriteWholeFile(path_, text + "\n", 0600));
  served_ = position;
  return absl::OkStatus();
}

}  // namespace trireme::agent
