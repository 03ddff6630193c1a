// The checks that need no program (mesh, stages, pools, buckets), then each program of every
// coordinate.
#include "runtime/plan/verifier.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/model/model.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/verifier_program.h"

namespace trireme::plan {
namespace {

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

absl::Status CheckMesh(const v1::Plan& plan) {
  const v1::Mesh& mesh = plan.mesh();
  if (mesh.pipeline() == 0 || mesh.data() == 0 || mesh.tensor() == 0) {
    return Refuse("mesh: pipeline ", mesh.pipeline(), ", data ", mesh.data(), ", tensor ",
                  mesh.tensor(), "; every axis is at least 1");
  }
  if (plan.stages_size() != static_cast<int64_t>(mesh.pipeline())) {
    return Refuse("the plan holds ", plan.stages_size(), " stages, but the pipeline axis has ",
                  mesh.pipeline());
  }
  if (plan.micro_batches() == 0) return Refuse("micro_batches: 0, expected at least 1");
  return absl::OkStatus();
}

// The global stages cut the blocks into consecutive ranges.
absl::Status CheckBlocks(const v1::Plan& plan) {
  const int count = plan.stages(0).first_block_size();
  if (count == 0) return Refuse("stage 0 holds no virtual stage");
  for (int p = 0; p < plan.stages_size(); ++p) {
    if (plan.stages(p).first_block_size() == count && plan.stages(p).end_block_size() == count) {
      continue;
    }
    return Refuse("stage ", p, " holds ", plan.stages(p).first_block_size(), " first and ",
                  plan.stages(p).end_block_size(), " end blocks, expected ", count, " of each");
  }
  uint32_t done = 0;
  for (int v = 0; v < count; ++v) {
    for (int p = 0; p < plan.stages_size(); ++p) {
      const uint32_t first = plan.stages(p).first_block(v);
      const uint32_t end = plan.stages(p).end_block(v);
      if (first != done || end < first) {
        return Refuse("stage ", p, ", virtual stage ", v, " holds blocks [", first, ", ", end,
                      "), but [0, ", done, ") are given away: expected it to begin at ", done);
      }
      done = end;
    }
  }
  const int64_t layers = plan.job().model().config().num_hidden_layers();
  if (layers > 0 && done != layers + 2) {
    return Refuse("the stages hold ", done, " blocks, but the model has ", layers + 2,
                  " (embedding, ", layers, " layers, head)");
  }
  return absl::OkStatus();
}

bool PerVirtualStage(v1::PoolKind kind) {
  return (kind >= v1::ACTIVATION && kind <= v1::GRADIENT_OUT) || kind == v1::GRADIENT_STASH ||
         kind == v1::STORED;
}

// Workers cut the arena at the edges of pools, and kernels take slots as they lie.
absl::Status CheckAlignment(const v1::StagePlan& stage, int p) {
  for (const v1::Pool& pool : stage.pools()) {
    const auto refuse = [&](const auto&... parts) {
      return Refuse("stage ", p, ": pool ", v1::PoolKind_Name(pool.kind()), " of virtual stage ",
                    pool.virtual_stage(), parts...);
    };
    if (pool.offset_bytes() % kPageBytes != 0) {
      return refuse(" begins at byte ", pool.offset_bytes(), ", expected a multiple of ",
                    kPageBytes);
    }
    if (pool.slots() > 1 && pool.slot_bytes() % kLineBytes != 0) {
      return refuse(" has slots of ", pool.slot_bytes(), " bytes, expected a multiple of ",
                    kLineBytes);
    }
  }
  return absl::OkStatus();
}

// Sums are made of whole pieces, and slots lie in memory that is mapped by itself.
absl::Status CheckSnapshot(const v1::Plan& plan, const v1::StagePlan& stage, int p) {
  const uint64_t slot = SnapshotSlotBytes(plan, stage);
  if (slot * plan.snapshot_slots() != stage.snapshot_bytes() || slot % kSnapshotUnitBytes != 0) {
    return Refuse("stage ", p, ": snapshot_bytes is ", stage.snapshot_bytes(), ", expected ",
                  plan.snapshot_slots(), " slots in units of ", kSnapshotUnitBytes);
  }
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.place() != v1::SNAPSHOT) continue;
    const auto refuse = [&](const auto&... parts) {
      return Refuse("stage ", p, ": pool ", v1::PoolKind_Name(pool.kind()), parts...);
    };
    if (pool.slots() != plan.snapshot_slots()) {
      return refuse(" has ", pool.slots(), " slots, of snapshots the plan has ",
                    plan.snapshot_slots());
    }
    if (pool.offset_bytes() % kSnapshotPieceBytes != 0) {
      return refuse(" begins at byte ", pool.offset_bytes(), ", expected a multiple of ",
                    kSnapshotPieceBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPools(const v1::Plan& plan, const v1::StagePlan& stage, int p) {
  struct Extent {
    v1::PoolPlace place;
    uint64_t begin, end;
    std::string name;
  };
  std::vector<Extent> extents;
  std::set<std::pair<int, uint32_t>> seen;
  std::array<uint64_t, v1::PoolPlace_ARRAYSIZE> ends{};
  for (const v1::Pool& pool : stage.pools()) {
    const std::string name = absl::StrCat(
        "stage ", p, ": pool ", v1::PoolKind_Name(pool.kind()),
        PerVirtualStage(pool.kind()) ? absl::StrCat(" of virtual stage ", pool.virtual_stage())
                                     : "");
    if (pool.kind() < v1::PARAMETER || pool.kind() > v1::PoolKind_MAX) {
      return Refuse("stage ", p, ": a pool of unknown kind ", static_cast<int>(pool.kind()));
    }
    if (PerVirtualStage(pool.kind()) &&
        pool.virtual_stage() >= static_cast<uint32_t>(stage.first_block_size())) {
      return Refuse(name, ": the stage holds ", stage.first_block_size(), " virtual stages");
    }
    if (!PerVirtualStage(pool.kind()) && pool.virtual_stage() != 0) {
      return Refuse(name, " is of virtual stage ", pool.virtual_stage(),
                    ", but all virtual stages share it: expected 0");
    }
    if (!seen.emplace(pool.kind(), pool.virtual_stage()).second)
      return Refuse(name, " stands twice");
    if (pool.place() != PlaceOf(plan, pool.kind())) {
      return Refuse(name, " lies in the place ", v1::PoolPlace_Name(pool.place()),
                    ", the job wants it in ", v1::PoolPlace_Name(PlaceOf(plan, pool.kind())));
    }
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    const bool wide = pool.slots() != 0 && pool.slot_bytes() > kMost / pool.slots();
    const uint64_t bytes =
        wide ? 0 : pool.slot_bytes() * (pool.place() == v1::SNAPSHOT ? 1 : uint64_t{pool.slots()});
    if (wide || pool.offset_bytes() > kMost - bytes) return Refuse(name, " does not fit 64 bits");
    const uint64_t end = pool.offset_bytes() + bytes;
    ends[pool.place()] = std::max(ends[pool.place()], end);
    if (bytes > 0) extents.push_back({pool.place(), pool.offset_bytes(), end, name});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.place, a.begin) < std::tie(b.place, b.begin);
  });
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].place != extents[i - 1].place) continue;
    if (extents[i].begin >= extents[i - 1].end) continue;
    return Refuse(extents[i].name, " begins at byte ", extents[i].begin, ", inside ",
                  extents[i - 1].name, ", which ends at ", extents[i - 1].end);
  }
  const std::tuple<const char*, uint64_t, v1::PoolPlace> sizes[] = {
      {"arena_bytes", stage.arena_bytes(), v1::ARENA},
      {"host_bytes", stage.host_bytes(), v1::HOST},
      {"file_bytes", stage.file_bytes(), v1::FILE},
      {"a slot of snapshot_bytes", SnapshotSlotBytes(plan, stage), v1::SNAPSHOT}};
  for (const auto& [name, bytes, place] : sizes) {
    const uint64_t unit = place == v1::SNAPSHOT ? kSnapshotUnitBytes : 1;
    if (bytes % unit == 0 && bytes >= ends[place] && bytes - ends[place] < unit) continue;
    return Refuse("stage ", p, ": ", name, " is ", bytes, ", but the last pool ends at ",
                  ends[place]);
  }
  return absl::OkStatus();
}

const v1::Pool* PoolOf(const v1::StagePlan& stage, int kind, uint32_t virtual_stage) {
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() == kind && pool.virtual_stage() == virtual_stage) return &pool;
  }
  return nullptr;
}

absl::Status CheckSlotBytes(const v1::StagePlan& stage, int kind, uint32_t virtual_stage,
                            uint64_t needed, const std::string& where) {
  const v1::Pool* pool = PoolOf(stage, kind, virtual_stage);
  const uint64_t planned = pool == nullptr || pool->slots() == 0 ? 0 : pool->slot_bytes();
  if (needed <= planned) return absl::OkStatus();
  return Refuse(where, ": the operators need slots of ", needed, " bytes in the pool ",
                v1::PoolKind_Name(kind), ", the plan gives ", planned);
}

// Slots hold what the operators of every tensor coordinate put there.
absl::Status CheckNeeds(const v1::Plan& plan, int p, const StageFacts& facts) {
  const v1::StagePlan& stage = plan.stages(p);
  for (int kind = v1::PARAMETER; kind <= v1::PoolKind_MAX; ++kind) {
    RETURN_IF_ERROR(
        CheckSlotBytes(stage, kind, 0, facts.pool_bytes[kind], absl::StrCat("stage ", p)));
    for (uint32_t v = 0; v < facts.virtual_stages.size(); ++v) {
      RETURN_IF_ERROR(CheckSlotBytes(stage, kind, v, facts.virtual_stages[v].slot_bytes[kind],
                                     absl::StrCat("stage ", p, ", virtual stage ", v)));
    }
  }
  const v1::Pool* tokens = PoolOf(stage, v1::TOKENS, 0);
  const uint32_t micro_batches = std::max(plan.micro_batches(), plan.evaluation_micro_batches());
  const bool reads = facts.pool_bytes[v1::TOKENS] > 0;
  if (reads && tokens != nullptr && tokens->slots() < micro_batches) {
    return Refuse("stage ", p, ": the pool TOKENS has ", tokens->slots(), " slots for ",
                  micro_batches, " micro-batches");
  }
  return absl::OkStatus();
}

// Workers lay the state out anew: the plan must speak of the same buckets.
absl::Status CheckBucketsMeant(const v1::StagePlan& stage, int p, const StageFacts& facts) {
  const size_t count = static_cast<size_t>(stage.buckets_size());
  if (count != facts.buckets.size()) {
    return Refuse("stage ", p, ": the plan has ", count, " buckets, the operators' gradients fill ",
                  facts.buckets.size());
  }
  for (size_t i = 0; i < count; ++i) {
    v1::Bucket bucket = stage.buckets(static_cast<int>(i));
    bucket.clear_gathered_offset();  // judged by the lives that the programs give it
    bucket.clear_partial_offset();
    const std::string planned = bucket.ShortDebugString();
    const std::string meant = facts.buckets[i].ShortDebugString();
    if (planned == meant) continue;
    return Refuse("stage ", p, ": bucket ", i, " is {", planned, "}, the operators ask for {",
                  meant, "}");
  }
  return absl::OkStatus();
}

absl::Status CheckBucketShapes(const v1::Plan& plan, int p) {
  const v1::StagePlan& stage = plan.stages(p);
  uint64_t done = 0;
  for (int i = 0; i < stage.buckets_size(); ++i) {
    const v1::Bucket& bucket = stage.buckets(i);
    if (bucket.offset() < done) {
      return Refuse("stage ", p, ": bucket ", i, " begins at element ", bucket.offset(),
                    ", before the end ", done, " of the one before");
    }
    if (bucket.count() == 0 || bucket.count() % plan.mesh().data() != 0) {
      return Refuse("stage ", p, ": bucket ", i, " holds ", bucket.count(),
                    " elements, expected a positive multiple of ", plan.mesh().data(), " replicas");
    }
    done = bucket.offset() + bucket.count();
  }
  return absl::OkStatus();
}

struct ProgramKind {
  const char* name;
  const v1::Program& (v1::StagePlan::*get)() const;
  uint32_t micro_batches;
  graph::ForwardUse use;
};

absl::Status CheckProgram(const v1::Plan& plan, const std::vector<StageFacts>& facts,
                          const ProgramKind& kind) {
  const bool training = kind.use == graph::ForwardUse::kStep;
  std::vector<ProgramScope> scopes;
  bool empty = true;
  for (int p = 0; p < plan.stages_size(); ++p) {
    const v1::Program& program = (plan.stages(p).*kind.get)();
    empty = empty && program.instructions_size() == 0;
    scopes.push_back({.plan = &plan,
                      .program = &program,
                      .facts = &facts[static_cast<size_t>(p)],
                      .name = kind.name,
                      .pipeline = static_cast<uint32_t>(p),
                      .micro_batches = kind.micro_batches,
                      .use = kind.use,
                      .training = training});
  }
  if (empty) return Refuse("the plan has no program ", kind.name);
  std::vector<ProgramIndex> indexes;
  for (const ProgramScope& scope : scopes) {
    if (scope.micro_batches > scope.size()) {
      return Refuse("stage ", scope.pipeline, ", ", scope.name, ": ", scope.size(),
                    " instructions cannot run ", scope.micro_batches, " micro-batches");
    }
    ASSIGN_OR_RETURN(ProgramIndex index, IndexProgram(scope));
    RETURN_IF_ERROR(CheckBuckets(scope, index));
    RETURN_IF_ERROR(CheckLives(scope, index));
    RETURN_IF_ERROR(CheckSwaps(scope, index));
    RETURN_IF_ERROR(CheckSlots(scope, index));
    indexes.push_back(std::move(index));
  }
  return CheckRendezvous(scopes, indexes);
}

}  // namespace

absl::Status VerifyPlan(const v1::Plan& plan) {
  RETURN_IF_ERROR(CheckMesh(plan));
  RETURN_IF_ERROR(CheckBlocks(plan));
  ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(plan.job().model().config()));
  ASSIGN_OR_RETURN(const std::vector<StageFacts> facts, FactsOf(plan, graph));
  return VerifyPlan(plan, facts);
}

absl::Status VerifyPlan(const v1::Plan& plan, const std::vector<StageFacts>& facts) {
  RETURN_IF_ERROR(CheckMesh(plan));
  RETURN_IF_ERROR(CheckBlocks(plan));
  TRIREME_CHECK(facts.size() == plan.mesh().pipeline());
  for (int p = 0; p < plan.stages_size(); ++p) {
    RETURN_IF_ERROR(CheckPools(plan, plan.stages(p), p));
    RETURN_IF_ERROR(CheckAlignment(plan.stages(p), p));
    RETURN_IF_ERROR(CheckSnapshot(plan, plan.stages(p), p));
    RETURN_IF_ERROR(CheckNeeds(plan, p, facts[static_cast<size_t>(p)]));
    RETURN_IF_ERROR(CheckBucketShapes(plan, p));
  }
  const ProgramKind kinds[] = {
      {"step", &v1::StagePlan::step, plan.micro_batches(), graph::ForwardUse::kStep},
      {"evaluate", &v1::StagePlan::evaluate, plan.evaluation_micro_batches(),
       graph::ForwardUse::kEvaluate},
      {"generate", &v1::StagePlan::generate, 1, graph::ForwardUse::kGenerate}};
  for (const ProgramKind& kind : kinds) RETURN_IF_ERROR(CheckProgram(plan, facts, kind));
  for (int p = 0; p < plan.stages_size(); ++p) {
    RETURN_IF_ERROR(CheckBucketsMeant(plan.stages(p), p, facts[static_cast<size_t>(p)]));
  }
  return absl::OkStatus();
}

}  // namespace trireme::plan
