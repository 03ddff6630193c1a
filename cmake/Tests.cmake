# tests/<room>/*_test.cc become one Catch2 program per room: test_<room>. Tags make labels: [slow] slow, [mpi] mpi,
# [parity] parity (minutes, but part of every full test), everything else fast; those of tests/coordinator also coordinator.
find_package(Catch2 2 CONFIG REQUIRED)
include(Catch)
include(AddTest)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_library(trireme_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/test_main.cc")
target_link_libraries(trireme_test_main PUBLIC Catch2::Catch2)
target_include_directories(trireme_test_main PRIVATE "${PROJECT_SOURCE_DIR}")
# Catch2 itself, nothing of ours: optimised and checked for undefined behaviour it takes three times as long.
target_compile_options(trireme_test_main PRIVATE -O0 -fno-sanitize=undefined)
if(TRIREME_SANITIZE STREQUAL "thread")
  # So that TSan sees what an absl::Mutex guards.
  target_sources(trireme_test_main PRIVATE "${PROJECT_SOURCE_DIR}/tests/tsan/absl_mutex.cc")
  target_link_libraries(trireme_test_main PUBLIC absl::synchronization)
endif()

# The tests of test_${name} that `spec` selects, labelled also by `kinds`; with ARGS, by `suffix`, those of the program that gets
# these arguments. Catch2 warns of a program without such tests, so the sources are asked for `tag` first, whenever one of them
# changes.
macro(trireme_discover label tag spec seconds)
  cmake_parse_arguments(discover "" "SUFFIX" "ARGS" ${ARGN})
  set(found "")
  foreach(source IN LISTS sources)
    file(STRINGS "${source}" found_here REGEX "\\[${tag}\\]")
    list(APPEND found ${found_here})
  endforeach()
  if(found OR "${tag}" STREQUAL fast)
    set(cores 2)
    if("${label}" MATCHES "^(fast|parity)$")
      set(cores 1)
    endif()
    set(suffixed)
    if(discover_SUFFIX)
      set(suffixed TEST_SUFFIX "${discover_SUFFIX}" EXTRA_ARGS ${discover_ARGS})
    endif()
    # Tests are more than processors: threads that spin where they wait would take each other's time.
    catch_discover_tests(test_${name} TEST_SPEC "${spec}" ${suffixed} PROPERTIES LABELS ${label} TIMEOUT ${seconds}
                         SKIP_RETURN_CODE ${TRIREME_SKIPPED} PROCESSORS ${cores}
                         ENVIRONMENT OMP_WAIT_POLICY=passive)
    # Catch takes one label only; the others are given when ctest reads the names that Catch has found. The longest begin first,
    # lest one of them run alone at the end.
    set(labels "${label};${kinds}")
    if(name MATCHES "^coordinator")
      string(APPEND labels ";coordinator")
    endif()
    string(MAKE_C_IDENTIFIER "test_${name}_labels_${label}_${tag}${discover_SUFFIX}" labelled)
    set(labelled "${PROJECT_BINARY_DIR}/${labelled}.cmake")
    file(WRITE "${labelled}" "foreach(test IN LISTS test_${name}_TESTS)\n"
      "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${labels}\")\n"
      "  if(\"${label}\" STREQUAL parity OR test MATCHES \"^partition: under \")\n"
      "    set_tests_properties(\"\${test}\" PROPERTIES COST 20)\n  endif()\nendforeach()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labelled}")
  endif()
endmacro()

# trireme_tests(<path> [THREADS] [GRPC] [STREAMS] ROOMS <path>... [LIBS <target>...])
# STREAMS: all of it once more with the work of devices on threads (tests/streams.h), and as slow ones the cases tagged [products].
# THREADS: its rooms share memory between threads, and the program runs under TSan too. GRPC: it speaks gRPC, whose headers take
# a sanitized compiler as long as all the rest. The targets `tests_plain`, `tests_grpc` (one has each program) and `tests_threads`
# build them, and the labels `plain`, `grpc` and `threads` are on their tests: a sanitized part runs what it has built, no more.
foreach(kind IN ITEMS plain grpc threads)
  add_custom_target(tests_${kind})
endforeach()
function(trireme_tests path)
  cmake_parse_arguments(tests "THREADS;GRPC;STREAMS" "" "ROOMS;LIBS" ${ARGN})
  string(REPLACE "/" "_" name "${path}")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${path}/*.cc")
  if(NOT sources)
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  add_executable(test_${name} ${sources})
  set(kinds plain)
  if(tests_GRPC)
    set(kinds grpc)
  endif()
  if(tests_THREADS)
    list(APPEND kinds threads)
  endif()
  foreach(kind IN LISTS kinds)
    add_dependencies(tests_${kind} test_${name})
  endforeach()
  trireme_little_optimised("${path}" level)
  target_compile_options(test_${name} PRIVATE ${level})
  trireme_precompile(test_${name} test "${level}" ROOMS ${tests_ROOMS})
  trireme_trust_alignment(test_${name})
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  # For tests/sanitizer.h.
  set(watched 0)
  set(threads_watched 0)
  if(TRIREME_SANITIZE)
    set(watched 1)
  endif()
  if(TRIREME_SANITIZE STREQUAL "thread")
    set(threads_watched 1)
  endif()
  target_compile_definitions(test_${name} PRIVATE TRIREME_SANITIZER=${watched} TRIREME_THREAD_SANITIZER=${threads_watched})
  foreach(source IN LISTS sources)
    # Only where they are named (run cmake again for a new one): all other objects are the same in every build folder.
    file(STRINGS "${source}" named REGEX "TRIREME_(SOURCE|BINARY)_DIR")
    if(named)
      set_source_files_properties("${source}" PROPERTIES COMPILE_DEFINITIONS
        "TRIREME_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\";TRIREME_BINARY_DIR=\"${PROJECT_BINARY_DIR}\"")
    endif()
  endforeach()
  foreach(other IN LISTS tests_ROOMS)
    string(REPLACE "/" "_" other_name "${other}")
    target_link_libraries(test_${name} PRIVATE trireme_${other_name})
  endforeach()
  target_link_libraries(test_${name} PRIVATE trireme_test_main ${tests_LIBS})
  # Sanitized tests run slower, four at a time on two cores.
  set(fast_seconds 120)
  if(TRIREME_SANITIZE)
    set(fast_seconds 300)
  endif()
  trireme_discover(fast fast "~[slow]~[mpi]~[parity]~[.]" ${fast_seconds})
  trireme_discover(slow slow "[slow]~[.]" 3000)
  trireme_discover(parity parity "[parity]~[.]" 900)
  trireme_discover(mpi mpi "[mpi]~[.]" 120)
  if(tests_STREAMS AND NOT TRIREME_SANITIZE)
    set(asynchronous SUFFIX ", on asynchronous streams" ARGS --streams asynchronous)
    trireme_discover(fast fast "~[slow]~[mpi]~[parity]~[.]" ${fast_seconds} ${asynchronous})
    trireme_discover(slow products "[products]~[.]" 3000 ${asynchronous})
  endif()
endfunction()

# trireme_mpi_test(<name> <path> [ROOMS <path>...] [LIBS <target>...]): the program <name> of tests/<path>/*.cc, with a
# main of its own. trireme_mpi_run(<name> RANKS <n>... [SUFFIX <text>] [ARGS <argument>...] [ENDS <code> TEXT <text>]): tests that
# run it under mpirun, one per number of ranks; with ENDS it must end with this exit code and print this text. Label mpi.
function(trireme_mpi_test name path)
  cmake_parse_arguments(test "" "" "ROOMS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${path}/*.cc")
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -O1)
  foreach(other IN LISTS test_ROOMS)
    string(REPLACE "/" "_" other_name "${other}")
    target_link_libraries(${name} PRIVATE trireme_${other_name})
  endforeach()
  target_link_libraries(${name} PRIVATE ${test_LIBS})
endfunction()

function(trireme_mpi_run name)
  cmake_parse_arguments(run "" "SUFFIX;ENDS;TEXT" "RANKS;ARGS" ${ARGN})
  set(told)
  if(DEFINED run_ENDS)
    set(told "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/tools/ends_as_told.py" ${run_ENDS} "${run_TEXT}")
  endif()
  foreach(ranks IN LISTS run_RANKS)
    set(test ${name}.${ranks}_ranks${run_SUFFIX})
    trireme_add_test(${test} SECONDS 120 LABELS mpi
      COMMAND ${told} "${PROJECT_SOURCE_DIR}/cmake/mpirun_test.sh" 100 ${ranks} "$<TARGET_FILE:${name}>" ${run_ARGS})
  endforeach()
endfunction()

trireme_tests(runtime/base ROOMS runtime/base)
trireme_tests(runtime/checksum ROOMS runtime/checksum)
# It asks the processor in the words of x86, as tests/checkpoint/x86 does.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(test_runtime_checksum PRIVATE "${PROJECT_SOURCE_DIR}/tests/runtime/checksum/x86/upper_halves_test.cc")
endif()
trireme_tests(compress THREADS ROOMS runtime/base runtime/checksum compress)
# The C header, by a program compiled as C99.
add_executable(test_compress_c "${PROJECT_SOURCE_DIR}/tests/compress/c/codec_in_c.c")
target_include_directories(test_compress_c PRIVATE "${PROJECT_SOURCE_DIR}")
set_target_properties(test_compress_c PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF LINKER_LANGUAGE C)
target_compile_options(test_compress_c PRIVATE -Wpedantic)
target_link_libraries(test_compress_c PRIVATE trireme_codec m)
add_dependencies(tests_plain test_compress_c)
trireme_add_test(compress.c_header SECONDS 60 LABELS fast plain CORES 1 COMMAND test_compress_c)
trireme_tests(runtime/spec ROOMS runtime/base runtime/spec)
trireme_tests(runtime/tensor THREADS ROOMS runtime/base runtime/tensor)
trireme_tests(runtime/layout ROOMS runtime/base runtime/layout)
trireme_tests(runtime/graph ROOMS proto runtime/base runtime/graph runtime/model)
trireme_tests(runtime/recorder THREADS ROOMS runtime/base runtime/recorder)
trireme_tests(runtime/safetensors ROOMS runtime/base runtime/safetensors)
trireme_tests(runtime/kernels ROOMS runtime/base runtime/graph runtime/kernels runtime/kernels/cpu runtime/kernels/ref)
trireme_tests(runtime/comm THREADS ROOMS runtime/base runtime/comm runtime/comm/local)
if(TRIREME_SANITIZE STREQUAL "thread")
  # It counts in an operator new of its own; clang's ThreadSanitizer brings one that no program may replace.
  set_source_files_properties("${PROJECT_SOURCE_DIR}/tests/runtime/comm/allocations_test.cc" PROPERTIES HEADER_FILE_ONLY ON)
endif()
trireme_mpi_test(test_runtime_comm_mpi runtime/comm/mpi ROOMS runtime/base runtime/tensor runtime/comm runtime/comm/mpi)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 4)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .messages ARGS --messages)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .silent ARGS --silent ENDS 7 TEXT "silence was named")
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .silent_in_memory ARGS --silent-in-memory ENDS 7
                TEXT "silence was named")
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .late ARGS --late)
# The tags of this MPI, of one over UCX, and the standard's least; and fewer than needed, which is refused.
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_this_mpi ARGS --tags=0)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_ucx ARGS --tags=8388607)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_the_standard ARGS --tags=32767)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .too_few_tags ARGS --tags=4095
                ENDS 1 TEXT "MPI_TAG_UB) is 4095, but messages need tags up to 24575")
trireme_tests(runtime/data ROOMS runtime/base runtime/data)
trireme_tests(runtime/optim ROOMS runtime/base runtime/checksum runtime/tensor runtime/optim LIBS hwy::hwy)
trireme_tests(runtime/benchmark ROOMS proto runtime/graph runtime/model runtime/kernels runtime/benchmark
              LIBS nlohmann_json::nlohmann_json)
trireme_tests(runtime/plan ROOMS runtime/base runtime/model runtime/plan runtime/spec)
trireme_tests(runtime/report ROOMS proto runtime/base runtime/plan runtime/recorder runtime/report)
trireme_tests(runtime/engine THREADS STREAMS ROOMS runtime/base runtime/checksum runtime/engine runtime/comm/local runtime/kernels runtime/kernels/cpu
              runtime/kernels/ref runtime/data runtime/plan
              runtime/spec runtime/layout runtime/safetensors checkpoint/format checkpoint/client)
target_sources(test_runtime_engine PRIVATE "${PROJECT_SOURCE_DIR}/tests/runtime/tensor/sick_disk.cc")
# Its malloc counts, so sanitizers, which bring their own, do without it.
if(NOT TRIREME_SANITIZE)
  trireme_tests(runtime/engine/allocation ROOMS runtime/base runtime/engine runtime/comm/local runtime/kernels
                runtime/kernels/cpu runtime/kernels/ref runtime/data runtime/plan runtime/spec runtime/layout
                runtime/recorder)
  target_sources(test_runtime_engine_allocation PRIVATE "${PROJECT_SOURCE_DIR}/tests/runtime/engine/layout_run.cc"
                 "${PROJECT_SOURCE_DIR}/tests/runtime/engine/mutation_switch.cc")
endif()
# The same runs over MPI: a few layouts, one process per rank.
trireme_mpi_test(test_runtime_engine_mpi runtime/engine/mpi ROOMS runtime/base runtime/engine runtime/model
                 runtime/comm/local runtime/comm/mpi runtime/kernels runtime/kernels/cpu runtime/kernels/ref
                 runtime/data runtime/plan runtime/spec runtime/layout)
target_sources(test_runtime_engine_mpi PRIVATE "${PROJECT_SOURCE_DIR}/tests/runtime/engine/layout_run.cc"
               "${PROJECT_SOURCE_DIR}/tests/runtime/engine/mutation_switch.cc")
trireme_mpi_run(test_runtime_engine_mpi RANKS 4 8)
trireme_mpi_run(test_runtime_engine_mpi RANKS 2 4 SUFFIX .asynchronous ARGS --streams asynchronous)
trireme_tests(runtime/run_claim ROOMS runtime/base runtime/run_claim)
trireme_tests(checkpoint THREADS ROOMS runtime/base runtime/checksum checkpoint/format checkpoint/client)
# What a sum leaves in registers matters to speed alone; TSan's calls at the end of functions leave more.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TRIREME_SANITIZE STREQUAL "thread")
  target_sources(test_checkpoint PRIVATE "${PROJECT_SOURCE_DIR}/tests/checkpoint/x86/parity_upper_halves_test.cc")
endif()
trireme_tests(checkpoint/agent THREADS ROOMS checkpoint/format checkpoint/agent)
trireme_tests(checkpoint/group ROOMS runtime/base runtime/checksum checkpoint/group LIBS absl::hash absl::flat_hash_set)
trireme_tests(checkpoint/hugging_face ROOMS runtime/base runtime/spec runtime/safetensors checkpoint/client
              checkpoint/hugging_face)
# It defines the calls of libc that change files anew, and so is a program of its own; sanitizers, which define them too, do
# without it.
if(NOT TRIREME_SANITIZE)
  trireme_tests(power_loss ROOMS proto runtime/base checkpoint/format checkpoint/client coordinator/launcher
                coordinator/keeper coordinator/job_store LIBS ${CMAKE_DL_LIBS})
endif()
trireme_tests(coordinator ROOMS runtime/base coordinator/launcher runtime/recorder)
trireme_tests(coordinator/control_group ROOMS runtime/base coordinator/control_group)
trireme_tests(coordinator/slurm THREADS ROOMS proto runtime/base coordinator/slurm)
trireme_tests(coordinator/client GRPC THREADS ROOMS proto proto/services runtime/base coordinator/client)
trireme_tests(coordinator/job_machine ROOMS proto runtime/base coordinator/job_machine)
trireme_tests(coordinator/job_store THREADS ROOMS proto runtime/base coordinator/job_store LIBS SQLite::SQLite3)
trireme_tests(coordinator/keeper THREADS ROOMS runtime/base runtime/run_claim coordinator/process coordinator/control_group
              coordinator/launcher coordinator/keeper coordinator/slurm
              LIBS nlohmann_json::nlohmann_json)
# A rank for it, with a flight recorder and without MPI.
add_executable(keeper_rank "${PROJECT_SOURCE_DIR}/tests/coordinator/keeper/rank/recorded_rank.cc")
target_include_directories(keeper_rank PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(keeper_rank PRIVATE trireme_runtime_recorder)
add_dependencies(test_coordinator_keeper keeper_rank)
trireme_tests(coordinator/local_run GRPC THREADS ROOMS proto runtime/base coordinator/local_run LIBS nlohmann_json::nlohmann_json)
if(TARGET test_coordinator_local_run)
  target_sources(test_coordinator_local_run PRIVATE "${PROJECT_SOURCE_DIR}/tests/coordinator/keeper/keeper_bench.cc")
  add_dependencies(test_coordinator_local_run keeper_rank)
endif()
trireme_tests(coordinator/reconciler THREADS ROOMS proto runtime/base coordinator/reconciler coordinator/keeper)
trireme_tests(coordinator/calls THREADS ROOMS proto runtime/base coordinator/disk_calls coordinator/calls)
trireme_tests(coordinator/run_files ROOMS runtime/base coordinator/run_files)
trireme_tests(coordinator/control_api GRPC THREADS ROOMS proto/services runtime/base coordinator/client coordinator/disk_calls
              coordinator/control_api)
# Under TSan triremed is watched as well.
trireme_tests(coordinator/daemon GRPC THREADS ROOMS proto proto/services runtime/base coordinator/client coordinator/process
              coordinator/disk_calls)
if(TARGET test_coordinator_daemon)
  add_dependencies(test_coordinator_daemon triremed)
endif()
trireme_tests(coordinator/http THREADS ROOMS runtime/base coordinator/http)
trireme_tests(coordinator/config_file ROOMS coordinator/config_file LIBS CLI11::CLI11)
trireme_tests(coordinator/retention THREADS ROOMS proto coordinator/retention)
trireme_tests(coordinator/metrics THREADS ROOMS proto runtime/base coordinator/job_store coordinator/reconciler coordinator/metrics)
trireme_tests(coordinator/dashboard THREADS ROOMS proto runtime/base runtime/plan runtime/report coordinator/calls
              coordinator/job_machine coordinator/job_store coordinator/reconciler coordinator/http coordinator/disk_calls
              coordinator/dashboard
              LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/manual ROOMS coordinator/manual)
trireme_tests(coordinator/checkup ROOMS runtime/base coordinator/checkup coordinator/control_group)
trireme_tests(coordinator/planning THREADS ROOMS proto runtime/base runtime/json runtime/run_claim runtime/spec runtime/plan runtime/report
              coordinator/planning coordinator/run_files coordinator/job_store coordinator/reconciler coordinator/keeper)
if(TARGET test_coordinator_planning)
  target_sources(test_coordinator_planning PRIVATE "${PROJECT_SOURCE_DIR}/coordinator/daemon/plan_files.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/daemon/run_claim.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/daemon/new_run_folders.cc")
endif()
trireme_tests(coordinator/process THREADS ROOMS coordinator/process LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/disk_calls THREADS ROOMS runtime/base coordinator/disk_calls)
trireme_tests(coordinator/scheduler ROOMS proto runtime/base coordinator/scheduler)
trireme_tests(coordinator/cli GRPC ROOMS proto proto/services runtime/base runtime/spec runtime/plan coordinator/client
              LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/agent GRPC THREADS ROOMS proto proto/services runtime/base checkpoint/client coordinator/client coordinator/control_group
              coordinator/disk_calls coordinator/run_files coordinator/slurm coordinator/process LIBS spdlog::spdlog)
if(TARGET test_coordinator_agent)
  target_sources(test_coordinator_agent PRIVATE "${PROJECT_SOURCE_DIR}/coordinator/agent/inventory.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/coordinator_link.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/served_store.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/rank_logs.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/left_snapshots.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/agent_identity.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/agent/control_groups.cc")
endif()
trireme_tests(coordinator/keeper/link GRPC THREADS ROOMS proto proto/services runtime/base runtime/spec runtime/plan
              coordinator/keeper worker/link)
if(TARGET test_coordinator_cli)
  target_sources(test_coordinator_cli PRIVATE "${PROJECT_SOURCE_DIR}/tests/coordinator/client/fake_control.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/cli/byte_size.cc"
                 "${PROJECT_SOURCE_DIR}/coordinator/cli/fits_here.cc")
  add_dependencies(test_coordinator_cli trireme trireme-worker)
endif()
trireme_tests(worker THREADS ROOMS proto runtime/base runtime/json runtime/spec runtime/tensor runtime/comm runtime/comm/local
              runtime/plan runtime/report runtime/engine checkpoint/format checkpoint/client
              LIBS trireme_runtime_engine_no_mutation DNNL::dnnl spdlog::spdlog)
if(TARGET test_worker)
  foreach(file coding_report compared_job event_log places run_files shared_checkpoints snapshots step_timeline stop_signal trace_files)
    target_sources(test_worker PRIVATE "${PROJECT_SOURCE_DIR}/worker/${file}.cc")
  endforeach()
endif()
trireme_tests(worker/link GRPC THREADS ROOMS proto runtime/base runtime/json runtime/spec runtime/tensor runtime/comm runtime/comm/local
              runtime/model runtime/plan runtime/data runtime/report runtime/recorder runtime/run_claim runtime/engine
              runtime/kernels runtime/kernels/ref runtime/kernels/cpu checkpoint/format checkpoint/client worker/link
              LIBS trireme_runtime_engine_no_mutation CLI11::CLI11 spdlog::spdlog OpenMP::OpenMP_CXX)
if(TARGET test_worker_link)
  foreach(file coding_report compared_job event_log generation places plan_source run_files session shared_checkpoints snapshots
               step_timeline stop_signal trace_files training training_end
               training_memory training_run)
    target_sources(test_worker_link PRIVATE "${PROJECT_SOURCE_DIR}/worker/${file}.cc")
  endforeach()
endif()

# What cmake/thread.supp leaves out for gRPC's headers hides no race of ours.
if(TRIREME_SANITIZE STREQUAL "thread")
  add_executable(own_function_race "${PROJECT_SOURCE_DIR}/tests/tsan/own_function_race.cc")
  add_dependencies(tests_threads own_function_race)
  foreach(way IN ITEMS call swap)
    trireme_add_test(tsan.own_function_race.${way} SECONDS 60 LABELS fast threads COMMAND
      "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/tools/ends_as_told.py" 66 "data race" "$<TARGET_FILE:own_function_race>" ${way})
  endforeach()
endif()

include(JobTests)
include(Acceptance)
include(JobSpecDoc)
include(SilentBugs)
