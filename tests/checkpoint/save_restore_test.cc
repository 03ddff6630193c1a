// What is saved at one layout comes back at any other, bit for bit, and each piece is read once.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/format/piece_table.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

std::string Save(const std::string& root, uint64_t step, std::vector<RankState>& states,
                 CheckpointInfo info) {
  auto folder = CheckpointWriter::Prepare(root, step);
  REQUIRE(folder.ok());
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const auto status =
        CheckpointWriter::WriteRank(*folder, static_cast<int>(rank), states[rank].shards());
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  const auto committed = CheckpointWriter::Commit(root, step, info);
  INFO(committed.status().ToString());
  REQUIRE(committed.ok());
  return *committed;
}

TEST_CASE("state saved at one layout is restored at others bit for bit") {
  Random random(23);
  TemporaryFolder root;
  const auto tensors = SampleTensors();
  for (int round = 0; round < 6; ++round) {
    const int ranks = static_cast<int>(Draw(random, 1, 5));
    auto states = RandomLayout(random, tensors, ranks);
    for (RankState& state : states) state.Fill(round);
    const std::string folder = Save(root.path(), round, states, InfoOf(round, ranks));
    REQUIRE(Verify(folder).ok());
    const auto opened = Open(folder);
    REQUIRE(opened.ok());
    for (int layouts = 0; layouts < 4; ++layouts) {
      for (RankState& target :
           RandomLayout(random, tensors, static_cast<int>(Draw(random, 1, 6)))) {
        const auto status = opened->Restore(target.shards());
        INFO(status.ToString());
        REQUIRE(status.ok());
        REQUIRE(target.Holds(round));
      }
    }
  }
}

TEST_CASE("what describes the run comes back as it was") {
  TemporaryFolder root;
  Random random(5);
  auto states = RandomLayout(random, SampleTensors(), 2);
  CheckpointInfo info = InfoOf(1234, 2);
  info.samples = std::numeric_limits<uint64_t>::max();
  info.job_yaml = std::string("é\t\"\\\n\0x", 8);
  info.scalars["nan"] = std::nan("");
  info.scalars["infinity"] = -std::numeric_limits<double>::infinity();
  info.scalars["tiny"] = std::numeric_limits<double>::denorm_min();
  const std::string folder = Save(root.path(), 1234, states, info);
  CHECK(folder == root.path() + "/step-00001234");
  const auto opened = Open(folder);
  REQUIRE(opened.ok());
  const CheckpointInfo& got = opened->info();
  CHECK(got.step == 1234);
  CHECK(got.samples == info.samples);
  CHECK(got.spec_hash == info.spec_hash);
  CHECK(got.job_yaml == info.job_yaml);
  CHECK(got.tokenizer == info.tokenizer);
  CHECK(got.data_digest == info.data_digest);
  CHECK(got.model_config == info.model_config);
  CHECK(got.ranks == 2);
  REQUIRE(got.scalars.size() == info.scalars.size());
  for (const auto& [name, value] : info.scalars) {
    CHECK(std::memcmp(&got.scalars.at(name), &value, sizeof(value)) == 0);
  }
}

// Files of many pieces: a 700 x 333 matrix is 932,400 bytes.
const LogicalTensor kMatrix{"parameter", "matrix", {700, 333}};
const LogicalTensor kVector{"parameter", "vector", {40000}};

std::vector<RankState> BigState() {
  std::vector<RankState> states(2);
  const layout::Box whole = layout::Box::Whole(kMatrix.shape);
  states[0].Add(kMatrix, {whole, {0, 100001}});
  states[0].Add(kVector, layout::Shard::Whole(layout::Box::Whole(kVector.shape)));
  states[1].Add(kMatrix, {whole, {100001, whole.elements()}});
  for (RankState& state : states) state.Fill(3);
  return states;
}

TEST_CASE("each piece is read once, and only those that hold something wanted") {
  TemporaryFolder root;
  auto states = BigState();
  const auto opened = Open(Save(root.path(), 8, states, InfoOf(8, 2)));
  REQUIRE(opened.ok());
  uint64_t all = 0;
  for (const FileEntry& file : opened->manifest().files) all += file.crc32c.size();
  REQUIRE(all > 16);

  auto pieces_for = [&](RankState& target) {
    uint64_t pieces = 0;
    REQUIRE(opened->Restore(target.shards(), {.pieces_read = &pieces}).ok());
    REQUIRE(target.Holds(3));
    return pieces;
  };
  RankState whole = WholeState({kVector, kMatrix});
  CHECK(pieces_for(whole) == all);
  RankState columns;  // Strided through every piece of the matrix.
  columns.Add(kMatrix, layout::Shard::Whole({{{0, 700}, {100, 150}}}));
  columns.Add(kMatrix, layout::Shard::Whole({{{0, 700}, {200, 250}}}));
  CHECK(pieces_for(columns) <= all);
  RankState row;  // 1,332 bytes: a header piece and at most two more.
  row.Add(kMatrix, layout::Shard::Whole({{{500, 501}, {0, 333}}}));
  CHECK(pieces_for(row) <= 3);
  RankState nothing;
  nothing.Add(kMatrix, {layout::Box::Whole(kMatrix.shape), {5, 5}});
  CHECK(pieces_for(nothing) == 0);
}

TEST_CASE("f32 state fits f64 targets, f64 state fits f32 targets when that is allowed") {
  TemporaryFolder root;
  LogicalTensor narrow{"parameter", "w", {300, 77}, tensor::DType::kF32};
  LogicalTensor wide = narrow;
  wide.dtype = tensor::DType::kF64;
  std::vector<RankState> from_narrow(1), from_wide(1);
  from_narrow[0] = WholeState({narrow});
  from_wide[0] = WholeState({wide});
  from_narrow[0].Fill(1);
  from_wide[0].Fill(2);
  const auto small = Open(Save(root.path(), 1, from_narrow, InfoOf(1, 1)));
  const auto large = Open(Save(root.path(), 2, from_wide, InfoOf(2, 1)));
  RankState target;
  target.Add(wide, {layout::Box::Whole(wide.shape), {1001, 23000}});
  REQUIRE(small->Restore(target.shards()).ok());
  CHECK(target.Holds(1));
  RankState rounded;
  rounded.Add(narrow, layout::Shard::Whole({{{0, 300}, {11, 60}}}));
  const auto refused = large->Restore(rounded.shards());
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(large->Restore(rounded.shards(), {.allow_narrowing = true}).ok());
  CHECK(rounded.Holds(2));
  RankState integers;
  narrow.dtype = tensor::DType::kI32;
  integers.Add(narrow, layout::Shard::Whole(layout::Box::Whole(narrow.shape)));
  CHECK_FALSE(small->Restore(integers.shards(), {.allow_narrowing = true}).ok());
}

TEST_CASE("a tensor the checkpoint lacks or holds in another shape is named") {
  TemporaryFolder root;
  auto states = BigState();
  const auto opened = Open(Save(root.path(), 8, states, InfoOf(8, 2)));
  auto fault = [&](const LogicalTensor& tensor) {
    RankState target = WholeState({tensor});
    return opened->Restore(target.shards());
  };
  const auto missing = fault({"parameter", "matrux", {700, 333}});
  CHECK(missing.code() == absl::StatusCode::kNotFound);
  CHECK(missing.ToString().find("'matrux'") != std::string::npos);
  CHECK(missing.ToString().find("nearest is 'matrix'") != std::string::npos);
  CHECK(fault({"moment1", "matrix", {700, 333}}).code() == absl::StatusCode::kNotFound);
  const auto shape = fault({"parameter", "matrix", {704, 333}});
  CHECK(shape.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(shape.ToString().find("[700,333]") != std::string::npos);
  CHECK(shape.ToString().find("[704,333]") != std::string::npos);
  RankState target = WholeState({kMatrix});
  target.shards()[0].data = target.shards()[0].data.first(16);
  CHECK(opened->Restore(target.shards()).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("names that look like numbered keys stay apart") {
  TemporaryFolder root;
  const LogicalTensor plain{"parameter", "a", {6}}, numbered{"parameter", "a#1", {4}};
  std::vector<RankState> states(1);
  states[0].Add(plain, {layout::Box::Whole({6}), {0, 3}});
  states[0].Add(numbered, {layout::Box::Whole({4}), {0, 4}});
  states[0].Add(plain, {layout::Box::Whole({6}), {3, 6}});
  states[0].Fill(4);
  const auto opened = Open(Save(root.path(), 1, states, InfoOf(1, 1)));
  RankState target = WholeState({plain, numbered});
  REQUIRE(opened->Restore(target.shards()).ok());
  CHECK(target.Holds(4));
}

}  // namespace
}  // namespace trireme::checkpoint
