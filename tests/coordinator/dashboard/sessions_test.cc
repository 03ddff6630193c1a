// Links and sessions: once, for so long, so many.
#include "coordinator/dashboard/sessions.h"

#include <catch2/catch.hpp>
#include <set>

namespace trireme::dashboard {
namespace {

using coordinator::Caller;
using coordinator::Role;

constexpr int64_t kNow = 1'700'000'000'000'000'000;
constexpr int64_t Ns(std::chrono::nanoseconds time) { return time.count(); }

}  // namespace

TEST_CASE("a key opens one session with its caller's rights") {
  Sessions sessions;
  const std::string key = sessions.MakeKey({"ada", Role::kSubmit}, kNow);
  CHECK(key.size() == 43);
  CHECK(key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
        std::string::npos);
  CHECK_FALSE(sessions.Redeem("", kNow));
  CHECK_FALSE(sessions.Redeem(key + "x", kNow));
  CHECK_FALSE(sessions.Find(key, kNow));
  const auto secret = sessions.Redeem(key, kNow);
  REQUIRE(secret.has_value());
  CHECK(*secret != key);
  CHECK_FALSE(sessions.Redeem(key, kNow));
  const auto caller = sessions.Find(*secret, kNow);
  REQUIRE(caller.has_value());
  CHECK(caller->user == "ada");
  CHECK(caller->role == Role::kSubmit);
  CHECK_FALSE(sessions.Redeem(*secret, kNow));
  sessions.End(*secret);
  CHECK_FALSE(sessions.Find(*secret, kNow));
}

TEST_CASE("keys and sessions end in time") {
  Sessions sessions;
  const std::string late = sessions.MakeKey({"ada", Role::kAdmin}, kNow);
  CHECK_FALSE(sessions.Redeem(late, kNow + Ns(Sessions::kKeyLife) + 1));
  CHECK_FALSE(sessions.Redeem(late, kNow));  // spent all the same
  const std::string key = sessions.MakeKey({"ada", Role::kAdmin}, kNow);
  const auto secret = sessions.Redeem(key, kNow + Ns(Sessions::kKeyLife));
  REQUIRE(secret.has_value());
  int64_t now = kNow + Ns(Sessions::kKeyLife);
  const int64_t opened = now;
  // Used now and then it lives on, but not for ever.
  while (now - opened <= Ns(Sessions::kLongestLife)) {
    REQUIRE(sessions.Find(*secret, now).has_value());
    now += Ns(Sessions::kIdleLife) / 2;
  }
  CHECK_FALSE(sessions.Find(*secret, now));
  const auto idle = sessions.Redeem(sessions.MakeKey({"ada", Role::kAdmin}, kNow), kNow);
  CHECK_FALSE(sessions.Find(*idle, kNow + Ns(Sessions::kIdleLife) + 1));
}

TEST_CASE("a session ends with its caller's token, and a link opens none any more") {
  bool known = true;
  Sessions sessions([&](const Caller& caller) { return caller.user != "ada" || known; });
  const auto of_ada = sessions.Redeem(sessions.MakeKey({"ada", Role::kSubmit}, kNow), kNow);
  const auto of_ben = sessions.Redeem(sessions.MakeKey({"ben", Role::kSubmit}, kNow), kNow);
  const std::string key = sessions.MakeKey({"ada", Role::kSubmit}, kNow);
  REQUIRE(sessions.Find(*of_ada, kNow).has_value());
  known = false;
  CHECK_FALSE(sessions.Find(*of_ada, kNow));
  CHECK_FALSE(sessions.Redeem(key, kNow));
  CHECK(sessions.Find(*of_ben, kNow).has_value());
  // A token that is given back opens nothing by itself.
  known = true;
  CHECK_FALSE(sessions.Find(*of_ada, kNow));
}

TEST_CASE("all end at once") {
  Sessions sessions;
  const auto secret = sessions.Redeem(sessions.MakeKey({"ada", Role::kAdmin}, kNow), kNow);
  const std::string key = sessions.MakeKey({"ada", Role::kAdmin}, kNow);
  sessions.EndAll();
  CHECK_FALSE(sessions.Find(*secret, kNow));
  CHECK_FALSE(sessions.Redeem(key, kNow));
}

TEST_CASE("the oldest go when there are too many") {
  Sessions sessions;
  std::vector<std::string> keys;
  for (int i = 0; i < 1001; ++i) keys.push_back(sessions.MakeKey({"ada", Role::kAdmin}, kNow + i));
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == keys.size());
  CHECK_FALSE(sessions.Redeem(keys.front(), kNow + 2000));
  CHECK(sessions.Redeem(keys[1], kNow + 2000).has_value());
  CHECK(sessions.Redeem(keys.back(), kNow + 2000).has_value());
}

TEST_CASE("too many of one user's end none of another's") {
  Sessions sessions;
  const auto session = sessions.Redeem(sessions.MakeKey({"ada", Role::kSubmit}, kNow), kNow);
  const std::string of_ada = sessions.MakeKey({"ada", Role::kSubmit}, kNow);
  std::string first_of_ben, of_ben;
  for (int i = 1; i <= 1200; ++i) {
    of_ben = sessions.MakeKey({"ben", Role::kSubmit}, kNow + i);
    if (i == 1) first_of_ben = of_ben;
  }
  // Nor does a third one, who has none yet.
  const std::string of_cy = sessions.MakeKey({"cy", Role::kSubmit}, kNow + 2000);
  CHECK(sessions.Redeem(of_ada, kNow + 2000).has_value());
  CHECK(sessions.Redeem(of_cy, kNow + 2000).has_value());
  CHECK(sessions.Redeem(of_ben, kNow + 2000).has_value());
  CHECK_FALSE(sessions.Redeem(first_of_ben, kNow + 2000));
  for (int i = 0; i < 1200; ++i) {
    REQUIRE(sessions.Redeem(sessions.MakeKey({"ben", Role::kSubmit}, kNow + i), kNow + i));
  }
  CHECK(sessions.Find(*session, kNow + 2000).has_value());
}

}  // namespace trireme::dashboard
