# -O1: the time goes to compiling tests, not to running them.
# tests/<room>/*_test.cc become one Catch2 program per room: test_<room>. Tags make labels: [slow] slow, [mpi] mpi,
# [parity] parity (minutes, but part of every full test), everything else fast; those of tests/coordinator also coordinator.
find_package(Catch2 2 CONFIG REQUIRED)
include(Catch)
add_library(trireme_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/test_main.cc")
target_link_libraries(trireme_test_main PUBLIC Catch2::Catch2)
# Catch2 itself, nothing of ours: optimised and checked for undefined behaviour it takes three times as long.
target_compile_options(trireme_test_main PRIVATE -O0 -fno-sanitize=undefined)

# The tests of test_${name} that `spec` selects. Catch2 warns of a program without such tests, so the sources are asked
# first, whenever one of them changes.
macro(trireme_discover label spec seconds)
  set(found "")
  foreach(source IN LISTS sources)
    file(STRINGS "${source}" found_here REGEX "\\[${label}\\]")
    list(APPEND found ${found_here})
  endforeach()
  if(found OR "${label}" STREQUAL fast)
    catch_discover_tests(test_${name} TEST_SPEC "${spec}" PROPERTIES LABELS ${label} TIMEOUT ${seconds})
    # Catch takes one label only; a second one is given when ctest reads the names that Catch has found.
    if(name MATCHES "^coordinator")
      set(labels "${PROJECT_BINARY_DIR}/test_${name}_labels_${label}.cmake")
      file(WRITE "${labels}" "foreach(test IN LISTS test_${name}_TESTS)\n"
        "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${label};coordinator\")\nendforeach()\n")
      set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels}")
    endif()
  endif()
endmacro()

function(trireme_tests path)
  cmake_parse_arguments(tests "" "" "ROOMS;LIBS" ${ARGN})
  string(REPLACE "/" "_" name "${path}")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${path}/*.cc")
  if(NOT sources)
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  add_executable(test_${name} ${sources})
  trireme_precompile(test_${name} test ROOMS ${tests_ROOMS})
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(test_${name} PRIVATE -O1)
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
  # Sanitized tests run slower, two at a time.
  set(fast_seconds 120)
  if(TRIREME_SANITIZE)
    set(fast_seconds 300)
  endif()
  trireme_discover(fast "~[slow]~[mpi]~[parity]~[.]" ${fast_seconds})
  trireme_discover(slow "[slow]~[.]" 3000)
  trireme_discover(parity "[parity]~[.]" 900)
  trireme_discover(mpi "[mpi]~[.]" 120)
endfunction()

# trireme_mpi_test(<name> <path> [ROOMS <path>...] [LIBS <target>...]): the program <name> of tests/<path>/*.cc, with a
# main of its own. trireme_mpi_run(<name> RANKS <n>... [SUFFIX <text>] [ARGS <argument>...] [PASS <regex>]): tests that run
# it under mpirun, one per number of ranks; with PASS they pass by their output, whatever the exit code. Label mpi.
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
  cmake_parse_arguments(run "" "SUFFIX;PASS" "RANKS;ARGS" ${ARGN})
  foreach(ranks IN LISTS run_RANKS)
    set(test ${name}.${ranks}_ranks${run_SUFFIX})
    add_test(NAME ${test}
      COMMAND "${PROJECT_SOURCE_DIR}/cmake/mpirun_test.sh" 100 ${ranks} "$<TARGET_FILE:${name}>" ${run_ARGS})
    set_tests_properties(${test} PROPERTIES LABELS mpi TIMEOUT 120)
    if(run_PASS)
      set_tests_properties(${test} PROPERTIES PASS_REGULAR_EXPRESSION "${run_PASS}")
    endif()
  endforeach()
endfunction()

trireme_tests(runtime/base ROOMS runtime/base)
trireme_tests(runtime/checksum ROOMS runtime/checksum)
# It asks the processor in the words of x86.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(test_runtime_checksum PRIVATE "${PROJECT_SOURCE_DIR}/tests/runtime/checksum/x86/upper_halves_test.cc")
endif()
trireme_tests(compress ROOMS runtime/base runtime/checksum compress)
# The C header, by a program compiled as C99.
add_executable(test_compress_c "${PROJECT_SOURCE_DIR}/tests/compress/c/codec_in_c.c")
target_include_directories(test_compress_c PRIVATE "${PROJECT_SOURCE_DIR}")
set_target_properties(test_compress_c PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF LINKER_LANGUAGE C)
target_compile_options(test_compress_c PRIVATE -Wpedantic)
target_link_libraries(test_compress_c PRIVATE trireme_codec m)
add_test(NAME compress.c_header COMMAND test_compress_c)
set_tests_properties(compress.c_header PROPERTIES LABELS fast TIMEOUT 60)
trireme_tests(runtime/spec ROOMS runtime/base runtime/spec)
trireme_tests(runtime/tensor ROOMS runtime/base runtime/tensor)
trireme_tests(runtime/layout ROOMS runtime/base runtime/layout)
trireme_tests(runtime/graph ROOMS proto runtime/base runtime/graph runtime/model)
trireme_tests(runtime/recorder ROOMS runtime/base runtime/recorder)
trireme_tests(runtime/safetensors ROOMS runtime/base runtime/safetensors)
trireme_tests(runtime/kernels ROOMS runtime/base runtime/graph runtime/kernels runtime/kernels/cpu runtime/kernels/ref)
trireme_tests(runtime/comm ROOMS runtime/base runtime/comm runtime/comm/local)
trireme_mpi_test(test_runtime_comm_mpi runtime/comm/mpi ROOMS runtime/base runtime/tensor runtime/comm runtime/comm/mpi)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 4)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .messages ARGS --messages)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .silent ARGS --silent PASS "silence was named")
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 3 SUFFIX .late ARGS --late)
# The tags of this MPI, of one over UCX, and the standard's least; and fewer than needed, which is refused.
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_this_mpi ARGS --tags=0)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_ucx ARGS --tags=8388607)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .tags_of_the_standard ARGS --tags=32767)
trireme_mpi_run(test_runtime_comm_mpi RANKS 2 SUFFIX .too_few_tags ARGS --tags=4095
                PASS "MPI_TAG_UB[)] is 4095, but messages need tags up to 24575")
trireme_tests(runtime/data ROOMS runtime/base runtime/data)
trireme_tests(runtime/optim ROOMS runtime/base runtime/optim)
trireme_tests(runtime/plan ROOMS runtime/base runtime/model runtime/plan runtime/spec)
trireme_tests(runtime/report ROOMS proto runtime/base runtime/plan runtime/recorder runtime/report)
trireme_tests(runtime/engine ROOMS runtime/base runtime/engine runtime/comm/local runtime/kernels runtime/kernels/cpu
              runtime/kernels/ref runtime/data runtime/plan
              runtime/spec runtime/layout runtime/safetensors checkpoint/format checkpoint/client)
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
trireme_tests(checkpoint ROOMS runtime/base runtime/checksum checkpoint/format checkpoint/client)
trireme_tests(checkpoint/hugging_face ROOMS runtime/base runtime/spec runtime/safetensors checkpoint/client
              checkpoint/hugging_face)
trireme_tests(coordinator ROOMS runtime/base coordinator/launcher runtime/recorder)
trireme_tests(coordinator/command ROOMS coordinator/command)
trireme_tests(coordinator/slurm ROOMS proto runtime/base coordinator/slurm)
trireme_tests(coordinator/client ROOMS proto proto/services runtime/base coordinator/client)
trireme_tests(coordinator/job_machine ROOMS proto runtime/base coordinator/job_machine)
trireme_tests(coordinator/job_store ROOMS proto runtime/base coordinator/job_store LIBS SQLite::SQLite3)
trireme_tests(coordinator/keeper ROOMS runtime/base coordinator/command coordinator/keeper coordinator/slurm LIBS nlohmann_json::nlohmann_json)
# A rank for it, with a flight recorder and without MPI.
add_executable(keeper_rank "${PROJECT_SOURCE_DIR}/tests/coordinator/keeper/rank/recorded_rank.cc")
target_include_directories(keeper_rank PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(keeper_rank PRIVATE trireme_runtime_recorder)
add_dependencies(test_coordinator_keeper keeper_rank)
trireme_tests(coordinator/local_run ROOMS proto runtime/base coordinator/local_run LIBS nlohmann_json::nlohmann_json)
if(TARGET test_coordinator_local_run)
  target_sources(test_coordinator_local_run PRIVATE "${PROJECT_SOURCE_DIR}/tests/coordinator/keeper/keeper_bench.cc")
  add_dependencies(test_coordinator_local_run keeper_rank)
endif()
trireme_tests(coordinator/reconciler ROOMS proto runtime/base coordinator/reconciler)
trireme_tests(coordinator/control_api ROOMS proto/services runtime/base coordinator/client coordinator/control_api)
trireme_tests(coordinator/http ROOMS runtime/base coordinator/http)
trireme_tests(coordinator/log_format ROOMS coordinator/log_format LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/metrics ROOMS proto runtime/base coordinator/reconciler coordinator/metrics)
trireme_tests(coordinator/dashboard ROOMS proto runtime/base runtime/plan coordinator/control_api coordinator/job_machine
              coordinator/job_store coordinator/reconciler coordinator/http coordinator/dashboard
              LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/manual ROOMS coordinator/manual)
trireme_tests(coordinator/checkup ROOMS runtime/base coordinator/checkup)
trireme_tests(coordinator/planning ROOMS proto runtime/base coordinator/planning)
trireme_tests(coordinator/task_thread ROOMS coordinator/task_thread)
trireme_tests(coordinator/scheduler ROOMS proto runtime/base coordinator/scheduler)
trireme_tests(coordinator/cli ROOMS proto proto/services runtime/base coordinator/client
              LIBS nlohmann_json::nlohmann_json)
trireme_tests(coordinator/worker_link ROOMS proto proto/services runtime/base runtime/spec runtime/plan
              coordinator/keeper coordinator/worker_link worker/link)
if(TARGET test_coordinator_cli)
  target_sources(test_coordinator_cli PRIVATE "${PROJECT_SOURCE_DIR}/tests/coordinator/client/fake_control.cc")
  add_dependencies(test_coordinator_cli trireme trireme-worker)
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
# tests/coordinator/cli/manual_test.py: what `trireme` says of itself, in the shells and by man; docs/cli.md is current.
foreach(method doc exit_codes man_pages bash zsh fish)
  add_test(NAME cli.${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/coordinator/cli/manual_test.py" "${PROJECT_BINARY_DIR}/bin/trireme"
    "${PROJECT_SOURCE_DIR}/docs/cli.md" "Manual.test_${method}")
  set_tests_properties(cli.${method} PROPERTIES LABELS coordinator TIMEOUT 120 SKIP_REGULAR_EXPRESSION "skipped")
endforeach()
# tests/worker/worker_test.py: whole jobs from outside, one ctest per method; a skipped one prints "skipped".
foreach(method runs_to_the_end speaks_json runs_a_given_plan continues_after_interrupt events_for_tensorboard traces_chosen_steps
               goes_on_with_compression
               names_a_killed_rank trains_on_after_a_killed_rank stops_a_crash_loop ends_with_its_killed_parent
               ends_a_stopped_rank refuses_changed_text
               trains_on_with_a_full_disk refuses_bad_input refuses_what_does_not_fit stays_within_planned_memory)
  add_test(NAME worker.${method} COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/worker/worker_test.py"
    "${PROJECT_BINARY_DIR}/bin" "Worker.test_${method}")
  set_tests_properties(worker.${method} PROPERTIES LABELS mpi TIMEOUT 300 SKIP_REGULAR_EXPRESSION "skipped")
endforeach()

# tests/coordinator/daemon/daemon_test.py: triremed, its agent and its command line from outside.
foreach(method runs_a_job ranks_dial_their_keeper pauses_and_resumes cancels survives_kill_9 readers_outlive_it agent_killed
               agent_outlives_daemon worker_killed worker_killed_unseen worker_stopped fails_for_good refuses_strangers
               reads_tokens_again refuses_a_second_daemon)
  add_test(NAME daemon.${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/daemon_test.py" "${PROJECT_BINARY_DIR}/bin" "Daemon.test_${method}")
  set_tests_properties(daemon.${method} PROPERTIES LABELS coordinator TIMEOUT 300)
endforeach()

# Tests of the API by the stubs for Python: they are run by the system's python3, which has Debian's gRPC.
find_program(TRIREME_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(NOT TRIREME_SYSTEM_PYTHON)
  set(TRIREME_SYSTEM_PYTHON "${Python3_EXECUTABLE}")
endif()
# trireme_api_test(<name> <file> <class> <method>...): one ctest per method of tests/coordinator/daemon/<file>.py.
function(trireme_api_test name file class)
  foreach(method IN LISTS ARGN)
    add_test(NAME ${name}.${method} COMMAND "${TRIREME_SYSTEM_PYTHON}" -B
      "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/${file}.py" "${PROJECT_BINARY_DIR}/bin" "${class}.test_${method}")
    set_tests_properties(${name}.${method} PROPERTIES LABELS coordinator TIMEOUT 300
      SKIP_REGULAR_EXPRESSION "skipped: ")
  endforeach()
endfunction()
trireme_api_test(python python_client_test PythonClient example every_call logs_of_what_is_to_come)
trireme_api_test(hostile hostile_test Hostile fuzzed_messages oversized_messages strangers_and_jobs_of_others
                 paths_that_lead_elsewhere links_swapped_later words_for_a_shell yaml_bombs readers_that_never_read slow_connections)
trireme_api_test(soak soak_test Soak kill_9_at_10_moments kill_9_at_200_moments)
set_tests_properties(soak.kill_9_at_200_moments PROPERTIES LABELS slow TIMEOUT 3000)
# tests/coordinator/daemon/observed_test.py: what a daemon shows of itself over HTTP and in its log.
foreach(method health metrics alerts_and_board json_log)
  add_test(NAME observed.${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/observed_test.py" "${PROJECT_BINARY_DIR}/bin" "Observed.test_${method}")
  set_tests_properties(observed.${method} PROPERTIES LABELS coordinator TIMEOUT 300)
endforeach()

# tests/coordinator/daemon/stall_test.py: who stands still, and who is only slow. Its ranks hang by a preloaded library.
# A sanitizer wants to be the first library itself, so its programs do without.
set(methods lost_agent)
if(NOT TRIREME_SANITIZE)
  list(APPEND methods hung_rank)
endif()
add_library(hang_when_told MODULE "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/hang/hang_when_told.cc")
set_target_properties(hang_when_told PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
foreach(method IN LISTS methods)
  add_test(NAME daemon.${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/stall_test.py" "${PROJECT_BINARY_DIR}/bin" "Stalls.test_${method}")
  set_tests_properties(daemon.${method} PROPERTIES LABELS coordinator TIMEOUT 300)
endforeach()
add_test(NAME daemon.no_false_alarm COMMAND "${Python3_EXECUTABLE}" -B
  "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/no_false_alarm.py" "${PROJECT_BINARY_DIR}/bin" 30)
set_tests_properties(daemon.no_false_alarm PROPERTIES LABELS slow TIMEOUT 3000)

# tests/deploy: the ready-made files, and the Debian packages (label cluster: it installs them in a namespace).
if(NOT TRIREME_SANITIZE)
  foreach(method container kubernetes module units)
    add_test(NAME deploy.${method} COMMAND "${Python3_EXECUTABLE}" -B
      "${PROJECT_SOURCE_DIR}/tests/deploy/deploy_test.py" "${PROJECT_BINARY_DIR}/bin" "Deploy.test_${method}")
    set_tests_properties(deploy.${method} PROPERTIES LABELS coordinator TIMEOUT 300 SKIP_REGULAR_EXPRESSION "skipped")
  endforeach()
  add_test(NAME deploy.packages COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/deploy/packages_test.py" "${PROJECT_BINARY_DIR}")
  set_tests_properties(deploy.packages PROPERTIES LABELS "cluster;coordinator" TIMEOUT 600)
endif()

# tests/coordinator/daemon/dashboard_test.py: the dashboard in a headless Chromium; skipped without one.
foreach(method clicks_through lets_in_whom_it_knows shows_who_stands_still shows_a_node_that_does_not_come_back
               says_where_it_is_not)
  add_test(NAME dashboard.${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/coordinator/daemon/dashboard_test.py" "${PROJECT_BINARY_DIR}/bin"
    "Dashboard.test_${method}")
  set_tests_properties(dashboard.${method} PROPERTIES LABELS coordinator TIMEOUT 600 SKIP_REGULAR_EXPRESSION "skipped")
endforeach()

trireme_tests(worker ROOMS proto runtime/base runtime/spec runtime/tensor runtime/comm runtime/comm/local runtime/plan
              worker/link
              LIBS DNNL::dnnl spdlog::spdlog)
if(TARGET test_worker)
  foreach(file compared_job places plan_source stop_signal)
    target_sources(test_worker PRIVATE "${PROJECT_SOURCE_DIR}/worker/${file}.cc")
  endforeach()
endif()

# tests/cluster/slurm_test.py: srun and sbatch on a real Slurm of its own, one ctest per method; skipped without root,
# namespaces or Slurm (deploy/install_packages cluster).
foreach(method trains_as_under_mpirun runs_inside_an_allocation ends_the_step_of_a_killed_srun goes_on_after_signals
               queues_what_is_stopped_early goes_on_after_a_dead_node ends_when_a_fault_returns
               stops_before_its_time_limit does_not_queue_again ends_with_a_killed_rank)
  add_test(NAME cluster.slurm_${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/cluster/slurm_test.py" "${PROJECT_BINARY_DIR}/bin" "SlurmJobs.test_${method}")
  set_tests_properties(cluster.slurm_${method} PROPERTIES LABELS "cluster;coordinator" TIMEOUT 300 SKIP_REGULAR_EXPRESSION "skipped")
endforeach()

# tests/cluster/nodes_test.py: a daemon and agents on several hosts without Slurm; skipped without root or namespaces.
foreach(method trains_on_all_of_them goes_on_without_a_node_that_is_gone goes_on_when_a_cut_cable_is_mended)
  add_test(NAME cluster.nodes_${method} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/cluster/nodes_test.py" "${PROJECT_BINARY_DIR}/bin" "Nodes.test_${method}")
  set_tests_properties(cluster.nodes_${method} PROPERTIES LABELS "cluster;coordinator" TIMEOUT 600
    SKIP_REGULAR_EXPRESSION "skipped")
endforeach()

# The daemon over such a Slurm; one cluster for all of its tests.
add_test(NAME cluster.slurm_daemon COMMAND "${Python3_EXECUTABLE}" -B
  "${PROJECT_SOURCE_DIR}/tests/cluster/slurm_daemon_test.py" "${PROJECT_BINARY_DIR}/bin")
set_tests_properties(cluster.slurm_daemon PROPERTIES LABELS "cluster;coordinator" TIMEOUT 900 SKIP_REGULAR_EXPRESSION "skipped")

include(Acceptance)
include(JobSpecDoc)
