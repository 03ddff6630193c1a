# Programs: build/<preset>/bin/<program>. LINKED: rooms that only fulfil declarations of other rooms' headers.
function(trireme_program name path)
  cmake_parse_arguments(program "" "" "ROOMS;LINKED;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${path}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  trireme_trust_alignment(${name})
  if(path MATCHES "^coordinator/")
    trireme_little_optimised("${path}" level)
    target_compile_options(${name} PRIVATE ${level})
  endif()
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE TRIREME_VERSION="${PROJECT_VERSION}")
  foreach(other IN LISTS program_ROOMS program_LINKED)
    string(REPLACE "/" "_" other_name "${other}")
    target_link_libraries(${name} PRIVATE trireme_${other_name})
  endforeach()
  target_link_libraries(${name} PRIVATE ${program_LIBS})
  if(TRIREME_TESTS AND TRIREME_SANITIZE STREQUAL "thread" AND path MATCHES "^coordinator/")
    # So that TSan sees what an absl::Mutex guards, also where a test starts the program.
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/tsan/absl_mutex.cc")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/tsan/absl_mutex.cc" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_link_libraries(${name} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
  set_property(GLOBAL APPEND PROPERTY TRIREME_ROOMS "${path}:${program_ROOMS}")
endfunction()

trireme_program(trireme coordinator/cli
  ROOMS proto runtime/base runtime/json runtime/spec runtime/tensor runtime/data runtime/plan runtime/report runtime/recorder checkpoint/format
        checkpoint/client coordinator/checkup coordinator/client coordinator/process coordinator/job_machine
        coordinator/keeper coordinator/launcher coordinator/local_run coordinator/manual coordinator/planning
        coordinator/slurm compress compress/commands
  LIBS CLI11::CLI11)
trireme_program(trireme-worker worker
  ROOMS proto runtime/base runtime/json runtime/spec runtime/tensor runtime/model runtime/kernels runtime/comm runtime/comm/mpi
        runtime/benchmark runtime/data runtime/plan runtime/report runtime/recorder runtime/run_claim runtime/engine checkpoint/format
        checkpoint/client worker/link
  LINKED runtime/kernels/ref runtime/kernels/cpu runtime/engine/no_mutation
  LIBS CLI11::CLI11 spdlog::spdlog OpenMP::OpenMP_CXX)
trireme_program(triremed coordinator/daemon
  ROOMS proto runtime/base runtime/json runtime/run_claim runtime/spec runtime/plan runtime/report coordinator/client
        coordinator/planning
        coordinator/process coordinator/job_machine coordinator/job_store coordinator/reconciler
        coordinator/calls coordinator/control_api coordinator/http coordinator/metrics coordinator/dashboard
        coordinator/config_file coordinator/retention coordinator/run_files coordinator/keeper
        coordinator/disk_calls
  LIBS CLI11::CLI11 spdlog::spdlog)
trireme_program(trireme-agent coordinator/agent
  ROOMS proto proto/services runtime/base checkpoint/client coordinator/client coordinator/control_group coordinator/keeper coordinator/process
        coordinator/config_file coordinator/disk_calls coordinator/launcher coordinator/slurm
       
  LIBS CLI11::CLI11 spdlog::spdlog gRPC::grpc++)

# libtrireme_codec.so: the codec for C programs, showing only the functions of its header.
add_library(trireme_codec SHARED "${PROJECT_SOURCE_DIR}/compress/c/trireme_codec.cc")
target_include_directories(trireme_codec PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(trireme_codec PRIVATE trireme_compress)
target_link_options(trireme_codec PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/compress/c/trireme_codec.map")
set_target_properties(trireme_codec PROPERTIES SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
                      LINK_DEPENDS "${PROJECT_SOURCE_DIR}/compress/c/trireme_codec.map")
set_property(GLOBAL APPEND PROPERTY TRIREME_ROOMS "compress/c:compress")
