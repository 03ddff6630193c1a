// Files of options: what is taken, and how each fault is named; then thousands of broken files.
#include "coordinator/config_file/config_file.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

// A program with an option of each kind.
struct Program {
  std::string folder = "before";
  std::vector<std::string> names;
  int streams = 7;
  double rate = 1;
  bool quiet = false;
  CLI::App app{"a program"};
  ConfigFile config{app};

  Program() {
    app.add_option("--state-dir", folder)->required();
    app.add_option("--http-name", names);
    app.add_option("--max-streams", streams)->check(CLI::Range(1, 100));
    app.add_option("--rate", rate);
    app.add_flag("--no-agent", quiet);
    app.set_version_flag("--version", "1");
  }

  // What it says to these arguments; empty: nothing.
  std::string Parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& problem) {
      return problem.get_name() + ": " + config.Explain(problem);
    }
    return "";
  }
};

class Folder {
 public:
  std::string Write(const std::string& text) const {
    std::ofstream(folder_ / "a.toml") << text;
    return folder_ / "a.toml";
  }
  // What a program says to a file of this text.
  std::string Said(const std::string& text) const {
    Program program;
    return program.Parse({"--state-dir", "x", "--config", Write(text)});
  }

 private:
  tests::TemporaryFolder folder_;
};

TEST_CASE("options come from the file, those of the command line win") {
  const Folder folder;
  const std::string path = folder.Write(
      "# a comment\n"
      "\n"
      "state-dir = \"/a # b\" # behind\n"
      "  http-name = [\n"
      "    'one', # of two\n"
      "    \"t\\\"w\\\\o\",\n"
      "  ]\n"
      "max-streams = 12\r\n"
      "rate = 2.5\n"
      "no-agent = true");
  Program program;
  REQUIRE(program.Parse({"--max-streams", "3", "--config", path}) == "");
  CHECK(program.folder == "/a # b");
  CHECK(program.names == std::vector<std::string>{"one", "t\"w\\o"});
  CHECK(program.streams == 3);
  CHECK(program.rate == 2.5);
  CHECK(program.quiet);

  Program other;
  REQUIRE(other.Parse({"--config", folder.Write("no-agent = false\nhttp-name = \"one\"\n"),
                       "--http-name", "here", "--state-dir=y"}) == "");
  CHECK_FALSE(other.quiet);
  CHECK(other.names == std::vector<std::string>{"here"});
}

TEST_CASE("a file that need not be there") {
  Program program;
  CHECK(program.Parse({"--config=-/no/such/file", "--state-dir", "x"}) == "");
  Program missing;
  CHECK_THAT(missing.Parse({"--config", "/no/such/file", "--state-dir", "x"}),
             Contains("/no/such/file") && Contains("cannot be read"));
  const Folder folder;
  Program there;
  CHECK(there.Parse({"--config=-" + folder.Write("state-dir = \"y\"")}) == "");
  CHECK(there.folder == "y");
}

TEST_CASE("what is wrong in the file is named by file and line, with the fix") {
  const Folder folder;
  const auto said = [&](const std::string& text, const std::vector<std::string>& words) {
    const std::string message = folder.Said(text);
    INFO(text);
    for (const std::string& word : words) CHECK_THAT(message, Contains(word));
  };
  said("\nmax_streams = 3", {"a.toml:2: max_streams", "no such option", "max-streams"});
  said("max-stream = 3", {"a.toml:1: max-stream: no such option, did you mean max-streams?"});
  said("xyzzy = 3", {"a.toml:1: xyzzy: no such option; there are: "});
  said("rate = 1\nmax-streams = 0", {"a.toml:2: ", "max-streams", "1 to 100"});
  said("rate = fast", {"a.toml:1: ", "\"fast\""});
  said("rate = \"fast\"", {"a.toml:1: ", "rate"});
  said("max-streams = [1, 2]", {"a.toml:1: max-streams", "one value"});
  said("no-agent = 1", {"a.toml:1: no-agent", "true or false"});
  said("no-agent = \"true\"", {"a.toml:1: no-agent", "true or false"});
  said("rate = true", {"a.toml:1: ", "rate"});
  said("version = true", {"a.toml:1: version", "command line"});
  said("config = \"b\"", {"a.toml:1: config", "command line"});
  said("[daemon]\nrate = 1", {"a.toml:1: ", "no sections"});
  said("rate 1", {"a.toml:1: ", "key = value"});
  said("rate =", {"a.toml:1: ", "value"});
  said("rate = 1 2", {"a.toml:1: ", "after the value"});
  said("rate = 1\nrate = 2", {"a.toml:2: rate", "line 1"});
  said("http-name = [\"a\", \n\"b\"", {"a.toml:1: http-name", "]"});
  said("http-name = [\"a\" \"b\"]", {"a.toml:1: ", "comma"});
  said("state-dir = \"a", {"a.toml:1: ", "closing"});
  said("state-dir = \"a\\q\"", {"a.toml:1: ", "\\q"});
  // All at once.
  said("one = 1\nrate = 3\ntwo = 2", {"a.toml:1: one", "a.toml:3: two"});
  // Not of the file.
  Program program;
  CHECK_THAT(program.Parse({"--state-dir", "x", "--max-streams", "0", "--config",
                            folder.Write("max-streams = 4")}),
             !Contains("a.toml"));
}

TEST_CASE("no bytes in a file get further than an error") {
  const Folder folder;
  std::mt19937 random(1);
  const std::string valid =
      "# c\nstate-dir = \"a\\\\b\"\nhttp-name = ['a', \"b\"]\nrate = 1.5\nno-agent = true\n";
  const std::string letters = "\"'[]=,#\\\n\r\t \0-.1ae\xff";
  for (int i = 0; i < 3000; ++i) {
    std::string text = valid;
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) text.erase(at, 1 + random() % 5);
      text.insert(std::min(at, text.size()), 1, letters[random() % letters.size()]);
    }
    const std::string said = folder.Said(text);
    if (!said.empty()) CHECK_THAT(said, Contains("a.toml:"));
  }
}

}  // namespace
}  // namespace trireme::coordinator
