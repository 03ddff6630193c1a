// Who is let in, and what the roles may do.
#include "coordinator/calls/access.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

class TokenFile {
 public:
  explicit TokenFile(const std::string& text) {
    const int fd = mkstemp(path_.data());  // mode 0600
    REQUIRE(fd >= 0);
    close(fd);
    std::ofstream(path_) << text;
  }
  ~TokenFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/trireme-tokens-XXXXXX";
};

constexpr const char* kTokens =
    "# people\n"
    "submit ann 0123456789abcdef   # hers\n"
    "\n"
    "admin bob sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"
    "operator ola 0123456789abcdeF\n"
    "agent n1 fedcba9876543210\n";

}  // namespace

TEST_CASE("tokens name their users and roles") {
  const TokenFile file(kTokens);
  const auto access = Access::Load(file.path());
  REQUIRE(access.ok());
  const auto ann = access->Identify(nullptr, "Bearer 0123456789abcdef");
  REQUIRE(ann.ok());
  CHECK(ann->user == "ann");
  CHECK(ann->role == Role::kSubmit);
  // The hash is that of "test".
  const auto bob = access->Identify(nullptr, "Bearer test");
  REQUIRE(bob.ok());
  CHECK(bob->role == Role::kAdmin);
  CHECK(access->Identify(nullptr, "Bearer 0123456789abcdeF")->role == Role::kOperator);
  CHECK(access->Identify(nullptr, "Bearer fedcba9876543210")->role == Role::kAgent);
  CHECK(access->Identify(nullptr, "bearer fedcba9876543210")->role == Role::kAgent);
}

TEST_CASE("tokens are read again, and a broken file changes nothing") {
  const TokenFile file(kTokens);
  auto access = Access::Load(file.path());
  REQUIRE(access.ok());
  const Access copy = *access;
  const Caller ann = *copy.Identify(nullptr, "Bearer 0123456789abcdef");
  CHECK(copy.StillKnows(ann).ok());
  std::ofstream(file.path()) << "submit eve 0000000000000000\n";
  REQUIRE(access->Reload().ok());
  CHECK(copy.Identify(nullptr, "Bearer 0000000000000000")->user == "eve");
  CHECK(absl::IsUnauthenticated(copy.Identify(nullptr, "Bearer 0123456789abcdef").status()));
  std::ofstream(file.path()) << "submit eve short\n";
  CHECK(absl::IsInvalidArgument(access->Reload()));
  // A role of another kind is another token; who came without one stays.
  const Caller eve = *copy.Identify(nullptr, "Bearer 0000000000000000");
  CHECK(copy.StillKnows(eve).ok());
  std::ofstream(file.path()) << "admin eve 0000000000000000\n";
  REQUIRE(access->Reload().ok());
  CHECK(absl::IsUnauthenticated(copy.StillKnows(eve)));
  CHECK(absl::IsUnauthenticated(copy.StillKnows(ann)));
  CHECK(copy.StillKnows(*copy.LocalCaller(1)).ok());
  unlink(file.path().c_str());
  CHECK_FALSE(access->Reload().ok());
  CHECK(copy.Identify(nullptr, "Bearer 0000000000000000").ok());
}

TEST_CASE("strangers are refused") {
  const TokenFile file(kTokens);
  const auto access = Access::Load(file.path());
  REQUIRE(access.ok());
  for (const char* words : {"", "Bearer ", "Bearer 0123456789abcdEF", "Bearer 0123456789abcde",
                            "Bearer0123456789abcdef", "Basic 0123456789abcdef",
                            "Bearer sha256:9f86d081884c7d659a2feaa0c55ad015"
                            "a3bf4f1b2b0b822cd15d6c15b0f00a08"}) {
    CAPTURE(words);
    CHECK(absl::IsUnauthenticated(access->Identify(nullptr, words).status()));
  }
  // A wrong token is no key to the socket either.
  const Caller local = *access->LocalCaller(geteuid());
  CHECK_FALSE(access->Identify(&local, "Bearer nobody-knows-this").ok());
  CHECK(access->Identify(&local, "")->role == Role::kAdmin);
  CHECK(access->Identify(&local, "Bearer 0123456789abcdef")->user == "ann");
  CHECK_FALSE(Access().Identify(nullptr, "Bearer 0123456789abcdef").ok());
}

TEST_CASE("of the users of this machine root and the daemon's own are admins, others submit") {
  const Access access;
  CHECK(access.LocalCaller(0)->role == Role::kAdmin);
  CHECK(access.LocalCaller(0)->user == "root");
  CHECK(access.LocalCaller(geteuid())->role == Role::kAdmin);
  constexpr uid_t kNobody = 65534, kWithoutName = 3999999999;
  if (geteuid() != kNobody) {
    CHECK(access.LocalCaller(kNobody)->role == Role::kSubmit);
    CHECK(access.LocalCaller(kNobody)->user == "nobody");
  }
  // He may be anybody who has subordinate uids, as often as he likes.
  CHECK_FALSE(access.LocalCaller(kWithoutName));
}

TEST_CASE("a job is its owner's and the admins'") {
  CHECK(MayTouch({"ann", Role::kSubmit}, "ann").ok());
  CHECK(MayTouch({"bob", Role::kAdmin}, "ann").ok());
  CHECK(absl::IsPermissionDenied(MayTouch({"eve", Role::kSubmit}, "ann")));
  CHECK(absl::IsPermissionDenied(MayTouch({"ann", Role::kAgent}, "ann")));
  CHECK(absl::IsPermissionDenied(MustBe({"ann", Role::kSubmit}, Role::kAdmin)));
  CHECK(absl::IsPermissionDenied(MustBe({"ann", Role::kSubmit}, Role::kAgent)));
  CHECK(absl::IsPermissionDenied(MustBe({"n1", Role::kAgent}, Role::kSubmit)));
  CHECK(MustBe({"bob", Role::kAdmin}, Role::kAgent).ok());
  CHECK(MustBe({"ola", Role::kOperator}, Role::kSubmit).ok());
  CHECK(MustBe({"bob", Role::kAdmin}, Role::kOperator).ok());
  CHECK(absl::IsPermissionDenied(MustBe({"ann", Role::kSubmit}, Role::kOperator)));
  CHECK(absl::IsPermissionDenied(MustBe({"ola", Role::kOperator}, Role::kAdmin)));
  CHECK(absl::IsPermissionDenied(MustBe({"n1", Role::kAgent}, Role::kOperator)));
  CHECK(MayTouch({"ola", Role::kOperator}, "ola").ok());
  CHECK(absl::IsPermissionDenied(MayTouch({"ola", Role::kOperator}, "ann")));
}

TEST_CASE("a priority above 0 is for operators and admins") {
  CHECK(MayAskPriority({"ann", Role::kSubmit}, 0).ok());
  CHECK(MayAskPriority({"ann", Role::kSubmit}, -5).ok());
  const absl::Status denied = MayAskPriority({"ann", Role::kSubmit}, 1);
  CHECK(absl::IsPermissionDenied(denied));
  CHECK(base::MessageOf(denied) ==
        "job.resources.priority: 1 is above 0, for which ann needs the role operator; ask for 0 or "
        "less, or have an admin give ann that role in the daemon's token file");
  CHECK(MayAskPriority({"ola", Role::kOperator}, 1000).ok());
  CHECK(MayAskPriority({"bob", Role::kAdmin}, 1000).ok());
}

TEST_CASE("a token of an agent may be for some nodes alone") {
  const TokenFile file(
      "agent rack1 0123456789abcdef nodes=n1,gpu-*\n"
      "agent any fedcba9876543210\n");
  const auto access = Access::Load(file.path());
  REQUIRE(access.ok());
  const auto rack = access->Identify(nullptr, "Bearer 0123456789abcdef");
  REQUIRE(rack.ok());
  for (const char* node : {"n1", "gpu-", "gpu-17"}) CHECK(MayBeNode(*rack, node).ok());
  for (const char* node : {"n11", "n", "gpu", "cpu-1", ""}) {
    const absl::Status refused = MayBeNode(*rack, node);
    INFO(node);
    CHECK(absl::IsPermissionDenied(refused));
    CHECK(base::MessageOf(refused).find("nodes=n1,gpu-*") != std::string::npos);
  }
  CHECK(MayBeNode(*access->Identify(nullptr, "Bearer fedcba9876543210"), "cpu-1").ok());
}

TEST_CASE("a token file with a fault is refused by line") {
  for (const char* text :
       {"root ann 0123456789abcdef\n", "submit ann\n", "submit ann short\n",
        "submit ann 0123456789abcdef more\n", "agent ann 0123456789abcdef more\n",
        "submit ann 0123456789abcdef nodes=n1\n", "agent ann 0123456789abcdef nodes=n1 more\n",
        "submit ann sha256:12\n",
        "submit ann sha256:"
        "zz86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"}) {
    CAPTURE(text);
    const TokenFile file(std::string("# first\n") + text);
    const auto access = Access::Load(file.path());
    REQUIRE(absl::IsInvalidArgument(access.status()));
    CHECK(base::MessageOf(access.status()).find(":2: expected") != std::string::npos);
  }
  const TokenFile latin("submit J\xF6rg 0123456789abcdef\n");
  CHECK(base::MessageOf(Access::Load(latin.path()).status()).find(":1: the user's name is not") !=
        std::string::npos);
  const TokenFile open(kTokens);
  chmod(open.path().c_str(), 0640);
  CHECK(absl::IsFailedPrecondition(Access::Load(open.path()).status()));
  CHECK_FALSE(Access::Load("/nonexistent/tokens").ok());
  CHECK_FALSE(Access::Load("/").ok());
  CHECK(absl::IsInvalidArgument(Access::Load(TokenFile("# none\n").path()).status()));
}

}  // namespace trireme::coordinator
