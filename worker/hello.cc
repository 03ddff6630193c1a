#include "worker/hello.h"

#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/stream.h"

namespace trireme::worker {

absl::Status SayHello(comm::Fabric& fabric) {
  constexpr std::chrono::milliseconds kDeadline{30'000};
  std::vector<int> ranks(static_cast<size_t>(fabric.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  ASSIGN_OR_RETURN(const auto group, fabric.Group(ranks, "hello"));
  const auto stream = tensor::MakeInlineStream();
  int32_t sum = fabric.rank() + 1;
  const comm::Ticket ticket =
      group->AllReduce(&sum, 1, tensor::DType::kI32, comm::ReduceOp::kSum, *stream);
  RETURN_IF_ERROR(group->WaitHost(ticket, kDeadline));
  const int expected = fabric.size() * (fabric.size() + 1) / 2;
  if (sum != expected) {
    return absl::InternalError(absl::StrCat("the ranks add up to ", sum, ", expected ", expected));
  }
  if (fabric.rank() == 0) {
    std::printf("%d ranks greet each other from %s on\n", fabric.size(), base::HostName().c_str());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace trireme::worker
