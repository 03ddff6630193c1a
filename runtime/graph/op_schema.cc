#include "runtime/graph/op_schema.h"

#include <iterator>

#include "runtime/base/check.h"
#include "runtime/graph/op_rules.h"

namespace trireme::graph {

tensor::DType OperandSchema::DTypeIn(const OpSpec& spec) const {
  const tensor::DType in[] = {spec.dtype, tensor::AccumulatorOf(spec.dtype), tensor::DType::kI32,
                              tensor::DType::kF64};
  return in[static_cast<size_t>(stored)];
}

std::span<const OperandSchema> OpSchema::Operands(Phase phase) const {
  const auto& all = operands[static_cast<size_t>(phase)];
  size_t count = 0;
  while (count < std::size(all) && all[count].name != kOperandCount) ++count;
  return {all, count};
}

const OperandSchema* OpSchema::Find(Phase phase, Operand name) const {
  for (const OperandSchema& operand : Operands(phase)) {
    if (operand.name == name) return &operand;
  }
  return nullptr;
}

const OpSchema& SchemaOf(OpKind kind) {
  static constexpr const OpSchema* kSchemas[] = {&kEmbeddingSchema,    &kPositionEmbeddingSchema,
                                                 &kLayerNormSchema,    &kRmsNormSchema,
                                                 &kLinearSchema,       &kRopeSchema,
                                                 &kAttentionSchema,    &kGeluSchema,
                                                 &kSwiGluSchema,       &kResidualAddSchema,
                                                 &kLmHeadLossSchema,   &kLossCombineSchema,
                                                 &kAllReduceSchema,    &kAllGatherSchema,
                                                 &kReduceScatterSchema};
  const auto index = static_cast<size_t>(kind);
  TRIREME_CHECK(index < std::size(kSchemas));
  return *kSchemas[index];
}

}  // namespace trireme::graph
