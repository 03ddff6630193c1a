// Rope:
//   F: in place on y: the first (heads + kv_heads) heads of each row's [heads + 2 kv_heads][D] are
//      rotated by angle t / rope_theta^(2i/D), t = (row_begin + r) % tokens, pairs (i, i + D/2)
//      ("rotate half")
//   I: in place on dy: the inverse rotation
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

constexpr Shape PackedY(const OpSpec& spec) { return {spec.rows, PackedHeads(spec), spec.y_ld}; }

}  // namespace

constinit const OpSchema kRopeSchema = {
    .name = "Rope",
    .operands = {{InPlace(kY, PackedY)}, {InPlace(kDY, PackedY)}},
    .recompute = Recompute::kInBlock,
    .spec = HeadSpec,
    .forward = ForwardOnColumns,
    .backward = BackwardOnColumns};

}  // namespace trireme::graph
