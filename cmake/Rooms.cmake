# The rooms, floor by floor (docs/architecture.md). A room names the only rooms it may include.
include(Proto)

# Floor 0
trireme_room(runtime/base LIBS absl::status absl::statusor absl::strings absl::synchronization fmt::fmt Threads::Threads)
trireme_room(runtime/json LIBS nlohmann_json::nlohmann_json)
trireme_room(runtime/checksum LIBS hwy::hwy PkgConfig::isal)
# In every build: below -O2 g++ does not clear the upper halves of vector registers, which is what the room is for.
target_compile_options(trireme_runtime_checksum PRIVATE -O2)
trireme_room(compress ROOMS runtime/base runtime/checksum LIBS Threads::Threads hwy::hwy)
# Its formats use the same names for the same things.
set_target_properties(trireme_compress PROPERTIES UNITY_BUILD OFF)
trireme_room(compress/commands ROOMS runtime/base runtime/json compress LIBS CLI11::CLI11)

# Floor 1
trireme_room(runtime/spec ROOMS proto runtime/base runtime/json compress LIBS yaml-cpp)
trireme_room(runtime/tensor ROOMS runtime/base LIBS Threads::Threads)
trireme_room(runtime/layout ROOMS runtime/base)
trireme_room(runtime/graph ROOMS runtime/base runtime/layout runtime/tensor)
trireme_room(runtime/recorder ROOMS proto runtime/base)
trireme_room(runtime/run_claim ROOMS runtime/base runtime/json)
trireme_room(runtime/safetensors ROOMS runtime/base runtime/json runtime/tensor)
trireme_room(checkpoint/format ROOMS runtime/base runtime/json runtime/checksum runtime/tensor runtime/layout LIBS PkgConfig::isal
             OpenSSL::Crypto)

# Floor 2
trireme_room(runtime/model ROOMS proto runtime/graph)
trireme_room(runtime/kernels ROOMS runtime/base runtime/graph runtime/tensor LIBS spdlog::spdlog)
trireme_room(runtime/kernels/ref ROOMS runtime/base runtime/graph runtime/tensor runtime/kernels
             LIBS PkgConfig::openblas)
trireme_room(runtime/kernels/cpu ROOMS runtime/base runtime/graph runtime/tensor runtime/kernels
             LIBS DNNL::dnnl OpenMP::OpenMP_CXX hwy::hwy)
trireme_room(runtime/comm ROOMS runtime/base runtime/tensor compress LIBS hwy::hwy)
trireme_room(runtime/comm/local ROOMS runtime/base runtime/comm runtime/tensor LIBS Threads::Threads)
trireme_room(runtime/comm/mpi ROOMS runtime/base runtime/comm runtime/tensor LIBS MPI::MPI_C)
trireme_room(runtime/data ROOMS runtime/base runtime/json)
trireme_room(runtime/optim ROOMS runtime/base runtime/checksum runtime/tensor LIBS OpenMP::OpenMP_CXX hwy::hwy)
trireme_room(checkpoint/client
             ROOMS runtime/base runtime/checksum runtime/tensor runtime/layout runtime/safetensors checkpoint/format)
trireme_room(checkpoint/group ROOMS runtime/checksum LIBS absl::statusor absl::strings absl::hash)
trireme_room(checkpoint/hugging_face
             ROOMS proto runtime/base runtime/json runtime/spec runtime/tensor runtime/safetensors runtime/model
                   checkpoint/client)

# Floor 3
trireme_room(runtime/plan ROOMS proto runtime/base runtime/tensor runtime/spec runtime/layout runtime/graph runtime/model)
trireme_room(runtime/report ROOMS proto runtime/base runtime/json runtime/checksum runtime/plan runtime/recorder)

trireme_room(runtime/benchmark
             ROOMS runtime/base runtime/json runtime/checksum runtime/graph runtime/kernels runtime/kernels/cpu runtime/optim
                   runtime/tensor
             LIBS DNNL::dnnl OpenMP::OpenMP_CXX hwy::hwy)

# Floor 4
trireme_room(runtime/engine
             ROOMS proto runtime/base runtime/checksum compress runtime/tensor runtime/layout runtime/graph
                   runtime/model runtime/kernels runtime/comm runtime/data runtime/optim runtime/plan runtime/recorder)

trireme_room(runtime/engine/no_mutation ROOMS runtime/engine)

trireme_room(checkpoint/agent ROOMS runtime/base checkpoint/format LIBS absl::strings fmt::fmt Threads::Threads Boost::headers)

# Floor 5
trireme_room(coordinator/process ROOMS runtime/base runtime/json
             LIBS absl::status absl::statusor absl::synchronization absl::time fmt::fmt spdlog::spdlog Threads::Threads)
trireme_room(coordinator/disk_calls
             ROOMS runtime/base coordinator/process LIBS absl::strings absl::synchronization Threads::Threads)
trireme_room(coordinator/slurm
             ROOMS proto runtime/base coordinator/process LIBS absl::synchronization)
trireme_room(coordinator/control_group ROOMS runtime/base LIBS fmt::fmt)
trireme_room(coordinator/launcher ROOMS runtime/base runtime/recorder coordinator/process coordinator/control_group)
trireme_room(coordinator/manual LIBS CLI11::CLI11)
trireme_room(coordinator/checkup ROOMS runtime/base coordinator/process coordinator/control_group)
trireme_room(coordinator/planning ROOMS proto runtime/base runtime/spec runtime/data runtime/plan runtime/report
             LIBS absl::synchronization)
trireme_room(coordinator/client ROOMS proto proto/services runtime/base LIBS Threads::Threads)
trireme_room(coordinator/run_files ROOMS proto runtime/base runtime/json LIBS absl::statusor fmt::fmt)
trireme_room(coordinator/keeper
             ROOMS proto proto/services runtime/base runtime/json runtime/plan runtime/recorder runtime/run_claim coordinator/control_group
                   coordinator/disk_calls coordinator/launcher coordinator/run_files coordinator/slurm
             LIBS absl::synchronization)
trireme_room(coordinator/job_machine ROOMS proto runtime/base)
trireme_room(coordinator/scheduler ROOMS proto runtime/base LIBS absl::flat_hash_map)
trireme_room(coordinator/job_store ROOMS proto runtime/base runtime/checksum LIBS SQLite::SQLite3)
trireme_room(coordinator/http ROOMS runtime/base LIBS Threads::Threads absl::strings spdlog::spdlog Boost::headers)
trireme_room(coordinator/config_file ROOMS runtime/spec LIBS CLI11::CLI11)
trireme_room(coordinator/reconciler
             ROOMS proto runtime/base coordinator/job_machine coordinator/scheduler coordinator/job_store
             LIBS absl::synchronization)
trireme_room(coordinator/metrics
             ROOMS proto runtime/base coordinator/job_machine coordinator/reconciler LIBS absl::synchronization)
trireme_room(coordinator/calls
             ROOMS runtime/base coordinator/process coordinator/disk_calls coordinator/job_store coordinator/reconciler
             LIBS absl::synchronization OpenSSL::Crypto)
trireme_room(coordinator/retention
             ROOMS proto runtime/base coordinator/job_machine coordinator/keeper coordinator/run_files
             LIBS spdlog::spdlog fmt::fmt)
trireme_room(coordinator/control_api
             ROOMS proto proto/services runtime/base runtime/report checkpoint/format checkpoint/client
                   checkpoint/hugging_face coordinator/client coordinator/planning coordinator/process
                   coordinator/job_machine coordinator/job_store coordinator/reconciler coordinator/calls
                   coordinator/run_files coordinator/disk_calls
             LIBS gRPC::grpc++ gRPC::grpc++_reflection)
trireme_room(coordinator/dashboard
             ROOMS proto runtime/base runtime/json runtime/spec runtime/plan runtime/report coordinator/http coordinator/process
                   coordinator/planning coordinator/job_machine coordinator/job_store coordinator/reconciler coordinator/calls
                   coordinator/run_files coordinator/disk_calls
             LIBS OpenSSL::Crypto absl::synchronization)
include(Dashboard)
trireme_room(coordinator/local_run
             ROOMS proto runtime/base coordinator/process coordinator/job_machine coordinator/job_store
                   coordinator/reconciler coordinator/keeper)
trireme_room(worker/link ROOMS proto proto/services runtime/base LIBS absl::synchronization Threads::Threads)
