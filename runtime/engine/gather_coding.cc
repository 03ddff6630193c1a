// What compression did on every rank, told to every rank.
#include <tuple>
#include <type_traits>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"

namespace trireme::engine {

absl::StatusOr<std::vector<RankCoding>> Engine::Impl::GatherCoding() {
  if (!groups_.coded.sums && groups_.coded.messages == 0) {
    return std::vector<RankCoding>();
  }
  comm::Communicator& world = *groups_.world;
  constexpr size_t kFields = 9;
  const auto size = static_cast<size_t>(world.size());
  std::vector<double> all(2 * kFields * size);
  std::vector<int64_t> offsets;
  for (size_t rank = 0; rank <= size; ++rank) {
    offsets.push_back(static_cast<int64_t>(2 * kFields * rank));
  }
  // All fields are whole numbers below 2^53 or doubles.
  const auto fields_of = [](auto& axis) {
    return std::tie(axis.errors.measured, axis.errors.large, axis.sum.plain_bytes,
                    axis.sum.coded_bytes, axis.sum.codec_ns, axis.sum.total_ns,
                    axis.sum.largest_error, axis.sum.error_squares, axis.sum.value_squares);
  };
  double* at = all.data() + 2 * kFields * static_cast<size_t>(world.rank());
  for (const AxisCoding& axis : {coding_->data(), coding_->pipeline()}) {
    std::apply([&](auto&... field) { ((*at++ = static_cast<double>(field)), ...); },
               fields_of(axis));
  }
  RETURN_IF_ERROR(
      world.WaitHost(world.AllGather({all.data(), offsets, tensor::DType::kF64}, *host_stream_),
                     ProgramEnd(SinceAllMet())));
  std::vector<RankCoding> ranks(size);
  const double* from = all.data();
  for (RankCoding& rank : ranks) {
    for (AxisCoding* axis : {&rank.data, &rank.pipeline}) {
      std::apply(
          [&](auto&... field) {
            ((field = static_cast<std::remove_reference_t<decltype(field)>>(*from++)), ...);
          },
          fields_of(*axis));
    }
  }
  return ranks;
}

}  // namespace trireme::engine
