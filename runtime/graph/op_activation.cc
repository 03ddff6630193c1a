// Gelu:
//   F: y = gelu_tanh(x)
//   I: dx = base + dy * gelu'(x); y again where asked for
// SwiGlu, x = [rows][gate: cols | up: cols]:
//   F: y = silu(gate) * up
//   I: dx (packed) from dy, x; y again where asked for
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

constexpr Shape GateAndUp(const OpSpec& spec) { return {spec.rows, 2 * spec.cols, spec.x_ld}; }

}  // namespace

constinit const OpSchema kGeluSchema = {
    .name = "Gelu",
    .operands = {{Read(kX, XRows), Write(kY, YRows)},
                 {Read(kDY, YRows), Read(kX, XRows), BaseOfDx(XRows), Write(kDX, XRows),
                  Restored(YRows)}},
    .recompute = Recompute::kInBlock,
    .spec = ColumnSpec,
    .forward = ForwardOnColumns,
    .backward = BackwardOnColumns};

constinit const OpSchema kSwiGluSchema = {
    .name = "SwiGlu",
    .operands = {{Read(kX, GateAndUp), Write(kY, YRows)},
                 {Read(kDY, YRows), Read(kX, GateAndUp), Write(kDX, GateAndUp), Restored(YRows)}},
    .recompute = Recompute::kInBlock,
    .spec = ColumnSpec,
    .forward = ForwardOnColumns,
    .backward = BackwardOnColumns};

}  // namespace trireme::graph
