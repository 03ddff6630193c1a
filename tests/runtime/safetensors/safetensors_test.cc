// Written bytes parsed by hand, every refused fault planted, and mutants that must never crash.
#include "runtime/safetensors/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace trireme::safetensors {
namespace {

namespace fs = std::filesystem;

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char pattern[] = "/tmp/trireme_safetensors_XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file of `header` (its length in front) and `data_bytes` zeros.
std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\0');
}

absl::StatusOr<Header> Parse(const std::string& file) {
  // A heap copy of exactly this size lets the address sanitizer see one byte read too many.
  std::vector<std::byte> bytes(file.size());
  if (!file.empty()) std::memcpy(bytes.data(), file.data(), file.size());
  return ParseHeader(bytes, bytes.size(), "model.safetensors");
}

std::string FaultOf(const std::string& file) {
  const auto header = Parse(file);
  return header.ok() ? "accepted" : std::string(header.status().message());
}

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

TEST_CASE("written bytes are what the format says") {
  TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> weights{1, 2, 3, 4, 5, 6};
  const std::vector<double> bias{0.5, -0.5};
  const std::vector<uint8_t> mask{7, 8, 9};
  auto writer = Writer::Create(path, {{"mask", Element::kU8, {3}},
                                      {"w", Element::kF32, {2, 3}},
                                      {"a\"b", Element::kF32, {}},
                                      {"bias", Element::kF64, {2}},
                                      {"none", Element::kF32, {0, 4}}});
  REQUIRE(writer.ok());
  // Any order, any chunks.
  REQUIRE(writer->Append("w", Bytes(weights).first(8)).ok());
  REQUIRE(writer->Append("mask", Bytes(mask)).ok());
  REQUIRE(writer->Append("w", Bytes(weights).subspan(8)).ok());
  REQUIRE(writer->Append("bias", Bytes(bias)).ok());
  REQUIRE(writer->Append("a\"b", Bytes(weights).first(4)).ok());
  CHECK_FALSE(fs::exists(path));
  REQUIRE(writer->Finish().ok());
  CHECK_FALSE(fs::exists(path + ".partial"));

  const std::string file = ReadAll(path);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"bias":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
      R"("a\"b":{"dtype":"F32","shape":[],"data_offsets":[16,20]},)"
      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[20,20]},)"
      R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[20,44]},)"
      R"("mask":{"dtype":"U8","shape":[3],"data_offsets":[44,47]}})";
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  CHECK(length % 8 == 0);
  REQUIRE(file.size() == 8 + length + 47);
  CHECK(length - header.size() < 8);
  CHECK(file.substr(8, length) == header + std::string(length - header.size(), ' '));
  const char* data = file.data() + 8 + length;
  CHECK(std::memcmp(data, bias.data(), 16) == 0);
  CHECK(std::memcmp(data + 16, weights.data(), 4) == 0);
  CHECK(std::memcmp(data + 20, weights.data(), 24) == 0);
  CHECK(std::memcmp(data + 44, mask.data(), 3) == 0);
}

TEST_CASE("a file reads back and names what it lacks") {
  TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::vector<float> weights{1, 2, 3, 4};
  auto writer =
      Writer::Create(path, {{"w", Element::kF32, {2, 2}}}, {{"format", "pt"}, {"é", "x"}});
  REQUIRE(writer.ok());
  REQUIRE(writer->Append("w", Bytes(weights)).ok());
  REQUIRE(writer->Finish().ok());
  auto opened = File::Open(path);
  REQUIRE(opened.ok());
  const File file = *std::move(opened);
  CHECK(file.header().metadata.at("é") == "x");
  CHECK(file.Find("w")->shape == std::vector<int64_t>{2, 2});
  CHECK(ToDType(file.Find("w")->element) == tensor::DType::kF32);
  CHECK(std::memcmp(file.Data("w")->data(), weights.data(), 16) == 0);
  const auto missing = file.Data("v");
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK(std::string(missing.status().message()).find("'v'") != std::string::npos);
  CHECK(File::Open(folder / "nothing").status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(File::Open("/tmp").ok());
}

TEST_CASE("the writer refuses what makes no file and leaves nothing behind") {
  TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::vector<float> weights{1, 2, 3, 4};
  const int64_t huge = int64_t{1} << 40;
  CHECK_FALSE(PlanFile({{"w", Element::kF32, {huge, huge}}}, {}).ok());
  CHECK_FALSE(PlanFile({{"w", Element::kF32, {-1}}}, {}).ok());
  CHECK_FALSE(PlanFile({{"w", Element::kF32, {1}}, {"w", Element::kF32, {1}}}, {}).ok());
  CHECK_FALSE(PlanFile({{"w", Element::kF32, {1}}, {"w", Element::kF64, {1}}}, {}).ok());
  CHECK_FALSE(PlanFile({{"__metadata__", Element::kF32, {1}}}, {}).ok());
  CHECK_FALSE(PlanFile({{"\xff", Element::kF32, {1}}}, {}).ok());
  {
    auto writer = Writer::Create(path, {{"w", Element::kF32, {4}}});
    REQUIRE(writer.ok());
    CHECK_FALSE(writer->Append("v", Bytes(weights)).ok());
    REQUIRE(writer->Append("w", Bytes(weights).first(8)).ok());
    CHECK_FALSE(writer->Append("w", Bytes(weights)).ok());
    const absl::Status unfinished = writer->Finish();
    CHECK(std::string(unfinished.message()).find("'w' has 8 of 16") != std::string::npos);
  }
  CHECK_FALSE(fs::exists(path));
  CHECK_FALSE(fs::exists(path + ".partial"));
}

TEST_CASE("each fault is refused by name") {
  const std::string w = R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  REQUIRE(Parse(FileOf("{" + w + "}   ", 8)).ok());
  REQUIRE(Parse(FileOf(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8)).ok());
  REQUIRE(Parse(FileOf("{}", 0)).ok());
  struct Fault {
    std::string header;
    size_t data_bytes;
    std::string message;
  };
  const std::vector<Fault> faults{
      {"{" + w + "}", 7, "truncated"},
      {"{" + w + "}", 9, "9 bytes of data"},
      {" {" + w + "}", 8, "does not begin with '{'"},
      {"{" + w, 8, "not JSON"},
      {"{" + w + "}x", 8, "not JSON"},
      {"{" + w + "," + w + "}", 8, "key 'w' is there twice"},
      {R"({"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "'dtype' is"},
      {R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8, "F31"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", 8, "dtype is missing"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", 8, "shape is missing"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", 8, "data_offsets is missing"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", 8, "data_offsets"},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "bad extent"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "bad extent"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "has 12 bytes"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "tensor 'w'"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "a hole"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "overflows"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
       "overflows"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,0]}})", 8, "'w'"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551616,8]}})", 8, "'w'"},
      {"{" + w + R"(,"v":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "an overlap"},
      {"{" + w + R"(,"v":{"dtype":"U8","shape":[4],"data_offsets":[9,13]}})", 13, "a hole"},
      {R"({"__metadata__":{"a":1}})", 0, "'a' is not a string"},
      {R"({"__metadata__":[]})", 0, "not an object"},
      {R"({"w":3})", 0, "tensor 'w'"},
      {R"({"w":{"a":{"b":{"c":1}}}})", 0, "nested"},
      {"{\"\xff\":1}", 0, "not JSON"},
  };
  for (const Fault& fault : faults) {
    const std::string message = FaultOf(FileOf(fault.header, fault.data_bytes));
    INFO(fault.header << " -> " << message);
    CHECK(message.find(fault.message) != std::string::npos);
    CHECK(message.find("model.safetensors") == 0);
  }
  CHECK(FaultOf("").find("no header") != std::string::npos);
  CHECK(FaultOf("1234567").find("no header") != std::string::npos);
  CHECK(FaultOf(std::string(8, '\xff') + "{}").find("limit") != std::string::npos);
  CHECK(FaultOf(std::string("\3\0\0\0\0\0\0\0{}", 10)).find("truncated") != std::string::npos);
}

TEST_CASE("twenty thousand mutants never crash and never point outside the file") {
  const std::string seed = FileOf(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[24,27]}})",
      27);
  REQUIRE(Parse(seed).ok());
  const std::string letters = "{}[]\",:0123456789-eE. \\u";
  std::mt19937 random(17);
  auto draw = [&](size_t below) { return random() % below; };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string mutant = seed;
    for (size_t change = 0; change <= draw(3); ++change) {
      const size_t at = draw(mutant.size());
      switch (draw(6)) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant[at] = letters[draw(letters.size())];
          break;
        case 2:
          mutant.insert(at, 1, letters[draw(letters.size())]);
          break;
        case 3:
          mutant.erase(at, 1 + draw(8));
          break;
        case 4:
          mutant.insert(at, mutant.substr(draw(mutant.size()), draw(40)));
          break;
        default:
          mutant.resize(at + 1);
          break;
      }
    }
    // The length is set right in half of the rounds, so that mutants reach the deeper rules.
    if (draw(2) == 0 && mutant.size() > 35) {
      const uint64_t length = mutant.size() - 8 - 27;
      std::memcpy(mutant.data(), &length, 8);
    }
    const auto header = Parse(mutant);
    if (!header.ok()) continue;
    ++accepted;
    uint64_t end = header->data_offset;
    for (const TensorInfo& tensor : header->tensors) {
      REQUIRE(tensor.offset == end);
      end += tensor.bytes;
    }
    REQUIRE(end == mutant.size());
  }
  CHECK(accepted > 100);
  CHECK(accepted < 10000);
}

TEST_CASE("folders: one file, an index, and indexes that lie") {
  TemporaryFolder folder;
  auto write = [&](const std::string& file, const std::string& tensor, uint8_t value) {
    auto writer = Writer::Create(folder / file, {{tensor, Element::kU8, {1}}});
    REQUIRE(writer.ok());
    REQUIRE(writer->Append(tensor, Bytes(std::vector<uint8_t>{value})).ok());
    REQUIRE(writer->Finish().ok());
  };
  const std::string root = folder / "";
  CHECK_FALSE(Folder::Open(root).ok());
  write("model.safetensors", "a", 1);
  REQUIRE(Folder::Open(root).ok());
  CHECK(Folder::Open(root)->Find("a").tensor != nullptr);
  CHECK(Folder::Open(root)->Find("b").tensor == nullptr);
  write("m-1.safetensors", "a", 2);
  write("m-2.safetensors", "b", 3);
  const std::string index = folder / "model.safetensors.index.json";
  WriteAll(index, R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  const auto sharded = Folder::Open(root);
  REQUIRE(sharded.ok());
  CHECK(sharded->Find("a").data()[0] == std::byte{2});
  CHECK(sharded->Find("b").data()[0] == std::byte{3});
  for (const char* lie :
       {R"({"weight_map":{"a":"../m-1.safetensors"}})", R"({"weight_map":{"a":"/etc/passwd"}})",
        R"({"weight_map":{"a":"m-2.safetensors"}})", R"({"weight_map":{"a":"absent"}})",
        R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}})", R"({"weight_map":3})",
        R"({"weight_map":{"a":"model.safetensors","b":"m-1.safetensors"}})", "nonsense"}) {
    WriteAll(index, lie);
    INFO(lie);
    CHECK_FALSE(Folder::Open(root).ok());
  }
}

}  // namespace
}  // namespace trireme::safetensors
