// Whom an agent obeys, by the welcomes of daemons that do not exist.
#include "coordinator/agent/served_store.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/agent/agent_identity.h"
#include "runtime/base/check.h"

namespace trireme::agent {
namespace {

class StateFolder {
 public:
  StateFolder() {
    char path[] = "/tmp/trireme_served_XXXXXX";
    TRIREME_CHECK(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~StateFolder() { std::filesystem::remove_all(path_); }
  ServedStore Load() const {
    auto store = ServedStore::Load(path_);
    if (!store.ok()) FAIL(store.status().ToString());
    return *std::move(store);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

v1::StorePosition Position(uint64_t sequence) {
  v1::StorePosition position;
  position.set_store("11111111-0000-4000-a000-000000000000");
  position.set_epoch(3);
  position.set_opening(0xFEDCBA9876543210);
  position.set_sequence(sequence);
  return position;
}

v1::AgentWelcome Welcome(bool continues) {
  v1::AgentWelcome welcome;
  *welcome.mutable_store() = Position(5);
  welcome.set_continues(continues);
  return welcome;
}

TEST_CASE("served store: one that has served nobody serves the first that answers") {
  const StateFolder folder;
  ServedStore store = folder.Load();
  store.Meet(Welcome(false));
  CHECK(store.Serves(true, 1));
  REQUIRE(store.Note(Position(5)).ok());
  CHECK(folder.Load().served().SerializeAsString() == Position(5).SerializeAsString());
}

TEST_CASE("served store: while something runs, nobody is obeyed who does not go on from there") {
  const StateFolder folder;
  REQUIRE(folder.Load().Note(Position(9)).ok());
  ServedStore store = folder.Load();
  store.Meet(Welcome(false));
  CHECK(!store.Serves(true, 1));
  // Nothing runs any more: from then on, on this line.
  CHECK(store.Serves(false, 1));
  CHECK(store.Serves(true, 2));
  store.Meet(Welcome(false));
  CHECK(!store.Serves(true, 1));
  store.Meet(Welcome(true));
  CHECK(store.Serves(true, 1));
  // What a daemon without a name for its store says of itself is nothing.
  store.Meet(v1::AgentWelcome());
  CHECK(!store.Serves(true, 1));
}

TEST_CASE("served store: an adoption is of one line, and of what was desired after it") {
  const StateFolder folder;
  REQUIRE(folder.Load().Note(Position(9)).ok());
  ServedStore store = folder.Load();
  store.Meet(Welcome(false));
  store.Adopt(7);
  CHECK(!store.Serves(true, 6));
  CHECK(store.Serves(true, 7));
  store.Meet(Welcome(false));
  CHECK(!store.Serves(true, 8));
}

TEST_CASE("served store: a file that does not say is an error, and stays") {
  const StateFolder folder;
  const std::string path = folder.path() + "/store.json";
  const std::string text = GENERATE("", "{", "{}", "[]", "{\"store\": 3}");
  std::ofstream(path) << text;
  const absl::Status status = ServedStore::Load(folder.path()).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(std::string(status.message()).find(path) == 0);
  CHECK(std::filesystem::file_size(path) == text.size());
}

TEST_CASE("served store: what newer programs add to the file is let be") {
  const StateFolder folder;
  std::ofstream(folder.path() + "/store.json") << R"({"store": "a", "epoch": "2", "more": [1]})";
  CHECK(folder.Load().served().epoch() == 2);
}

TEST_CASE("served store: where the disk refuses, what was served stays what it was") {
  const StateFolder folder;
  ServedStore store = folder.Load();
  REQUIRE(store.Note(Position(1)).ok());
  std::filesystem::remove_all(folder.path());
  CHECK(!store.Note(Position(2)).ok());
  CHECK(store.served().sequence() == 1);
}

TEST_CASE("agent id: one for a state folder, and another one for another") {
  const StateFolder folder;
  const StateFolder other;
  const auto id = AgentIdOf(folder.path());
  REQUIRE(id.ok());
  CHECK(id->size() == 32);
  CHECK(*AgentIdOf(folder.path()) == *id);
  CHECK(*AgentIdOf(other.path()) != *id);
  const std::string text = GENERATE("", "x", "0123456789abcdef0123456789abcdeg");
  std::ofstream(folder.path() + "/agent-id") << text;
  CHECK(AgentIdOf(folder.path()).status().code() == absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace trireme::agent
