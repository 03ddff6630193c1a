// A kernel that is one function of its call: no scratch, nothing prepared but the spec it has
// captured.
#pragma once

#include <memory>
#include <utility>

#include "runtime/kernels/kernel.h"

namespace trireme::kernels::cpu {

template <class Body>
class LoopKernel : public Kernel {
 public:
  explicit LoopKernel(Body body) : body_(std::move(body)) {}
  void Run(const graph::OpCall& call) override { body_(call); }

 private:
  Body body_;
};

template <class Body>
std::unique_ptr<Kernel> MakeLoop(Body body) {
  return std::make_unique<LoopKernel<Body>>(std::move(body));
}

}  // namespace trireme::kernels::cpu
