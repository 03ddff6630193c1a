// Whether the daemon decides: for load balancers, systemd's watchdogs and alerts.
#pragma once

#include "coordinator/http/http_server.h"
#include "coordinator/process/task_thread.h"

namespace trireme::coordinator {

// GET /healthz: 200 when the reconciler has answered, 503 when it has not within some seconds.
// `reconciler_thread` outlives the route.
HttpRoute HealthRoute(TaskThread& reconciler_thread);

}  // namespace trireme::coordinator
