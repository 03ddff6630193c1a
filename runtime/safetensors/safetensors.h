// safetensors files (docs/formats/safetensors.md): a header that names tensors, then their bytes.
// Reading is strict, as files come from outside; writing gives the bytes that Hugging Face's own
// library gives for the same tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tensor/dtype.h"

namespace trireme::safetensors {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Element types in the order that writers sort by: alignment never falls from one to the next.
enum class Element : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};
uint64_t SizeOf(Element element);
std::string_view NameOf(Element element);  // "F32", "BF16", ...
std::optional<Element> ElementNamed(std::string_view name);
// The runtime's own types, both ways; nothing for elements that buffers do not hold.
Element FromDType(tensor::DType dtype);
std::optional<tensor::DType> ToDType(Element element);

struct TensorInfo {
  std::string name;
  Element element = Element::kF32;
  std::vector<int64_t> shape = {};
  uint64_t offset = 0;  // Of the first byte, from the beginning of the file.
  uint64_t bytes = 0;
};

struct Header {
  std::vector<TensorInfo> tensors;  // In file order.
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // 8 + the header's length.

  // Null if there is no such tensor.
  const TensorInfo* Find(std::string_view name) const;
  std::map<std::string, size_t, std::less<>> index;  // Into `tensors`.
};

// The header's length as the first eight bytes of the file say it, checked against `file_bytes` and
// the limit. `where` (a path) begins every message.
absl::StatusOr<uint64_t> HeaderLength(std::span<const std::byte, 8> prefix, uint64_t file_bytes,
                                      std::string_view where);

// Parses the first bytes of a file: eight bytes of length and the header, at least. Refuses all
// that docs/formats/safetensors.md refuses; errors are InvalidArgument and name file and tensor.
absl::StatusOr<Header> ParseHeader(std::span<const std::byte> prefix, uint64_t file_bytes,
                                   std::string_view where);

// A mapped file. Movable. The file must not be truncated by others while it is mapped.
class File {
 public:
  static absl::StatusOr<File> Open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  const Header& header() const { return header_; }
  const TensorInfo* Find(std::string_view name) const { return header_.Find(name); }
  // The tensor's bytes inside the mapping, aligned to its elements in files by our writer or
  // Hugging Face's, but not in every file; copy, or check. NotFound names the file.
  absl::StatusOr<std::span<const std::byte>> Data(std::string_view name) const;
  std::span<const std::byte> Data(const TensorInfo& tensor) const;

 private:
  File() = default;
  std::string path_;
  std::span<const std::byte> mapped_;
  Header header_;
};

// A Hugging Face folder's tensors: model.safetensors, or the files of model.safetensors.index.json.
class Folder {
 public:
  // Opens every file. Refuses file names with '/' or '..', tensors the index promises but the files
  // lack, and tensors in two files.
  static absl::StatusOr<Folder> Open(const std::string& folder);
  struct Entry {
    const File* file = nullptr;
    const TensorInfo* tensor = nullptr;
    std::span<const std::byte> data() const { return file->Data(*tensor); }
  };
  // Null file and tensor if there is no such tensor.
  Entry Find(std::string_view name) const;
  const std::map<std::string, Entry, std::less<>>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<File>> files_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

struct TensorSpec {
  std::string name;
  Element element = Element::kF32;
  std::vector<int64_t> shape = {};
};

using Metadata = std::map<std::string, std::string>;

// What every file says, as Hugging Face's loaders want it.
Metadata DefaultMetadata();

// The first bytes of a file of these tensors (length, header, padding), and where each goes.
// Refuses doubled names, "__metadata__", names that are not UTF-8, and sizes that overflow.
struct Plan {
  std::string prefix;
  Header header;
  uint64_t file_bytes = 0;
};
absl::StatusOr<Plan> PlanFile(std::vector<TensorSpec> tensors, const Metadata& metadata);

// Streams one file: tensors in any order, each in as many consecutive chunks as wanted. Writes
// `path`.partial and renames at Finish, so a half file is never seen under its name; a writer that
// is destroyed unfinished removes it. Unavailable: a full disk. Blocks on the disk.
class Writer {
 public:
  static absl::StatusOr<Writer> Create(const std::string& path, std::vector<TensorSpec> tensors,
                                       const Metadata& metadata = DefaultMetadata());
  Writer(Writer&& other) noexcept;
  Writer& operator=(Writer&& other) noexcept;
  Writer(const Writer&) = delete;
  ~Writer();

  // What was planned: file order, offsets, and the bytes before the data.
  const Plan& plan() const { return plan_; }
  // The next `chunk` of tensor `name`.
  absl::Status Append(std::string_view name, std::span<const std::byte> chunk);
  // Checks that every tensor is complete, waits for the disk, gives the file its name.
  absl::Status Finish();

 private:
  Writer() = default;
  void Discard();
  std::string path_;
  int fd_ = -1;
  Plan plan_;
  std::vector<uint64_t> written_;  // Bytes of each of plan_.header.tensors.
};

}  // namespace trireme::safetensors
