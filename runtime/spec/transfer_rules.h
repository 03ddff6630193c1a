// The rules of how values travel between ranks (rules.cc has their legal words).
#pragma once

#include <vector>

#include "runtime/spec/job_spec.h"

namespace trireme::spec {

// compression.*.bound
void CompressionBounds(const v1::JobSpec& spec, std::vector<Fault>& faults);

// compression.*.mode beside training.dtype
void CompressionNeedsF32(const v1::JobSpec& spec, std::vector<Fault>& faults);

// training.gradient_transfer beside training.dtype and compression.data_parallel.mode
void GradientTransferFits(const v1::JobSpec& spec, std::vector<Fault>& faults);

}  // namespace trireme::spec
