# trireme_bench(<name> [ROOMS <path>...] [LIBS <target>...]): the program <name> of tests/bench/<name>.cc. Not a test: timing
# is never asserted.
function(trireme_bench name)
  cmake_parse_arguments(bench "" "" "ROOMS;LIBS" ${ARGN})
  add_executable(${name} "${PROJECT_SOURCE_DIR}/tests/bench/${name}.cc")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  foreach(other IN LISTS bench_ROOMS)
    string(REPLACE "/" "_" other_name "${other}")
    target_link_libraries(${name} PRIVATE trireme_${other_name})
  endforeach()
  target_link_libraries(${name} PRIVATE ${bench_LIBS})
endfunction()

trireme_bench(bench_comm ROOMS runtime/base compress runtime/tensor runtime/comm runtime/comm/mpi
              LIBS nlohmann_json::nlohmann_json CLI11::CLI11)
trireme_bench(bench_codec ROOMS runtime/base compress LIBS CLI11::CLI11 nlohmann_json::nlohmann_json)
find_library(zfp_library zfp)
if(zfp_library)
  target_sources(bench_codec PRIVATE "${PROJECT_SOURCE_DIR}/tests/bench/zfp_rival.cc")
  target_link_libraries(bench_codec PRIVATE "${zfp_library}")
else()
  target_sources(bench_codec PRIVATE "${PROJECT_SOURCE_DIR}/tests/bench/zfp_absent.cc")
endif()
trireme_bench(bench_kernels ROOMS runtime/base runtime/tensor runtime/benchmark
              LIBS CLI11::CLI11 nlohmann_json::nlohmann_json)
trireme_bench(bench_step ROOMS runtime/base runtime/spec runtime/model runtime/plan runtime/kernels runtime/kernels/ref
                               runtime/kernels/cpu runtime/benchmark runtime/data runtime/comm runtime/comm/mpi runtime/engine
                               runtime/engine/no_mutation
              LIBS OpenMP::OpenMP_CXX CLI11::CLI11)
trireme_bench(bench_job_store ROOMS proto runtime/base coordinator/job_store)
trireme_bench(bench_control ROOMS proto runtime/base coordinator/client)
trireme_bench(bench_hung_mount ROOMS proto proto/services runtime/base coordinator/client)
target_sources(bench_hung_mount PRIVATE "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/ten_jobs.cc")
trireme_bench(bench_frames ROOMS runtime/base checkpoint/format checkpoint/agent)
trireme_bench(bench_queue ROOMS proto runtime/base coordinator/job_machine coordinator/scheduler coordinator/job_store
                                coordinator/reconciler LIBS CLI11::CLI11)
trireme_bench(bench_start ROOMS proto runtime/base coordinator/job_machine coordinator/scheduler coordinator/job_store
                                coordinator/reconciler LIBS CLI11::CLI11)
trireme_bench(bench_schedule ROOMS runtime/base runtime/spec runtime/plan runtime/kernels runtime/kernels/ref runtime/data
                                   runtime/comm runtime/comm/local runtime/engine runtime/engine/no_mutation
              LIBS CLI11::CLI11)
