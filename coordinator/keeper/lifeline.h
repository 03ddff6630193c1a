// When an attempt on this node has been without word for so long that it ends itself, before
// another one may take its place (docs/adr/0019). Pure: callers pass the time, of a clock that goes
// on while the machine sleeps (base::BoottimeNs).
#pragma once

#include <cstdint>
#include <string>

namespace trireme::keeper {

// What the run folder says of an attempt (runtime/run_claim).
enum class ClaimSight {
  kUnknown,   // nothing yet, or the disk does not say
  kOurs,      // it counts
  kReplaced,  // a newer one does
};

// One attempt. One thread.
class Lifeline {
 public:
  // `now_ns`: since when silence is counted.
  explicit Lifeline(int64_t now_ns) : news_ns_(now_ns) {}
  // Of one that was begun before, so that nobody knows when there was news of it.
  static Lifeline Adopted(int64_t now_ns);

  // Whoever looks after it has not done so for a while, as on a disk that hung or a machine that
  // slept: what there is to hear is heard first, before silence is judged.
  void HeldUp(int64_t now_ns);

  // The coordinator has taken a report that was sent then.
  void Taken(int64_t sent_ns);
  // The run folder was asked then.
  void Seen(ClaimSight sight, int64_t asked_ns);
  // Its ranks here have done so many steps, the last of them not before `since_ns`. Of an attempt
  // on several nodes each step is word of the others: no step ends without their ranks.
  void Stepped(uint64_t step, bool several_nodes, int64_t since_ns);

  // Why it is to end; empty: it goes on. `end_after_ns` 0: silence ends nothing.
  std::string Cut(int64_t end_after_ns, int64_t now_ns) const;
  // The run folder has said that it counts, within `end_after_ns`.
  bool claim_read(int64_t end_after_ns, int64_t now_ns) const;

 private:
  int64_t news_ns_;
  int64_t judged_from_ns_ = 0;
  int64_t claim_ns_ = 0;  // of the newest kOurs; 0: none
  uint64_t step_ = 0;
  bool replaced_ = false;
};

}  // namespace trireme::keeper
