// Who gets in, what he sees and may ask for; files of run folders that are not what they should be.
#include "coordinator/dashboard/dashboard.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/http/route_table.h"
#include "tests/coordinator/dashboard/run_folder.h"
#include "tests/coordinator/job_store/held_store.h"
#include "tests/coordinator/run_files/hung_mount.h"
#include "tests/runtime/plan/sample_jobs.h"
#include "tests/skip.h"

namespace trireme::dashboard {
namespace {

using coordinator::Caller;
using coordinator::HttpRequest;
using coordinator::HttpResponse;
using coordinator::Role;

constexpr char kHost[] = "127.0.0.1:8470";

v1::Job JobOf(uint64_t id, const std::string& owner, const std::string& folder) {
  v1::Job job;
  job.set_id(id);
  job.set_owner(owner);
  job.set_name(fmt::format("job-{}", id));
  job.set_run_folder(folder);
  job.mutable_resources()->set_ranks(2);
  job.mutable_status()->set_state(v1::JOB_RUNNING);
  job.mutable_status()->set_attempt(1);
  return job;
}

v1::Event EventOf(uint64_t sequence, uint64_t job) {
  v1::Event event;
  event.set_sequence(sequence);
  event.set_job_id(job);
  event.mutable_checkpointed()->set_step(sequence);
  return event;
}

// A daemon with jobs 1 of ada and 2 of bob, and browsers that come to it.
class House {
 public:
  House()
      : store_(std::make_shared<coordinator::HeldStore>(*coordinator::JobStore::Open(":memory:"))),
        reads_(table_, store_, "/state/jobs.db"),
        dashboard_({reads_,
                    [this](const std::string& user, uint64_t job,
                           const coordinator::JobEvent& request, double grace) {
                      asked_.push_back({user, job, request.index(), grace});
                      return absl::StatusOr<v1::Job>(*table_->Get(job));
                    },
                    disks_, ""}),
        routes_(dashboard_.Routes()) {
    table_->Publish({JobOf(1, "ada", folder_.path()), JobOf(2, "bob", folder_.path() + "/none")},
                    {EventOf(1, 1), EventOf(2, 2), EventOf(3, 0)});
  }

  void Put(const v1::Job& job) { table_->Publish({job}, {}); }
  void Tell(const v1::Event& event) { table_->Publish({}, {event}); }

  HttpResponse Send(HttpRequest request) {
    request.headers.emplace("host", kHost);
    const size_t mark = request.path.find('?');
    if (mark != std::string::npos) {
      std::string query = request.path.substr(mark + 1);
      request.path.resize(mark);
      const size_t equals = query.find('=');
      request.query.emplace(query.substr(0, equals), query.substr(equals + 1));
    }
    const coordinator::RouteMatch match = routes_.Find(request.method, request.path);
    INFO(request.method << " " << request.path);
    REQUIRE(match.route != nullptr);
    request.path_values = match.values;
    return match.route->handler(request);
  }

  // The value of the Cookie header after a login.
  std::string Enter(const Caller& caller) {
    const HttpResponse response = Send({.method = "GET", .path = dashboard_.MakeLink(caller)});
    CHECK(response.status == 200);
    const std::string cookie = SetCookieOf(response);
    REQUIRE_FALSE(cookie.empty());
    return cookie.substr(0, cookie.find(';'));
  }

  static std::string SetCookieOf(const HttpResponse& response) {
    for (const auto& [name, value] : response.headers) {
      if (name == "Set-Cookie") return value;
    }
    return "";
  }

  HttpResponse Get(const std::string& path, const std::string& cookie,
                   std::multimap<std::string, std::string> query = {}) {
    return Send({.method = "GET",
                 .path = path,
                 .query = std::move(query),
                 .headers = {{"cookie", cookie}}});
  }

  // As Get, from any thread.
  HttpResponse GetBeside(const std::string& path, const std::string& cookie) const {
    HttpRequest request{
        .method = "GET", .path = path, .headers = {{"host", kHost}, {"cookie", cookie}}};
    const coordinator::RouteMatch match = routes_.Find("GET", path);
    request.path_values = match.values;
    return match.route->handler(request);
  }

  HttpResponse Post(const std::string& path, const std::string& cookie,
                    std::multimap<std::string, std::string> headers = {{"x-trireme", "1"}}) {
    headers.emplace("cookie", cookie);
    return Send({.method = "POST", .path = path, .headers = std::move(headers)});
  }

  struct Asked {
    std::string by;
    uint64_t job = 0;
    size_t what = 0;  // index in JobEvent
    double grace = 0;
  };
  const std::vector<Asked>& asked() const { return asked_; }
  const RunFolder& folder() const { return folder_; }
  Dashboard& dashboard() { return dashboard_; }
  coordinator::HeldStore& store() { return *store_; }
  coordinator::JobTable& table() { return *table_; }

 private:
  RunFolder folder_;
  const std::shared_ptr<coordinator::JobTable> table_ = std::make_shared<coordinator::JobTable>();
  const std::shared_ptr<coordinator::HeldStore> store_;
  coordinator::StoreReads reads_;
  std::vector<Asked> asked_;
  coordinator::DiskCalls disks_{{.name = "disk"}};
  Dashboard dashboard_;
  coordinator::RouteTable routes_;
};

const Caller kAda{"ada", Role::kSubmit};
const Caller kAdmin{"root", Role::kAdmin};

}  // namespace

TEST_CASE("without a session there is a way in and nothing else") {
  House house;
  const HttpResponse home = house.Get("/", "");
  CHECK(home.status == 401);
  CHECK(home.body.find("trireme dashboard") != std::string::npos);
  for (const char* path : {"/api/cluster", "/api/jobs", "/api/events", "/api/jobs/1",
                           "/api/jobs/1/curve", "/api/jobs/1/log"}) {
    const HttpResponse response = house.Get(path, "trireme_session_8470=guess");
    CHECK(response.status == 401);
    CHECK(Parsed(response.body).contains("error"));
  }
  CHECK(house.Post("/api/jobs/1/cancel", "").status == 401);
  CHECK(house.asked().empty());
}

TEST_CASE("jobs are listed as they matter, page by page") {
  House house;
  const std::string cookie = house.Enter(kAdmin);
  const auto put = [&](uint64_t id, v1::JobState state) {
    v1::Job job = JobOf(id, "ada", house.folder().path());
    job.mutable_status()->set_state(state);
    job.set_priority(id == 4 ? 1 : 0);
    house.Put(job);
  };
  put(3, v1::JOB_PENDING);
  put(4, v1::JOB_PENDING);
  put(5, v1::JOB_FAILED);
  put(6, v1::JOB_PAUSED);
  put(7, v1::JOB_COMPLETED);
  put(8, v1::JOB_RECOVERING);
  const std::vector<uint64_t> order{1, 2, 8, 4, 3, 6, 7, 5};
  for (const size_t size : {1, 2, 3, 5, 6, 7, 8, 100}) {
    std::vector<uint64_t> listed;
    std::string page;
    do {
      const Json json =
          Parsed(house.Get(fmt::format("/api/jobs?size={}", size), cookie, {{"page", page}}).body);
      CHECK(json["jobs"].size() <= size);
      for (const Json& job : json["jobs"]) {
        listed.push_back(std::stoull(job["job"]["id"].get<std::string>()));
      }
      page = json["next_page"];
      REQUIRE(listed.size() <= order.size());
    } while (!page.empty());
    CHECK(listed == order);
  }
  const Json failed = Parsed(house.Get("/api/jobs?state=failed", cookie).body);
  REQUIRE(failed["jobs"].size() == 1);
  CHECK(failed["jobs"][0]["job"]["id"] == "5");
  CHECK(Parsed(house.Get("/api/jobs?state=paused", cookie).body)["jobs"][0]["job"]["id"] == "6");
  for (const char* wrong : {"x", "-1", "1x", "ended-x"}) {
    CHECK(house.Get("/api/jobs", cookie, {{"page", wrong}}).status == 400);
  }
}

TEST_CASE("a job tells of ranks that stand still for as long as they do") {
  House house;
  const std::string cookie = house.Enter(kAda);
  v1::Job job = JobOf(1, "ada", house.folder().path());
  job.mutable_status()->set_attempt_live(true);
  house.Put(job);
  v1::Event event;
  event.set_job_id(1);
  event.set_attempt(1);
  const auto tell = [&](uint64_t sequence, uint32_t rank, bool over) {
    event.set_sequence(sequence);
    event.mutable_stalled()->set_rank(rank);
    event.mutable_stalled()->set_over(over);
    event.mutable_stalled()->set_text(fmt::format("rank {} is stopped", rank));
    house.Tell(event);
  };
  const auto stalled = [&] {
    const Json listed = Parsed(house.Get("/api/jobs", cookie).body)["jobs"][0]["stalled"];
    CHECK(Parsed(house.Get("/api/jobs/1", cookie).body)["stalled"] == listed);
    return listed;
  };
  CHECK(stalled() == Json::array());
  tell(4, 3, false);
  tell(5, 1, false);
  CHECK(stalled() == Json({"rank 1 is stopped", "rank 3 is stopped"}));
  tell(6, 3, true);
  CHECK(stalled() == Json({"rank 1 is stopped"}));
  job.mutable_status()->set_attempt_live(false);
  house.Put(job);
  CHECK(stalled() == Json::array());
  job.mutable_status()->set_attempt_live(true);
  job.mutable_status()->set_attempt(2);
  house.Put(job);
  CHECK(stalled() == Json::array());
}

TEST_CASE("a link works once and leaves a strict cookie") {
  House house;
  const std::string link = house.dashboard().MakeLink(kAda);
  CHECK(house.Send({.method = "HEAD", .path = link}).status == 401);  // a preview spends nothing
  const HttpResponse first = house.Send({.method = "GET", .path = link});
  CHECK(first.status == 200);
  const std::string cookie = House::SetCookieOf(first);
  CHECK(cookie.starts_with("trireme_session_8470="));
  for (const char* word : {"HttpOnly", "SameSite=Strict", "Path=/"}) {
    CHECK(cookie.find(word) != std::string::npos);
  }
  const HttpResponse again = house.Send({.method = "GET", .path = link});
  CHECK(again.status == 401);
  CHECK(House::SetCookieOf(again).empty());
  const std::string session = cookie.substr(0, cookie.find(';'));
  CHECK(house.Get("/", session).status == 200);
  CHECK(house.Post("/logout", session, {}).status == 403);
  CHECK(house.Get("/", session).status == 200);
  CHECK(house.Post("/logout", session).status == 200);
  CHECK(house.Get("/", session).status == 401);
}

TEST_CASE("pages say what they may load") {
  House house;
  const HttpResponse home = house.Get("/", house.Enter(kAda));
  CHECK(home.status == 200);
  CHECK(home.body.find("http://") == std::string::npos);
  CHECK(home.body.find("https://") == std::string::npos);
  const auto policy = std::find_if(home.headers.begin(), home.headers.end(), [](const auto& one) {
    return one.first == "Content-Security-Policy";
  });
  REQUIRE(policy != home.headers.end());
  CHECK(policy->second.starts_with("default-src 'self';"));
  CHECK(house.Get("/assets/main.js", "").content_type.starts_with("text/javascript"));
  CHECK(house.Get("/assets/uPlot.esm.js", "").status == 200);
  CHECK(house.Get("/assets/passwd", "").status == 404);
}

TEST_CASE("people see their own jobs and admins all") {
  House house;
  const std::string ada = house.Enter(kAda);
  const std::string admin = house.Enter(kAdmin);
  CHECK(Parsed(house.Get("/api/cluster", ada).body)["user"] == "ada");
  CHECK(Parsed(house.Get("/api/jobs", ada).body)["jobs"].size() == 1);
  CHECK(Parsed(house.Get("/api/jobs", admin).body)["jobs"].size() == 2);
  CHECK(Parsed(house.Get("/api/events", ada).body)["events"].size() == 2);
  CHECK(Parsed(house.Get("/api/events", admin).body)["events"].size() == 3);
  CHECK(house.Get("/api/jobs/1", ada).status == 200);
  CHECK(house.Get("/api/jobs/2", admin).status == 200);
  for (const char* part : {"", "/curve", "/plan", "/timeline", "/events", "/log"}) {
    CHECK(house.Get(fmt::format("/api/jobs/2{}", part), ada).status == 403);
  }
  for (const char* id : {"3", "0", "-1", "1x", "99999999999999999999", "%2e"}) {
    CHECK(house.Get(fmt::format("/api/jobs/{}", id), admin).status == 404);
  }
  CHECK(house.Get("/api/jobs/1/secrets", ada).status == 404);
}

TEST_CASE("jobs are changed by their people and from the own page alone") {
  House house;
  const std::string ada = house.Enter(kAda);
  CHECK(house.Post("/api/jobs/1/pause", ada, {}).status == 403);
  CHECK(
      house.Post("/api/jobs/1/pause", ada, {{"x-trireme", "1"}, {"origin", "http://evil.example"}})
          .status == 403);
  CHECK(house.Post("/api/jobs/1/pause", ada, {{"x-trireme", "1"}, {"sec-fetch-site", "cross-site"}})
            .status == 403);
  CHECK(house.Post("/api/jobs/2/pause", ada).status == 403);
  CHECK(house.Post("/api/jobs/9/pause", ada).status == 404);
  CHECK(house.Post("/api/jobs/1/destroy", ada).status == 404);
  REQUIRE(house.asked().empty());
  CHECK(house
            .Post("/api/jobs/1/pause", ada,
                  {{"x-trireme", "1"},
                   {"origin", std::string("http://") + kHost},
                   {"sec-fetch-site", "same-origin"}})
            .status == 200);
  CHECK(house.Post("/api/jobs/1/resume", ada).status == 200);
  CHECK(house.Post("/api/jobs/2/cancel", house.Enter(kAdmin)).status == 200);
  REQUIRE(house.asked().size() == 3);
  CHECK(house.asked()[0].what == coordinator::JobEvent(coordinator::PauseAsked{}).index());
  CHECK(house.asked()[1].what == coordinator::JobEvent(coordinator::ResumeAsked{}).index());
  CHECK(house.asked()[2].what == coordinator::JobEvent(coordinator::CancelAsked{}).index());
  CHECK(house.asked()[2].job == 2);
  // Each takes turns as himself.
  CHECK(house.asked()[1].by == "ada");
  CHECK(house.asked()[2].by != "ada");
  CHECK(house.asked()[2].grace == 30);
}

TEST_CASE("queries that make no sense are refused") {
  House house;
  const std::string ada = house.Enter(kAda);
  for (const char* path :
       {"/api/jobs?size=x", "/api/jobs?state=nice", "/api/jobs?page=x", "/api/events?after=-1",
        "/api/jobs/1/curve?offset=1.5", "/api/jobs/1/log?rank=2", "/api/jobs/1/log?rank=-2",
        "/api/jobs/1/log?attempt=2", "/api/jobs/1/log?attempt=18446744073709551617"}) {
    INFO(path);
    CHECK(house.Get(path, ada).status == 400);
  }
  CHECK(house.Get("/api/events?after=18446744073709551615", ada).status == 200);
  CHECK(house.Get("/api/jobs?size=4000000000", ada).status == 200);
}

TEST_CASE("files of a run folder are read as they are there") {
  House house;
  const std::string ada = house.Enter(kAda);
  CHECK(Parsed(house.Get("/api/jobs/1/curve", ada).body)["step"].empty());
  CHECK(Parsed(house.Get("/api/jobs/1/timeline", ada).body)["step"].is_null());
  CHECK(Parsed(house.Get("/api/jobs/1/log", ada).body)["text"] == "");
  CHECK(house.Get("/api/jobs/1/plan", ada).status == 404);
  house.folder().Write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
  house.folder().Write("timeline/rank-001.steps", "step 1 rank 1\ni 1 2 0 0 5000 9000\n");
  house.folder().Write("plan.pb", "no plan");
  house.folder().Write("attempts/1/logs/rank-1.log", "first\nsecond \xe2\x82\xac \xff\n");
  CHECK(Parsed(house.Get("/api/jobs/1/curve", ada).body)["loss"] == Json({2}));
  CHECK(Parsed(house.Get("/api/jobs/1/timeline", ada).body)["ranks"][0]["rank"] == 1);
  CHECK(house.Get("/api/jobs/1/plan", ada).status == 500);
  const Json log = Parsed(house.Get("/api/jobs/1/log?rank=1", ada).body);
  CHECK(log["text"] == "first\nsecond \xe2\x82\xac \xef\xbf\xbd\n");
  CHECK(log["next"] == 19);
}

TEST_CASE("a job that has not been launched shows what it would be") {
  House house;
  const std::string ada = house.Enter(kAda);
  v1::Job waiting = JobOf(3, "ada", house.folder().path());
  *waiting.mutable_spec() = plan::SmallJob();
  waiting.mutable_status()->set_state(v1::JOB_PENDING);
  waiting.mutable_status()->set_attempt(0);
  house.Put(waiting);
  const Json shown = Parsed(house.Get("/api/jobs/3/plan", ada).body);
  CHECK(shown["mesh"] == Json({{"pipeline", 2}, {"data", 1}, {"tensor", 1}}));
  CHECK(shown["stages"][0]["bytes"]["total"] > 0);
  waiting.set_id(4);
  waiting.mutable_resources()->set_ranks(1 << 20);
  house.Put(waiting);
  CHECK(house.Get("/api/jobs/4/plan", ada).status == 404);
}

TEST_CASE("a log is given by pieces that cut no character") {
  House house;
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "\xe2\x82\xac";
  house.folder().Write("attempts/1/logs/rank-0.log", text);
  const std::string ada = house.Enter(kAda);
  std::string read;
  int64_t next = 0;
  for (int piece = 0; piece < 4 && next < 180000; ++piece) {
    const Json log = Parsed(house.Get(fmt::format("/api/jobs/1/log?offset={}", next), ada).body);
    CHECK(log["text"].get<std::string>().size() <= (64U << 10));
    read += log["text"].get<std::string>();
    next = log["next"].get<int64_t>();
  }
  CHECK(read == text);
  CHECK(Parsed(house.Get("/api/jobs/1/log?offset=-3", ada).body)["text"] == "\xe2\x82\xac");
  CHECK(Parsed(house.Get("/api/jobs/1/log?offset=999999", ada).body)["text"] == "");
}

TEST_CASE("links and pipes in a run folder are no files") {
  House house;
  const std::string ada = house.Enter(kAda);
  house.folder().Write("secret", "{\"step\":1,\"loss\":2}\n");
  std::filesystem::create_symlink(house.folder() / "secret", house.folder() / "metrics.jsonl");
  REQUIRE(mkfifo((house.folder() / "plan.pb").c_str(), 0600) == 0);
  std::filesystem::create_directories(house.folder() / "attempts/1/logs");
  REQUIRE(mkfifo((house.folder() / "attempts/1/logs/rank-0.log").c_str(), 0600) == 0);
  std::filesystem::create_symlink(house.folder() / "secret",
                                  house.folder() / "attempts/1/logs/rank-1.log");
  CHECK(Parsed(house.Get("/api/jobs/1/curve", ada).body)["step"].empty());
  CHECK(house.Get("/api/jobs/1/plan", ada).status == 404);
  for (const char* rank : {"0", "1"}) {
    CHECK(Parsed(house.Get(fmt::format("/api/jobs/1/log?rank={}", rank), ada).body)["text"] == "");
  }
}

TEST_CASE("a run folder that hangs leaves the rest of the dashboard as it is") {
  if (!coordinator::MayHang()) {
    TRIREME_SKIP("not here: root with /dev/fuse, who may mount what hangs");
  }
  House house;
  const std::string cookie = house.Enter({"root", Role::kAdmin});
  v1::Job gone = JobOf(2, "bob", house.folder().path() + "/gone");
  mkdir(gone.run_folder().c_str(), 0700);
  house.Put(gone);
  const coordinator::HungMount hung(gone.run_folder());
  REQUIRE(hung.hangs());
  const std::string where = "the file system at " + gone.run_folder();
  const std::vector<std::string> parts = {"curve", "plan", "timeline", "log"};
  std::vector<HttpResponse> responses(parts.size());
  std::vector<std::thread> browsers;
  for (size_t i = 0; i < parts.size(); ++i) {
    browsers.emplace_back(
        [&, i] { responses[i] = house.GetBeside("/api/jobs/2/" + parts[i], cookie); });
  }
  CHECK(house.Get("/api/jobs/1/curve", cookie).status == 200);
  for (std::thread& browser : browsers) browser.join();
  for (const HttpResponse& response : responses) {
    CHECK((response.status == 503 || response.status == 504));
    CHECK(response.body.find(where) != std::string::npos);
  }
  // Refused at once when its threads have been at it for long enough.
  int status = 504;
  for (int look = 0; look < 20 && status == 504; ++look) {
    status = house.Get("/api/jobs/2/log", cookie).status;
  }
  CHECK(status == 503);
  CHECK(house.Get("/api/jobs/2", cookie).status == 200);
  CHECK(house.Get("/api/jobs/2/events", cookie).status == 200);
}

TEST_CASE("a store whose disk hangs leaves what needs no disk as it is, and is named") {
  House house;
  const std::string cookie = house.Enter({"root", Role::kAdmin});
  v1::Job live = JobOf(1, "ada", house.folder().path());
  live.mutable_status()->set_attempt_live(true);
  house.Put(live);
  house.table().OlderAreAway();  // so there may be one that is only in the store
  house.store().Hold();
  // One for each thread of HTTP, and more than the store has.
  const std::vector<std::string> paths = {"/api/jobs/99", "/api/jobs/1/events", "/api/jobs",
                                          "/api/jobs/2/events"};
  std::vector<HttpResponse> responses(12);
  std::vector<std::thread> browsers;
  for (size_t i = 0; i < responses.size(); ++i) {
    browsers.emplace_back(
        [&, i] { responses[i] = house.GetBeside(paths[i % paths.size()], cookie); });
  }
  house.store().AwaitWaiting(1);
  CHECK(house.Get("/api/cluster", cookie).status == 200);
  CHECK(house.Get("/api/events", cookie).status == 200);
  CHECK(house.Get("/api/jobs/2", cookie).status == 200);
  CHECK(house.Get("/api/jobs/1/log", cookie).status == 200);
  // What is known of ranks that stand still is not, but the job is.
  CHECK(Parsed(house.Get("/api/jobs/1", cookie).body)["stalled"].empty());
  for (std::thread& browser : browsers) browser.join();
  for (const HttpResponse& response : responses) {
    INFO(response.body);
    CHECK((response.status == 503 || response.status == 504));
    CHECK(response.body.find("/state/jobs.db") != std::string::npos);
  }
  house.store().LetGo();
  // As soon as the threads that hung are back.
  const auto answers = [&] { return house.Get("/api/jobs/1/events", cookie).status == 200; };
  bool answered = answers();
  for (int i = 0; i < 6000 && !answered; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    answered = answers();
  }
  CHECK(answered);
}

}  // namespace trireme::dashboard
