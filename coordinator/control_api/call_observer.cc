// An interceptor for each call: it sees the status that goes out, and lives as long as the call.
#include "coordinator/control_api/call_observer.h"

#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <chrono>
#include <utility>

namespace trireme::coordinator {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr std::array<const char*, 17> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

std::string CodeName(grpc::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "UNKNOWN";
}

class ObservedCall : public grpc::experimental::Interceptor {
 public:
  ObservedCall(const CallObserver& observer, const ServerRpcInfo& call)
      : observer_(observer),
        method_(call.method()),
        stream_(call.type() != ServerRpcInfo::Type::UNARY) {
    observer_.begins(method_);
  }
  ~ObservedCall() override {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    observer_.ends(method_, CodeName(code_), stream_, took.count());
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = methods->GetSendStatus().error_code();
    }
    methods->Proceed();
  }

 private:
  const CallObserver& observer_;
  const std::string method_;
  const bool stream_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  grpc::StatusCode code_ = grpc::StatusCode::CANCELLED;
};

class ObserverFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ObserverFactory(CallObserver observer) : observer_(std::move(observer)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    return new ObservedCall(observer_, *call);
  }

 private:
  const CallObserver observer_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Observed(
    const CallObserver& observer) {
  return std::make_unique<ObserverFactory>(observer);
}

}  // namespace trireme::coordinator
