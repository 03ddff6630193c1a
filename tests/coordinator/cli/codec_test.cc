// `trireme codec` from outside: files there and back, what it says, what it refuses.
#include <stdlib.h>
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct Said {
  int code = -1;
  std::string text;

  bool Holds(const std::string& part) const { return text.find(part) != std::string::npos; }
};

// A folder in which `trireme codec ARGUMENTS` runs.
class CodecFolder {
 public:
  CodecFolder() {
    char name[] = "/tmp/trireme_codec_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~CodecFolder() { fs::remove_all(path_); }

  fs::path operator/(const std::string& name) const { return path_ / name; }

  Said Run(const std::string& arguments) const {
    const std::string command = "cd '" + path_.string() + "' && '" + TRIREME_BINARY_DIR +
                                "/bin/trireme' codec " + arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Said said;
    std::array<char, 256> line;
    while (fgets(line.data(), line.size(), pipe) != nullptr) said.text += line.data();
    const int status = pclose(pipe);
    REQUIRE(WIFEXITED(status));
    said.code = WEXITSTATUS(status);
    return said;
  }

 private:
  fs::path path_;
};

std::string SomeValues(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i));
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(float)};
}

TEST_CASE("codec: a file of values comes back within the bound, whole and in part") {
  const CodecFolder folder;
  const std::string values = SomeValues(100'000);
  Write(folder / "in", values);
  REQUIRE(folder.Run("compress in coded --bound abs:0.01 --threads 2").code == 0);
  CHECK(fs::file_size(folder / "coded") * 3 < values.size());
  REQUIRE(folder.Run("decompress coded out").code == 0);
  const std::string back = Slurp(folder / "out");
  REQUIRE(back.size() == values.size());
  for (size_t at = 0; at < back.size(); at += sizeof(float)) {
    float x, y;
    std::memcpy(&x, values.data() + at, sizeof(x));
    std::memcpy(&y, back.data() + at, sizeof(y));
    REQUIRE(std::fabs(x - y) <= 0.01F);
  }
  REQUIRE(folder.Run("decompress coded part --first 70000 --count 9").code == 0);
  CHECK(Slurp(folder / "part") == back.substr(280'000, 36));
  CHECK(folder.Run("stat coded --json").Holds("\"exception_bytes\":"));
  const Said said = folder.Run("stat coded");
  CHECK(said.code == 0);
  CHECK(
      (said.Holds("100000 of f32") && said.Holds("abs:0.01") && said.Holds("checksums    right")));
  REQUIRE(folder.Run("compress in kept --type f64 --bound rms:0").code == 0);
  REQUIRE(folder.Run("decompress kept again").code == 0);
  CHECK(Slurp(folder / "again") == values);
}

TEST_CASE("codec: bad input is refused with exit code 2 and leaves no file") {
  const CodecFolder folder;
  Write(folder / "in", SomeValues(1000) + "x");
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Said said = folder.Run(arguments);
    INFO(arguments << ": " << said.text);
    CHECK(said.code == 2);
    CHECK(said.Holds(why));
    CHECK(!fs::exists(folder / "out"));
    CHECK(!fs::exists(folder / "out.partial"));
  };
  refused("compress in out --bound abs:1", "is --type right?");
  refused("compress gone out --bound abs:1", "gone: no such file");
  refused("compress in out --bound mean:1", "expected abs:E, range:E or rms:E");
  refused("compress in out --bound abs:1 --type f8", "f32, bf16, f16 or f64");
  refused("decompress in out", "does not begin with TRIRCODE");
  refused("sta in", "did you mean codec stat?");
  Write(folder / "in", SomeValues(1000));
  REQUIRE(folder.Run("compress in coded --bound abs:0.1").code == 0);
  CHECK(folder.Run("compress in coded --bound abs:0.1").Holds("--force"));
  CHECK(folder.Run("compress in coded --bound abs:0.1 --force").code == 0);
  fs::create_symlink("/dev/full", folder / "out.partial");
  const auto full = folder.Run("decompress coded out");
  CHECK(full.code == 4);
  CHECK(full.Holds("is full"));
  refused("decompress coded out --first 1001", "beyond its 1000 values");
  refused("decompress coded out --first 10 --count 991", "has 990 values from 10 on");
  std::string bytes = Slurp(folder / "coded");
  Write(folder / "cut", bytes.substr(0, bytes.size() - 1));
  refused("decompress cut out", "cut off?");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Write(folder / "changed", bytes);
  refused("decompress changed out", "wrong checksum");
  refused("stat changed", "changed: codec stream: piece 0");
}

}  // namespace
}  // namespace trireme::cli
