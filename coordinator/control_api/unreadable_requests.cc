#include "coordinator/control_api/unreadable_requests.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/server_interceptor.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "coordinator/control_api/call.h"

namespace trireme::coordinator {
namespace {

using grpc::experimental::InterceptionHookPoints;

class Interceptor : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      // What a handler says has a message.
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
          status.error_message().empty()) {
        methods->ModifySendStatus(ToGrpc(
            absl::InvalidArgumentError("the request is no message of the kind that this call takes "
                                       "(trireme.v1, of this version)")));
      }
    }
    methods->Proceed();
  }
};

// "/trireme.v1.Control/Get" is a call that we know. Others, as those of health, may leave calls
// without an answer; and one of another version is UNIMPLEMENTED indeed.
bool IsOurs(std::string_view path) {
  if (!path.starts_with("/trireme.v1.")) return false;
  std::string name(path.substr(1));
  std::replace(name.begin(), name.end(), '/', '.');
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name) != nullptr;
}

class ReadingFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    return IsOurs(call->method()) ? new Interceptor : nullptr;
  }
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> UnreadableRequests() {
  return std::make_unique<ReadingFactory>();
}

}  // namespace trireme::coordinator
