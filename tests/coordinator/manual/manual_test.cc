// A small command line, and what is said of it: its tree, completions, pages.
#include <catch2/catch.hpp>

#include "coordinator/manual/completion.h"
#include "coordinator/manual/man_page.h"
#include "coordinator/manual/markdown.h"
#include "coordinator/manual/shell_scripts.h"

namespace trireme::manual {
namespace {

// `boat row JOB [FILE] [-n N] [--state STATE]... [--rig {lug,gaff}] [--resume [auto|DIR]]
// [--json]`, `boat dock tie`.
class Boat {
 public:
  Boat() : app_("keeps a boat", "boat") {
    CLI::App* row = app_.add_subcommand("row", "pull at the oars");
    row->add_option("job", text_, "which")->required()->type_name("JOB");
    row->add_option("file", text_, "what")->type_name("FILE");
    row->add_option("-n,--oars", number_, "how many")->check(CLI::Range(1, 8))->type_name("N");
    row->add_option("--state", list_, "only these")
        ->type_name("STATE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    row->add_option("--rig", text_, "a sail | or none")
        ->type_name("RIG")
        ->check(CLI::IsMember({"lug", "gaff"}));
    row->add_option("--resume", text_, "go on")->expected(0, 1)->type_name("[auto|DIR]");
    row->add_flag("--json", flag_, "for programs");
    row->add_flag("--secret", flag_, "hidden")->group("");
    row->footer("Prose.\nMore of it.\n\nExamples:\n  boat row 12 -n 2\n  .boat 'x'");
    CLI::App* dock = app_.add_subcommand("dock", "at the pier");
    dock->add_subcommand("tie", "a knot");
    app_.add_subcommand("ghost", "hidden")->group("");
    tree_ = TreeOf(app_);
  }

  std::vector<std::string> Words(const std::vector<std::string>& typed) {
    std::vector<std::string> words;
    last_ = Complete(tree_, typed, [this](const std::string& value, const GivenOptions& given) {
      given_ = given;
      if (value == "JOB") return std::vector<Candidate>({{"12", "demo"}, {"13", ""}});
      if (value == "STATE") return std::vector<Candidate>({{"failed", ""}, {"paused", ""}});
      return std::vector<Candidate>();
    });
    for (const Candidate& one : last_.candidates) words.push_back(one.word);
    return words;
  }

  const Command& tree() const { return tree_; }
  Names names() const { return last_.names; }
  const GivenOptions& given() const { return given_; }
  const Completion& last() const { return last_; }

 private:
  std::string text_;
  std::vector<std::string> list_;
  int number_ = 0;
  bool flag_ = false;
  CLI::App app_;
  Command tree_;
  Completion last_;
  GivenOptions given_;
};

using Words = std::vector<std::string>;

TEST_CASE("manual: the tree has what CLI11 was told and without what is hidden") {
  const Boat boat;
  REQUIRE(boat.tree().commands.size() == 2);
  const Command* row = Find(boat.tree(), {"row"});
  REQUIRE(row != nullptr);
  CHECK(NameOf(*row) == "boat row");
  CHECK(UsageOf(*row) == "[OPTIONS] JOB [FILE]");
  CHECK(UsageOf(*Find(boat.tree(), {"dock"})) == "[OPTIONS] [COMMAND]");
  CHECK(Find(boat.tree(), {"dock", "tie"}) != nullptr);
  CHECK(Find(boat.tree(), {"sail"}) == nullptr);
  Words synopses;
  for (const Argument& option : row->options) synopses.push_back(SynopsisOf(option));
  CHECK(synopses == Words({"-h, --help", "-n, --oars N", "--state STATE", "--rig RIG",
                           "--resume [auto|DIR]", "--json"}));
  CHECK(row->options[3].choices == Words({"lug", "gaff"}));
  const auto passages = PassagesOf(row->footer);
  REQUIRE(passages.size() == 3);
  CHECK(passages[0].lines == Words({"Prose.", "More of it."}));
  CHECK(passages[2].verbatim);
}

TEST_CASE("completion: commands and options that are not there yet and values of each kind") {
  Boat boat;
  CHECK(boat.Words({""}) == Words({"row", "dock"}));
  CHECK(boat.Words({"r"}) == Words({"row"}));
  CHECK(boat.Words({"dock", ""}) == Words({"tie"}));
  CHECK(boat.Words({"row", "1"}) == Words({"12", "13"}));
  CHECK(boat.last().candidates[0].help == "demo");
  CHECK(boat.Words({"row", "12", ""}).empty());
  CHECK(boat.names() == Names::kFiles);
  CHECK(boat.Words({"row", "12", "x", ""}).empty());
  CHECK(boat.names() == Names::kNone);
  CHECK(boat.Words({"row", "--r"}) == Words({"--rig", "--resume"}));
  CHECK(boat.Words({"row", "--json", "-n", "3", "--"}) ==
        Words({"--help", "--state", "--rig", "--resume"}));
  CHECK(boat.Words({"row", "--state", "failed", "--st"}) == Words({"--state"}));
  CHECK(boat.Words({"row", "--rig", ""}) == Words({"lug", "gaff"}));
  CHECK(boat.Words({"row", "--state", "f"}) == Words({"failed"}));
  CHECK(boat.Words({"row", "12", "--state", "f"}) == Words({"failed"}));
  CHECK(boat.given().at("JOB") == "12");
  CHECK(boat.Words({"row", "-n", ""}).empty());
  CHECK(boat.Words({"row", "--resume", ""}) == Words({"auto"}));
  CHECK(boat.names() == Names::kFolders);
  CHECK(boat.Words({"row", "--resume", "--js"}) == Words({"--json"}));
  // What is no option of ours, or lies behind --, is a word like others.
  CHECK(boat.Words({"row", "--", "-x", ""}).empty());
  CHECK(boat.names() == Names::kFiles);
  CHECK(boat.Words({"nonsense", "--what", ""}) == Words({"row", "dock"}));
  CHECK(boat.Words({}) == Words({"row", "dock"}));
}

TEST_CASE("completion: with an equals sign and whole or taken apart by bash") {
  Boat boat;
  CHECK(boat.Words({"row", "--rig=l"}) == Words({"--rig=lug"}));
  CHECK(boat.Words({"row", "--rig", "=", "l"}) == Words({"--rig=lug"}));
  CHECK(boat.Words({"row", "--rig", "="}) == Words({"--rig=lug", "--rig=gaff"}));
  CHECK(boat.Words({"row", "--state=failed", "-n", "2", "1"}) == Words({"12", "13"}));
  CHECK(boat.given().at("--state") == "failed");
  CHECK(boat.given().at("-n") == "2");
  CHECK(boat.given().at("--oars") == "2");
  CHECK(boat.Words({"row", "--state", "unix", ":", "/x", "1"}) == Words({"12", "13"}));
  CHECK(boat.given().at("--state") == "unix:/x");
}

TEST_CASE("completion: for a shell one line each and what else may stand there") {
  Boat boat;
  boat.Words({"row", "1"});
  CHECK(ForShell(boat.last()) == "none\n12\tdemo\n13\t\n");
  boat.Words({"row", "1", "x"});
  CHECK(ForShell(boat.last()) == "files\n");
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = ScriptFor(shell, {"my-boat", "__ask"});
    CHECK(script.find("my-boat") != std::string::npos);
    CHECK(script.find("__ask") != std::string::npos);
    for (const char* mark : {"@P", "@C", "@F"}) CHECK(script.find(mark) == std::string::npos);
  }
  CHECK(ScriptFor("csh", {"boat", "ask"}).empty());
}

TEST_CASE("man pages: what would be an order to roff is none") {
  const Boat boat;
  const auto pages = PagesOf(boat.tree(), {"boat 1", {}, {{7, "sunk"}}});
  REQUIRE(pages.size() == 3);
  CHECK(pages[1].name == "boat-row");
  const std::string& text = pages[1].text;
  for (const char* part :
       {".TH BOAT-ROW 1", "boat\\-row \\- pull at the oars", "\\fB\\-n, \\-\\-oars N\\fR",
        "One of: lug, gaff", "boat row 12 \\-n 2", "  .boat \\(aqx\\(aq", "\\fB7\\fR\nsunk"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("secret") == std::string::npos);
  CHECK(pages[0].text.find("boat\\-dock(1)") != std::string::npos);
  CHECK(pages[2].text.find("boat dock tie") != std::string::npos);
}

TEST_CASE("markdown: a section for each command and no cell that breaks its table") {
  const Boat boat;
  const std::string page = MarkdownOf(boat.tree(), "# Boat\n");
  for (const char* part :
       {"# Boat\n", "| [boat row](#boat-row) | pull at the oars |", "## boat row\n",
        "### boat dock tie\n", "| `--rig RIG` | a sail \\| or none (lug, gaff) |",
        "| `--resume [auto\\|DIR]` | go on |", "```\nboat row 12 -n 2\n"}) {
    CAPTURE(part);
    CHECK(page.find(part) != std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::manual
