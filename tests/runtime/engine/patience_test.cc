// Deadlines of waits in virtual time: programs of real plans, run by ranks of many speeds whose
// patience is the engine's. A healthy job of any speed is never given up, a silent rank is within a
// bound.
#include "runtime/engine/patience.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/spec/job_spec.h"
#include "tests/sanitizer.h"

namespace trireme::engine {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kDeadline{200};
constexpr double kNever = 1e18;

v1::Plan PipelinePlan(const std::string& schedule, int64_t ranks, int64_t micro_batches,
                      int64_t replicas = 1, int64_t layers_per_rank = 2, int64_t zero = 0) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(layers_per_rank * ranks);
  config.set_hidden_size(16);
  config.set_num_attention_heads(2);
  config.set_vocab_size(29);
  config.set_max_position_embeddings(8);
  job.mutable_data()->set_sequence_length(8);
  job.mutable_training()->set_global_batch_size(micro_batches * replicas);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_parallelism()->set_pipeline_parallel_size(ranks);
  job.mutable_parallelism()->set_data_parallel_size(replicas);
  job.mutable_parallelism()->set_schedule(schedule);
  job.mutable_parallelism()->set_virtual_stages(schedule == "interleaved" ? 2 : 1);
  job.mutable_parallelism()->set_zero_stage(zero);
  // Many layers, many buckets.
  if (layers_per_rank > 2) job.mutable_parallelism()->set_bucket_bytes(1024);
  spec::ApplyDefaults(job);
  const auto plan = plan::MakePlan(job, static_cast<int>(ranks * replicas));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

using ProgramOf = const v1::Program& (v1::StagePlan::*)() const;

// All ranks of a pipeline's replicas in virtual milliseconds. Rendezvous: a message is there when
// both sides have issued it; a sum over the data or the tied axis and NORM or a gather when all of
// its ranks have come. SUM is not modelled: it comes right before NORM.
class VirtualJob {
 public:
  struct Verdict {
    double longest_ms = 0;            // wait that was over
    double longest_limit_ms = 0;      // of any wait
    double least_margin_ms = kNever;  // limit less wait, of those that were over
    double given_up_ms = kNever;      // when the first rank gives up what is never over
  };

  // `cost_ms(rank)`: of F, I and W of one virtual stage; B takes two. Ranks of a replica follow one
  // another.
  VirtualJob(const v1::Plan& plan, std::function<double(int)> cost_ms)
      : plan_(plan),
        cost_ms_(std::move(cost_ms)),
        replicas_(static_cast<int>(plan.mesh().data())),
        ranks_(static_cast<size_t>(plan.stages_size() * replicas_)) {
    const uint32_t stages =
        static_cast<uint32_t>(plan.stages_size() * plan.stages(0).first_block_size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].patience = Patience(
          kDeadline,
          {.stages = stages, .before = static_cast<uint32_t>(StageOf(static_cast<int>(rank)))});
    }
    for (int stage = 0; stage < plan.stages_size(); ++stage) {
      for (const v1::Program* program :
           {&plan.stages(stage).step(), &plan.stages(stage).evaluate()}) {
        for (const v1::Instruction& each : program->instructions()) {
          uint32_t& all = operators_[{stage, each.kind(), each.virtual_stage()}];
          all = std::max(all, each.op_end());
        }
      }
    }
  }

  // From instruction `from` on rank `silent` does nothing more; -1: none.
  Verdict Run(ProgramOf program, int silent = -1, int from = 0) {
    posted_.clear();
    summed_.clear();
    tied_.clear();
    norm_.clear();
    for (Rank& rank : ranks_) {
      rank.at = 0;
      rank.began = rank.now;
      rank.issued.clear();
      rank.waits = false;
      rank.patience.ProgramBegins(program == &v1::StagePlan::step ? Patience::Kind::kTraining
                                                                  : Patience::Kind::kForward);
    }
    verdict_ = {};
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const v1::Program& list = (plan_.stages(StageOf(static_cast<int>(rank))).*program)();
        while (ranks_[rank].at < list.instructions_size() &&
               !(static_cast<int>(rank) == silent && ranks_[rank].at >= from) &&
               Step(static_cast<int>(rank), list.instructions(ranks_[rank].at))) {
          moved = true;
          ++ranks_[rank].at;
        }
      }
    }
    for (Rank& rank : ranks_) {
      if (rank.waits) verdict_.given_up_ms = std::min(verdict_.given_up_ms, rank.now + rank.limit);
      rank.patience.ProgramEnds(InNanoseconds(rank.now - rank.began));
    }
    return verdict_;
  }

  // The sum over all ranks after one or several programs without NORM.
  Verdict Meet() {
    verdict_ = {};
    norm_.clear();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      norm_[static_cast<int>(rank)] = ranks_[rank].now;
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      (void)Wait(static_cast<int>(rank), AllCame(norm_, ranks_.size()), true);
      ranks_[rank].met = ranks_[rank].now;
    }
    return verdict_;
  }

  double Now(int rank) const { return ranks_[static_cast<size_t>(rank)].now; }

 private:
  // Sender, channel, micro-batch.
  using Name = std::tuple<int, uint32_t, uint32_t>;
  struct Rank {
    int at = 0;
    double now = 0;
    double began = 0;  // its program
    double met = 0;    // all others
    bool waits = false;
    double limit = 0;
    Patience patience{kDeadline, {}};
    std::map<uint32_t, const v1::Instruction*> issued;  // by ticket
  };
  struct Ends {
    double send = kNever, receive = kNever;
  };

  int StageOf(int rank) const { return rank % plan_.stages_size(); }
  static std::chrono::nanoseconds InNanoseconds(double ms) {
    return std::chrono::nanoseconds(static_cast<int64_t>(ms * 1e6));
  }

  // Of one run of its operators: around REDUCEs it comes in parts.
  double Share(int rank, const v1::Instruction& part) const {
    const uint32_t all = operators_.at({StageOf(rank), part.kind(), part.virtual_stage()});
    return all == 0 ? 1.0 : static_cast<double>(part.op_end() - part.op_begin()) / all;
  }

  Name NameOf(int rank, const v1::Instruction& each) const {
    const bool send = each.kind() == v1::SEND_ACT || each.kind() == v1::SEND_GRAD;
    return {send ? rank : rank + each.peer(), each.channel(), each.micro_batch()};
  }

  bool Step(int index, const v1::Instruction& each) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    switch (each.kind()) {
      case v1::F:
      case v1::I:
      case v1::W:
      case v1::B: {
        const double cost = cost_ms_(index) * (each.kind() == v1::B ? 2 : 1) * Share(index, each);
        rank.now += cost;
        rank.patience.Ran(InNanoseconds(cost));
        return true;
      }
      case v1::SEND_ACT:
      case v1::SEND_GRAD:
        posted_[NameOf(index, each)].send = rank.now;
        rank.issued[each.ticket()] = &each;
        return true;
      case v1::RECV_ACT:
      case v1::RECV_GRAD:
        posted_[NameOf(index, each)].receive = rank.now;
        rank.issued[each.ticket()] = &each;
        return true;
      case v1::REDUCE:
      case v1::GATHER:
        rank.issued[each.ticket()] = &each;
        return true;
      case v1::WAIT: {
        const v1::Instruction& issued = *rank.issued.at(each.ticket());
        return Wait(index, ThereAt(index, issued), MeetsReplicas(plan_, issued.kind()));
      }
      case v1::NORM:
        norm_[index] = rank.now;
        if (!Wait(index, AllCame(norm_, ranks_.size()), true)) return false;
        rank.met = rank.now;
        return true;
      default:
        return true;
    }
  }

  double ThereAt(int index, const v1::Instruction& issue) {
    if (issue.kind() == v1::REDUCE || issue.kind() == v1::GATHER) {
      const int stage = StageOf(index);
      auto& summed = summed_[{stage, issue.ticket()}];
      summed[index] = ranks_[static_cast<size_t>(index)].now;
      const double there = AllCame(summed, static_cast<size_t>(replicas_));
      const bool tied =
          plan::ZeroStage(plan_) < 2 &&
          plan::IsPartialOver(plan_.stages(stage).buckets(static_cast<int>(issue.bucket())),
                              v1::AXIS_TIED);
      if (there == kNever || !tied) return there;
      std::map<int, double>& copies = tied_[index / plan_.stages_size()];
      copies[stage] = there;
      return AllCame(copies, 2);
    }
    const Ends& ends = posted_[NameOf(index, issue)];
    return std::max(ends.send, ends.receive);
  }

  static double AllCame(const std::map<int, double>& came, size_t all) {
    if (came.size() < all) return kNever;
    double last = 0;
    for (const auto& [rank, at] : came) last = std::max(last, at);
    return last;
  }

  // False: not yet there.
  bool Wait(int index, double there, bool meets) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    const auto limit = meets ? rank.patience.MeetingLimit(InNanoseconds(rank.now - rank.met))
                             : rank.patience.Limit();
    rank.limit = static_cast<double>(limit.count());
    verdict_.longest_limit_ms = std::max(verdict_.longest_limit_ms, rank.limit);
    rank.waits = there == kNever;
    if (rank.waits) return false;
    const double waited = std::max(0.0, there - rank.now);
    verdict_.longest_ms = std::max(verdict_.longest_ms, waited);
    verdict_.least_margin_ms = std::min(verdict_.least_margin_ms, rank.limit - waited);
    rank.now += waited;
    return true;
  }

  const v1::Plan& plan_;
  const std::function<double(int)> cost_ms_;
  const int replicas_;
  std::vector<Rank> ranks_;
  std::map<Name, Ends> posted_;
  std::map<std::pair<int, uint32_t>, std::map<int, double>> summed_;  // stage, ticket
  std::map<int, std::map<int, double>> tied_;                         // by replica
  std::map<int, double> norm_;
  // By stage, kind and virtual stage.
  std::map<std::tuple<int, v1::InstructionKind, uint32_t>, uint32_t> operators_;
  Verdict verdict_;
};

constexpr int kRanks = 16;
constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};

TEST_CASE("patience: a healthy pipeline of 16 stages is never given up") {
  int beyond_flat = 0;
  for (const char* schedule : kSchedules) {
    for (const int64_t micro_batches : {1, 4, 40}) {
      const v1::Plan plan = PipelinePlan(schedule, kRanks, micro_batches);
      // All alike, slow as the deadline allows, and one three times slower than the others.
      const std::function<double(int)> speeds[] = {
          [](int) { return 0.05; },
          [](int) { return 50.0; },
          [](int) { return 190.0; },
          [](int rank) { return rank == 9 ? 60.0 : 20.0; },
          [](int rank) { return rank == kRanks - 1 ? 60.0 : 20.0; },
          [](int rank) { return rank == 0 ? 60.0 : 20.0; }};
      for (size_t speed = 0; speed < std::size(speeds); ++speed) {
        VirtualJob job(plan, speeds[speed]);
        for (const ProgramOf program : {&v1::StagePlan::step, &v1::StagePlan::step,
                                        &v1::StagePlan::evaluate, &v1::StagePlan::step}) {
          const VirtualJob::Verdict verdict = job.Run(program);
          INFO(schedule << ", " << micro_batches << " micro-batches, speeds " << speed
                        << ", longest wait " << verdict.longest_ms);
          CHECK(verdict.given_up_ms == kNever);
          CHECK(verdict.least_margin_ms > 0);
          beyond_flat += verdict.longest_ms > kDeadline.count() ? 1 : 0;
        }
      }
    }
  }
  CHECK(beyond_flat > 50);  // with one deadline for all waits these would have been given up
}

// A rank that only replicas wait for is behind by all of its step, not by a pipeline's depth.
TEST_CASE("patience: a healthy replica that is slower all along is never given up") {
  constexpr int kStages = 4, kReplicas = 3;
  int beyond_flow = 0;  // waits that a limit without the number of micro-batches would have ended
  for (const char* schedule : kSchedules) {
    const v1::Plan plan = PipelinePlan(schedule, kStages, 64, kReplicas);
    const auto of_replica = [](int rank) { return rank / kStages; };
    const std::function<double(int)> speeds[] = {
        [&](int rank) { return of_replica(rank) == 1 ? 65.0 : 50.0; },
        [&](int rank) { return of_replica(rank) == 0 ? 190.0 : 50.0; },
        // One slow stage holds up its replica; elsewhere it is quick, and the others are light.
        [](int rank) { return rank == kStages + 2 ? 150.0 : 50.0; },
        [](int rank) { return rank == 2             ? 150.0
                              : rank % kStages == 2 ? 60.0
                                                    : 40.0; }};
    for (size_t speed = 0; speed < std::size(speeds); ++speed) {
      VirtualJob job(plan, speeds[speed]);
      for (int program = 0; program < 5; ++program) {
        std::vector<VirtualJob::Verdict> verdicts;
        if (program == 3) {  // several passes of an evaluation, and its one sum
          for (int pass = 0; pass < 8; ++pass) {
            verdicts.push_back(job.Run(&v1::StagePlan::evaluate));
          }
          verdicts.push_back(job.Meet());
        } else {
          verdicts.push_back(job.Run(&v1::StagePlan::step));
        }
        for (const VirtualJob::Verdict& verdict : verdicts) {
          INFO(schedule << ", speeds " << speed << ", program " << program << ", longest wait "
                        << verdict.longest_ms);
          CHECK(verdict.given_up_ms == kNever);
          CHECK(verdict.least_margin_ms > 0);
          beyond_flow += verdict.longest_ms > 200 + 4 * 3 * kStages * 2 * 50.0 ? 1 : 0;
        }
      }
    }
  }
  CHECK(beyond_flow > 10);
}

// Were a bucket waited for during the last backward of a stage, the stage before it would stand
// behind that with the patience that a neighbour gets.
TEST_CASE("patience: a slower replica of stages with many buckets is never given up") {
  constexpr int kStages = 4, kReplicas = 2;
  for (const char* schedule : kSchedules) {
    const v1::Plan plan = PipelinePlan(schedule, kStages, 64, kReplicas, 30);
    for (const v1::StagePlan& stage : plan.stages()) REQUIRE(stage.buckets_size() > 32);
    VirtualJob job(plan, [](int rank) { return rank / kStages == 0 ? 190.0 : 50.0; });
    for (int step = 0; step < 3; ++step) {
      const VirtualJob::Verdict verdict = job.Run(&v1::StagePlan::step);
      INFO(schedule << ", step " << step << ", longest wait " << verdict.longest_ms);
      CHECK(verdict.given_up_ms == kNever);
      CHECK(verdict.least_margin_ms > 0);
    }
  }
}

// A stage that waits for the sum of a micro-batch is as late as its slower replica, and so are its
// neighbours; in GPipe replicas do not meet before the last forward.
TEST_CASE("patience: a slower replica under ZeRO-2 and ZeRO-3 is never given up") {
  constexpr int kStages = 2, kReplicas = 2;
  for (const char* schedule : kSchedules) {
    for (const int64_t zero : {2, 3}) {
      const v1::Plan plan = PipelinePlan(schedule, kStages, 64, kReplicas, 2, zero);
      VirtualJob job(plan, [](int rank) { return rank / kStages == 0 ? 190.0 : 50.0; });
      for (int step = 0; step < 3; ++step) {
        const VirtualJob::Verdict verdict = job.Run(&v1::StagePlan::step);
        INFO(schedule << ", ZeRO-" << zero << ", step " << step << ", longest wait "
                      << verdict.longest_ms);
        CHECK(verdict.given_up_ms == kNever);
        CHECK(verdict.least_margin_ms > 0);
      }
    }
  }
}

TEST_CASE("patience: a silent rank is given up within the bound") {
  for (const char* schedule : kSchedules) {
    const v1::Plan plan = PipelinePlan(schedule, kRanks, 20);
    for (int silent = 0; silent < kRanks; silent += tests::kSanitizer ? 5 : 1) {
      const int length = plan.stages(silent).step().instructions_size();
      const uint32_t stages = kRanks * static_cast<uint32_t>(plan.stages(0).first_block_size());
      for (const int steps : {0, 1}) {
        for (const int from : {1, length / 3, length / 2, length - 20}) {
          VirtualJob job(plan, [](int) { return 50.0; });
          for (int step = 0; step < steps; ++step) (void)job.Run(&v1::StagePlan::step);
          const VirtualJob::Verdict verdict = job.Run(&v1::StagePlan::step, silent, from);
          INFO(schedule << ", rank " << silent << " silent from instruction " << from << " of step "
                        << steps);
          REQUIRE(verdict.given_up_ms != kNever);
          // In the first step the neighbours may know nothing; a B takes 100 ms. It does not grow
          // with the micro-batches.
          const double bound =
              std::max<double>(200.0 * kRanks, 200.0 + 4 * 3 * stages * 100.0) + 3 * stages * 100.0;
          CHECK(verdict.given_up_ms - job.Now(silent) <= bound);
        }
      }
    }
  }
}

TEST_CASE("patience: the deadline is for silence beyond what the pipeline and its own times say") {
  Patience patience(Milliseconds(60000), {.stages = 16, .before = 15});
  CHECK(patience.Limit() == Milliseconds(16 * 60000));
  CHECK_FALSE(patience.Knows());
  patience.Ran(std::chrono::seconds(4));
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 16 * 4000));
  patience.ProgramEnds({});
  patience.Ran(std::chrono::seconds(1));
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 16 * 4000));
  // A time that was long ago, as of a rank that was stopped, is forgotten.
  patience.ProgramEnds({});
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 16 * 1000));
  patience.ProgramEnds({});  // a program without computing tells nothing
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 16 * 1000));
}

TEST_CASE("patience: a program of forward alone does not shorten the limits of a training step") {
  using std::chrono::seconds;
  using Kind = Patience::Kind;
  Patience patience(Milliseconds(60000), {.stages = 2, .before = 1});
  patience.ProgramBegins(Kind::kForward);  // what was trained before is evaluated first
  patience.Ran(seconds(1));
  patience.ProgramEnds(seconds(10));
  patience.ProgramBegins(Kind::kTraining);
  CHECK_FALSE(patience.Knows());
  CHECK(patience.Limit() == Milliseconds(2 * 60000));
  patience.Ran(seconds(4));
  patience.ProgramEnds(seconds(100));
  patience.ProgramBegins(Kind::kForward);
  CHECK(patience.Knows());
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 2 * 1000));
  CHECK(patience.MeetingLimit({}) == patience.Limit() + seconds(3 * 10));
  patience.ProgramEnds(seconds(5));
  CHECK(patience.MeetingLimit({}) == patience.Limit() + seconds(3 * 5));
  patience.ProgramBegins(Kind::kTraining);
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 2 * 4000));
  CHECK(patience.MeetingLimit({}) == patience.Limit() + seconds(3 * 100));
}

TEST_CASE("patience: what is known of training serves the first program of forward alone") {
  Patience patience(Milliseconds(60000), {.stages = 16, .before = 1});
  patience.ProgramBegins(Patience::Kind::kTraining);
  patience.Ran(std::chrono::seconds(4));
  patience.ProgramEnds({});
  patience.ProgramBegins(Patience::Kind::kForward);
  CHECK_FALSE(patience.Knows());
  CHECK(patience.Limit() == Milliseconds(60000 + 4 * 3 * 16 * 4000));
}

}  // namespace
}  // namespace trireme::engine
