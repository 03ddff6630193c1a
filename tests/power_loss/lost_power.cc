#include "tests/power_loss/lost_power.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "runtime/base/check.h"
#include "tests/power_loss/empty_folder.h"

namespace trireme::power_loss {
namespace {

namespace fs = std::filesystem;
using Kind = Call::Kind;
using Random = std::mt19937;
using Names = std::map<std::string, int>;

constexpr size_t kSector = 512;  // what a disk writes whole

struct Write {
  uint64_t offset = 0;
  std::string bytes;
  bool truncates = false;
};

// One change of names in a folder, whole or not at all; -1: the name goes.
using NameChange = std::vector<std::pair<std::string, int>>;

struct File {
  bool is_folder = false;
  std::string kept;          // bytes
  std::vector<Write> loose;  // since the last flush
  Names names, kept_names;   // of a folder: now, and at its last flush
  std::vector<NameChange> loose_names;
};

void Apply(const Write& write, std::string& bytes) {
  if (write.truncates) return bytes.resize(write.offset);
  bytes.resize(std::max<size_t>(bytes.size(), write.offset + write.bytes.size()));
  bytes.replace(write.offset, write.bytes.size(), write.bytes);
}

void Apply(const NameChange& change, Names& names) {
  for (const auto& [name, number] : change) {
    if (number < 0) {
      names.erase(name);
    } else {
      names[name] = number;
    }
  }
}

std::pair<std::string, std::string> Split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

class Disk {
 public:
  Disk() { files_[0].is_folder = true; }

  void Do(const Call& call) {
    switch (call.kind) {
      case Kind::kMark:
        return;
      case Kind::kMakeFile:
      case Kind::kMakeFolder:
        files_[call.file].is_folder = call.kind == Kind::kMakeFolder;
        return Change(call.path, call.file);
      case Kind::kWrite:
        return files_.at(call.file).loose.push_back({call.offset, call.bytes, false});
      case Kind::kTruncate:
        return files_.at(call.file).loose.push_back({call.offset, "", true});
      case Kind::kSyncFile:
        return Flush(files_.at(call.file));
      case Kind::kSyncFolder:
        files_.at(call.file).kept_names = files_.at(call.file).names;
        return files_.at(call.file).loose_names.clear();
      case Kind::kRename:
        return Rename(call.path, call.other, -1);
      case Kind::kExchange:
        return Rename(call.path, call.other, Lookup(call.other));
      case Kind::kLink:
        return Change(call.other, Lookup(call.path));
      case Kind::kRemove:
        return Change(call.path, -1);
    }
  }

  enum class Bytes : uint8_t { kFlushed, kAll, kZeros, kRandom };
  enum class Entries : uint8_t { kFlushed, kAll, kRandom };

  // By path; a folder has no bytes.
  using Tree = std::map<std::string, std::optional<std::string>>;
  Tree After(Bytes bytes, Entries entries, Random& random) const {
    Tree tree;
    Add(0, "", bytes, entries, random, tree);
    return tree;
  }

 private:
  int Lookup(const std::string& path) const {
    int at = 0;
    for (const fs::path& name : fs::path(path)) at = files_.at(at).names.at(name.string());
    return at;
  }

  File& FolderOf(const std::string& path) { return files_.at(Lookup(Split(path).first)); }

  static void ChangeNames(File& folder, const NameChange& change) {
    Apply(change, folder.names);
    folder.loose_names.push_back(change);
  }

  void Change(const std::string& path, int number) {
    ChangeNames(FolderOf(path), {{Split(path).second, number}});
  }

  // `left`: what the old name leads to then.
  void Rename(const std::string& from, const std::string& to, int left) {
    const int moved = Lookup(from);
    File& source = FolderOf(from);
    File& target = FolderOf(to);
    if (&source == &target) {
      return ChangeNames(source, {{Split(from).second, left}, {Split(to).second, moved}});
    }
    ChangeNames(source, {{Split(from).second, left}});
    ChangeNames(target, {{Split(to).second, moved}});
  }

  static void Flush(File& file) {
    for (const Write& write : file.loose) Apply(write, file.kept);
    file.loose.clear();
  }

  static std::string BytesOf(const File& file, Bytes which, Random& random) {
    std::string bytes = file.kept;
    if (which == Bytes::kFlushed) return bytes;
    for (Write write : file.loose) {
      if (which == Bytes::kZeros) write.bytes.assign(write.bytes.size(), '\0');
      if (which == Bytes::kRandom && !write.truncates) {
        if (random() % 4 == 0) continue;
        const bool torn = random() % 4 == 0;
        const size_t sectors = write.bytes.size() / kSector + 1;
        if (torn) write.bytes.resize(std::min(write.bytes.size(), random() % sectors * kSector));
      } else if (which == Bytes::kRandom && random() % 2 == 0) {
        continue;
      }
      Apply(write, bytes);
    }
    return bytes;
  }

  static Names NamesOf(const File& folder, Entries which, Random& random) {
    if (which == Entries::kFlushed) return folder.kept_names;
    if (which == Entries::kAll) return folder.names;
    Names names = folder.kept_names;
    const size_t changes = random() % (folder.loose_names.size() + 1);
    for (size_t i = 0; i < changes; ++i) Apply(folder.loose_names[i], names);
    return names;
  }

  void Add(int number, const std::string& path, Bytes bytes, Entries entries, Random& random,
           Tree& tree) const {
    const File& file = files_.at(number);
    if (!file.is_folder) {
      tree[path] = BytesOf(file, bytes, random);
      return;
    }
    tree[path] = std::nullopt;
    for (const auto& [name, each] : NamesOf(file, entries, random)) {
      Add(each, path + "/" + name, bytes, entries, random, tree);
    }
  }

  std::map<int, File> files_;
};

struct Regular {
  const char* how;
  Disk::Bytes bytes;
  Disk::Entries entries;
};
constexpr Regular kRegular[] = {
    {"nothing that was not flushed", Disk::Bytes::kFlushed, Disk::Entries::kFlushed},
    {"all names, bytes only if flushed", Disk::Bytes::kFlushed, Disk::Entries::kAll},
    {"all bytes, names only if flushed", Disk::Bytes::kAll, Disk::Entries::kFlushed},
    {"all names, zeros for bytes not flushed", Disk::Bytes::kZeros, Disk::Entries::kAll},
    {"everything", Disk::Bytes::kAll, Disk::Entries::kAll},
};

void Make(const Disk::Tree& tree, const std::string& folder) {
  fs::remove_all(folder);
  for (const auto& [path, bytes] : tree) {  // in order: a folder before what is in it
    if (!bytes) {
      fs::create_directories(folder + path);
      continue;
    }
    std::ofstream(folder + path, std::ios::binary)
        .write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
  }
}

// Equal disks with equal promises need one look only.
size_t HashOf(const Disk::Tree& tree, const std::set<std::string>& marks) {
  std::string text;
  for (const std::string& mark : marks) text += mark + '\0';
  for (const auto& [path, bytes] : tree) {
    text += path + '\0' + (bytes ? std::to_string(bytes->size()) + ':' + *bytes : "/") + '\0';
  }
  return std::hash<std::string>()(text);
}

}  // namespace

bool AfterEachLoss(const std::vector<Call>& log, const LossOptions& options,
                   const std::function<bool(const Loss&)>& look) {
  const EmptyFolder folder;
  Disk disk;
  Loss loss{0, {}, "", folder.path() + "/disk"};
  std::set<size_t> seen;
  bool good = true;
  const auto look_at = [&](Disk::Bytes bytes, Disk::Entries entries, Random& random) {
    const Disk::Tree tree = disk.After(bytes, entries, random);
    if (!seen.insert(HashOf(tree, loss.marks)).second) return;
    Make(tree, loss.folder);
    good = look(loss);
  };
  for (size_t calls = 0; good && calls <= log.size(); ++calls) {
    if (calls > 0) {
      const Call& call = log[calls - 1];
      if (call.kind == Kind::kMark) loss.marks.insert(call.path);
      if (!options.left_out || !options.left_out(call)) disk.Do(call);
    }
    loss.calls = calls;
    if (calls < options.from) continue;
    for (const Regular& each : kRegular) {
      Random unused;
      loss.how = each.how;
      if (good) look_at(each.bytes, each.entries, unused);
    }
    for (int seed = 0; good && seed < options.random_disks; ++seed) {
      Random random(static_cast<unsigned>(calls * 1000 + static_cast<size_t>(seed)));
      loss.how = "random disk " + std::to_string(seed);
      look_at(Disk::Bytes::kRandom, Disk::Entries::kRandom, random);
    }
  }
  return good;
}

}  // namespace trireme::power_loss
