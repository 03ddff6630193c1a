// Parsing headers. The bytes come from outside: every number is compared before it is used.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "nlohmann/json.hpp"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::safetensors {
namespace {

using Json = nlohmann::json;

struct ElementRow {
  Element element;
  std::string_view name;
  uint64_t bytes;
};

constexpr std::array<ElementRow, 15> kElements{{
    {Element::kBool, "BOOL", 1},
    {Element::kU8, "U8", 1},
    {Element::kI8, "I8", 1},
    {Element::kF8E5M2, "F8_E5M2", 1},
    {Element::kF8E4M3, "F8_E4M3", 1},
    {Element::kI16, "I16", 2},
    {Element::kU16, "U16", 2},
    {Element::kF16, "F16", 2},
    {Element::kBF16, "BF16", 2},
    {Element::kI32, "I32", 4},
    {Element::kU32, "U32", 4},
    {Element::kF32, "F32", 4},
    {Element::kF64, "F64", 8},
    {Element::kI64, "I64", 8},
    {Element::kU64, "U64", 8},
}};

absl::Status Bad(std::string_view where, std::string_view what) {
  return absl::InvalidArgumentError(base::Text(where, ": ", what));
}

absl::Status BadTensor(std::string_view where, std::string_view name, std::string_view what) {
  return Bad(where, base::Text("tensor '", name, "': ", what));
}

// The header as JSON, with doubled keys and deep nesting refused.
absl::StatusOr<Json> ParseText(std::string_view text, std::string_view where) {
  constexpr int kMaxDepth = 3;  // file { tensor { shape [
  std::vector<std::set<std::string>> keys;
  std::string doubled;
  bool too_deep = false;
  auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        too_deep = too_deep || depth >= kMaxDepth;
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second && doubled.empty()) {
          doubled = parsed.get<std::string>();
        }
        break;
      default:
        break;
    }
    return !too_deep;
  };
  std::optional<json_text::Fault> fault;
  Json json = json_text::Parse(text, watch, &fault);
  if (fault.has_value()) {
    return Bad(where, base::Text("the header is not JSON: ", fault->what));
  }
  if (too_deep) return Bad(where, "the header is nested too deep");
  if (!doubled.empty()) return Bad(where, base::Text("key '", doubled, "' is there twice"));
  if (!json.is_object()) return Bad(where, "the header is not a JSON object");
  return json;
}

absl::Status ReadMetadata(const Json& json, std::string_view where, Metadata* metadata) {
  if (!json.is_object()) return Bad(where, "__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return Bad(where, base::Text("__metadata__ '", key, "' is not a string"));
    }
    metadata->emplace(key, value.get<std::string>());
  }
  return absl::OkStatus();
}

// The product of the shape and the element size; false on overflow, in any dimension.
bool BytesOf(const std::vector<int64_t>& shape, Element element, uint64_t* bytes) {
  *bytes = 1;
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(*bytes, static_cast<uint64_t>(extent), bytes)) return false;
  }
  return !__builtin_mul_overflow(*bytes, SizeOf(element), bytes);
}

// One entry; offsets are still relative to the data.
absl::StatusOr<TensorInfo> ReadTensor(const std::string& name, const Json& json,
                                      std::string_view where) {
  if (!json.is_object()) return BadTensor(where, name, "the entry is not an object");
  TensorInfo tensor;
  tensor.name = name;
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return BadTensor(where, name, "dtype is missing or not a string");
  }
  const auto element = ElementNamed(dtype->get_ref<const std::string&>());
  if (!element) {
    return BadTensor(where, name, base::Text("dtype ", dtype->dump(), " is not supported"));
  }
  tensor.element = *element;
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) {
    return BadTensor(where, name, "shape is missing or not an array");
  }
  for (const Json& extent : *shape) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > INT64_MAX) {
      return BadTensor(where, name, base::Text("shape ", shape->dump(), " has a bad extent"));
    }
    tensor.shape.push_back(extent.get<int64_t>());
  }
  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return BadTensor(where, name, "data_offsets is missing or not two unsigned integers");
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  uint64_t bytes = 0;
  if (!BytesOf(tensor.shape, tensor.element, &bytes)) {
    return BadTensor(where, name, base::Text("shape ", shape->dump(), " overflows 64 bits"));
  }
  if (begin > end || end - begin != bytes) {
    return BadTensor(where, name,
                     base::Text("data_offsets ", offsets->dump(), " but shape ", shape->dump(),
                                " of ", NameOf(tensor.element), " has ", bytes, " bytes"));
  }
  tensor.offset = begin;
  tensor.bytes = bytes;
  return tensor;
}

// Sorts by offset, refuses holes and overlaps, and makes the offsets relative to the file.
absl::Status PlaceTensors(uint64_t data_bytes, std::string_view where, Header* header) {
  std::sort(header->tensors.begin(), header->tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tuple(a.offset, a.bytes, std::string_view(a.name)) <
                     std::tuple(b.offset, b.bytes, std::string_view(b.name));
            });
  uint64_t at = 0;
  for (TensorInfo& tensor : header->tensors) {
    if (tensor.offset != at) {
      return BadTensor(where, tensor.name,
                       base::Text("begins at data offset ", tensor.offset, ", expected ", at,
                                  tensor.offset > at ? ": a hole" : ": an overlap"));
    }
    at += tensor.bytes;  // Cannot overflow: it is the entry's own end offset.
    if (at > data_bytes) {
      return BadTensor(where, tensor.name,
                       base::Text("ends at data offset ", at, ", but the file holds ", data_bytes,
                                  " bytes of data: truncated?"));
    }
    tensor.offset += header->data_offset;
  }
  if (at != data_bytes) {
    return Bad(where, base::Text("the tensors end at data offset ", at, ", but the file holds ",
                                 data_bytes, " bytes of data"));
  }
  for (size_t i = 0; i < header->tensors.size(); ++i) header->index[header->tensors[i].name] = i;
  return absl::OkStatus();
}

}  // namespace

uint64_t SizeOf(Element element) { return kElements[static_cast<size_t>(element)].bytes; }

std::string_view NameOf(Element element) { return kElements[static_cast<size_t>(element)].name; }

std::optional<Element> ElementNamed(std::string_view name) {
  for (const ElementRow& row : kElements) {
    if (row.name == name) return row.element;
  }
  return std::nullopt;
}

Element FromDType(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kF64:
      return Element::kF64;
    case tensor::DType::kF32:
      return Element::kF32;
    case tensor::DType::kI32:
      return Element::kI32;
    case tensor::DType::kU8:
      return Element::kU8;
    case tensor::DType::kBf16:
      return Element::kBF16;
  }
  return Element::kU8;
}

std::optional<tensor::DType> ToDType(Element element) {
  for (tensor::DType dtype :
       {tensor::DType::kF64, tensor::DType::kF32, tensor::DType::kI32, tensor::DType::kU8}) {
    if (FromDType(dtype) == element) return dtype;
  }
  return std::nullopt;
}

const TensorInfo* Header::Find(std::string_view name) const {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : &tensors[found->second];
}

absl::StatusOr<uint64_t> HeaderLength(std::span<const std::byte, 8> prefix, uint64_t file_bytes,
                                      std::string_view where) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(prefix[i]);
  if (length > kMaxHeaderBytes) {
    return Bad(where, base::Text("the header claims ", length, " bytes, the limit is ",
                                 kMaxHeaderBytes, ": not a safetensors file?"));
  }
  if (file_bytes < 8 || length > file_bytes - 8) {
    return Bad(where, base::Text("the header claims ", length, " bytes, the file has ", file_bytes,
                                 ": truncated?"));
  }
  return length;
}

absl::StatusOr<Header> ParseHeader(std::span<const std::byte> prefix, uint64_t file_bytes,
                                   std::string_view where) {
  if (prefix.size() < 8) {
    return Bad(where, base::Text("a file of ", file_bytes, " bytes has no header"));
  }
  ASSIGN_OR_RETURN(const uint64_t length, HeaderLength(prefix.first<8>(), file_bytes, where));
  if (length > prefix.size() - 8) return Bad(where, "the header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + 8, length);
  if (text.empty() || text[0] != '{') return Bad(where, "the header does not begin with '{'");
  ASSIGN_OR_RETURN(const Json json, ParseText(text, where));
  Header header;
  header.data_offset = 8 + length;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      RETURN_IF_ERROR(ReadMetadata(entry, where, &header.metadata));
      continue;
    }
    ASSIGN_OR_RETURN(TensorInfo tensor, ReadTensor(name, entry, where));
    header.tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(PlaceTensors(file_bytes - header.data_offset, where, &header));
  return header;
}

}  // namespace trireme::safetensors
