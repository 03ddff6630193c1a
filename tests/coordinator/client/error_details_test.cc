// What goes wrong in the daemon reaches people: details there and back, and the socket's place.
#include "coordinator/client/error_details.h"

#include <grpc/support/log.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "coordinator/client/default_socket.h"
#include "coordinator/client/grpc_log.h"
#include "runtime/base/text.h"

namespace trireme::client {
namespace {

v1::ErrorDetail Detail(const std::string& field, const std::string& message) {
  v1::ErrorDetail detail;
  detail.set_field(field);
  detail.set_message(message);
  return detail;
}

TEST_CASE("error details: all of them come back and are said once") {
  const std::vector<v1::ErrorDetail> details = {Detail("job.training.steps", "must be at least 1"),
                                                Detail("", "no node has 8 GPUs")};
  const auto back =
      UnpackErrorDetails(PackErrorDetails(absl::StatusCode::kInvalidArgument, "2 faults", details));
  REQUIRE(back.size() == 2);
  CHECK(back[0].field() == "job.training.steps");
  CHECK(WithDetails("2 faults", back) ==
        "2 faults\njob.training.steps: must be at least 1\nno node has 8 GPUs");
  const std::string whole = "job.training.steps: must be at least 1\nno node has 8 GPUs";
  CHECK(WithDetails(whole, back) == whole);
  const std::string fault = "training.steps: must be at least 1";
  CHECK(WithDetails(fault, {Detail("job.training.steps", "must be at least 1")}) == fault);
  CHECK(WithDetails("no such file", {Detail("job.data.text_files", "no such file")}) ==
        "no such file");
  CHECK(WithDetails("", {}).empty());
}

TEST_CASE("error details: what is none is passed over") {
  CHECK(UnpackErrorDetails("").empty());
  CHECK(UnpackErrorDetails("\xff\xff no message").empty());
  v1::ErrorStatus other;
  v1::Node node;
  node.set_name("n1");
  other.add_details()->PackFrom(node);
  CHECK(UnpackErrorDetails(other.SerializeAsString()).empty());
}

TEST_CASE("what gRPC says by itself is heard as one line and not written") {
  static std::vector<std::string> heard;
  HearGrpc([](const std::string& line) { heard.push_back(line); });
  gpr_log_verbosity_init();  // as with the first channel
  gpr_log(GPR_ERROR, "Handshake failed\nwith %s", "SSL_ERROR");
  HearGrpc(nullptr);
  gpr_log(GPR_ERROR, "dropped");
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].find("gRPC: Handshake failed with SSL_ERROR (error_details_test.cc:") == 0);
}

TEST_CASE("default socket: XDG_RUNTIME_DIR wins where it is an absolute path") {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  CHECK(DefaultSocketPath() == "/run/user/7/trireme/triremed.sock");
  const std::string own = geteuid() == 0 ? std::string("/run/trireme/triremed.sock")
                                         : base::Text("/tmp/trireme-", geteuid(), "/triremed.sock");
  setenv("XDG_RUNTIME_DIR", "here", 1);
  CHECK(DefaultSocketPath() == own);
  setenv("XDG_RUNTIME_DIR", "", 1);
  CHECK(DefaultSocketPath() == own);
  unsetenv("XDG_RUNTIME_DIR");
  CHECK(DefaultSocketPath() == own);
}

}  // namespace
}  // namespace trireme::client
