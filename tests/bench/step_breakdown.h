// Where the time of a step went, operator by operator, from the trace of the last step: each sort
// of operator beside the least that its work takes at the limits of the machine.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/benchmark/roofline.h"
#include "runtime/engine/step_trace.h"
#include "runtime/graph/lowering.h"

namespace trireme {

// Flops and bytes a second.
struct MachineSpeed {
  double product_rate = 0, memory_rate = 0;
  double Seconds(const benchmark::StepWork& work) const {
    return work.Seconds(product_rate, memory_rate);
  }
};

class StepBreakdown {
 public:
  // `stages`: of this rank, by virtual stage.
  StepBreakdown(const engine::StepTrace& trace, const std::vector<graph::StageOps>& stages) {
    size_t next = 0;
    const auto computes = trace.computes();
    for (const engine::InstructionSpan& instruction : trace.instructions()) {
      double computed = 0;
      for (; next < computes.size() && computes[next].end_ns <= instruction.end_ns; ++next) {
        const double ms = Ms(computes[next].start_ns, computes[next].end_ns);
        computed += ms;
        const graph::LoweredOp* op = NextOperator(instruction, stages);
        if (op != nullptr) Count(*op, ms);
      }
      Row& row = instructions_[instruction.kind];
      row.ms += Ms(instruction.start_ns, instruction.end_ns);
      row.computed_ms += computed;
      ++row.count;
    }
  }

  void Print(const MachineSpeed& speed) const {
    std::printf("%-34s %5s %10s %10s\n", "instruction", "runs", "ms", "computing");
    for (const auto& [kind, row] : instructions_) {
      const std::string& name = v1::InstructionKind_Name(static_cast<v1::InstructionKind>(kind));
      std::printf("%-34s %5d %10.2f %10.2f\n", name.c_str(), row.count, row.ms, row.computed_ms);
    }
    std::vector<std::pair<std::string, Row>> rows(operators_.begin(), operators_.end());
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
    std::printf("%-34s %5s %10s %10s %6s\n", "operator", "runs", "ms", "at limits", "ratio");
    for (const auto& [name, row] : rows) {
      const double least = 1e3 * speed.Seconds(row.work);
      std::printf("%-34s %5d %10.2f %10.2f %6.2f\n", name.c_str(), row.count, row.ms, least,
                  least / row.ms);
    }
  }

 private:
  struct Row {
    int count = 0;
    double ms = 0, computed_ms = 0;
    benchmark::StepWork work;
  };

  static double Ms(int64_t start_ns, int64_t end_ns) {
    return static_cast<double>(end_ns - start_ns) * 1e-6;
  }

  // Operators of an instruction follow one another in their list, of which a later instruction of
  // the same micro-batch runs the next part. Null: the instruction runs none.
  const graph::LoweredOp* NextOperator(const engine::InstructionSpan& instruction,
                                       const std::vector<graph::StageOps>& stages) {
    const graph::StageOps& stage = stages.at(instruction.virtual_stage);
    const std::vector<graph::LoweredOp>* list = instruction.kind == v1::F   ? &stage.forward
                                                : instruction.kind == v1::B ? &stage.backward
                                                : instruction.kind == v1::I ? &stage.input_grad
                                                : instruction.kind == v1::W ? &stage.weight_grad
                                                                            : nullptr;
    if (list == nullptr) return nullptr;
    size_t& next = next_[{instruction.kind, instruction.virtual_stage, instruction.micro_batch}];
    while (next < list->size() && (*list)[next].is_collective()) ++next;
    TRIREME_CHECK(next < list->size());
    return &(*list)[next++];
  }

  // Layers repeat: h.7.mlp.c_fc counts as h.*.mlp.c_fc.
  static std::string NameOf(const graph::LoweredOp& op) {
    std::string name;
    for (const char c : op.name) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      const bool in_number = !name.empty() && (name.back() == '.' || name.back() == '*');
      if (!digit || !in_number) {
        name += c;
      } else if (name.back() != '*') {
        name += '*';
      }
    }
    constexpr const char* kLetters[] = {" F", " I", " W"};
    return name + kLetters[static_cast<int>(op.spec.phase)];
  }

  void Count(const graph::LoweredOp& op, double ms) {
    Row& row = operators_[NameOf(op)];
    ++row.count;
    row.ms += ms;
    op.flops > 0 ? row.work.flops += op.flops : row.work.bytes += benchmark::LeastBytes(op);
  }

  std::map<uint32_t, Row> instructions_;
  std::map<std::string, Row> operators_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, size_t> next_;
};

}  // namespace trireme
