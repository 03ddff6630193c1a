// Exports a checkpoint as a Hugging Face folder, all or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "checkpoint/client/reader.h"

namespace trireme::checkpoint {

struct ExportOptions {
  // Must not exist; the folder above it must.
  std::string folder;
  // Of one file, as long as no tensor is larger: models beyond it become several files with an
  // index. What Hugging Face's own writer takes.
  uint64_t most_file_bytes = 5'000'000'000;
  // Told where it reads or writes from now on: at the checkpoint's folder, or at `folder`. May be
  // absent.
  std::function<void(const std::string& path)> looks_at = nullptr;
  // Told of the bytes of tensors, first of none; what is not OK ends the export with it. May be
  // absent.
  std::function<absl::Status(uint64_t done, uint64_t total)> progress;
};

// Reads the parameters, whose checksums are compared, and leaves `folder` with config.json and the
// tensors on the disk, or nothing. Errors: AlreadyExists, NotFound: the folder, the one above it;
// DataLoss: the checkpoint; FailedPrecondition: its tensors are not those of its model;
// Unavailable: the disk, also a full one. Blocks.
absl::Status ExportCheckpoint(const Checkpoint& checkpoint, const ExportOptions& options);

}  // namespace trireme::checkpoint
