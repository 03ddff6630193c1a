# What every test of ctest has in common, whoever runs it. Included without a language: tests/house/skips_test.py tries it.
#
# trireme_add_test(<name> SECONDS <n> LABELS <label>... [CORES <n>] COMMAND <command>...)
# A test that cannot run here says why, "skipped: <reason>", and exits with 77. The exit code alone counts, never a word in the
# output: a test that fails and prints "skipped" has failed. A reason that begins with "not installed: " is a fault of the
# machine's set-up, which deploy/test does not let pass (tests/tools/test_summary.py).
# Labels: fast, mpi, parity, coordinator, cluster, vm, slow; `kills` beside them where processes are killed while mpirun or an agent
# looks on: only these are given a second try. plain, grpc, threads: cmake/Tests.cmake.
set(TRIREME_SKIPPED 77)
function(trireme_add_test name)
  cmake_parse_arguments(test "" "SECONDS;CORES" "LABELS;COMMAND" ${ARGN})
  if(NOT test_CORES)
    set(test_CORES 2)  # most run several ranks, or a daemon and its agent
  endif()
  add_test(NAME ${name} COMMAND ${test_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${test_LABELS}" TIMEOUT ${test_SECONDS} PROCESSORS ${test_CORES}
                       SKIP_RETURN_CODE ${TRIREME_SKIPPED})
endfunction()

# trireme_python_tests(<prefix> <file below tests/> <class> SECONDS <n> LABELS <label>... [CORES <n>] [PYTHON <program>]
#                      ARGS <argument>... METHODS <method>... [KILLS <method>...]): one test of ctest per method of a unittest
# class; those under KILLS have the label `kills` as well.
function(trireme_python_tests prefix file class)
  cmake_parse_arguments(tests "" "SECONDS;CORES;PYTHON" "LABELS;ARGS;METHODS;KILLS" ${ARGN})
  if(NOT tests_CORES)
    set(tests_CORES 1)  # most wait for a daemon, a page or a clock
  endif()
  if(NOT tests_PYTHON)
    set(tests_PYTHON "${Python3_EXECUTABLE}")
  endif()
  foreach(method IN LISTS tests_METHODS tests_KILLS)
    set(labels ${tests_LABELS})
    if(method IN_LIST tests_KILLS)
      list(APPEND labels kills)
    endif()
    trireme_add_test(${prefix}${method} SECONDS ${tests_SECONDS} LABELS ${labels} CORES ${tests_CORES}
      COMMAND "${tests_PYTHON}" -B "${PROJECT_SOURCE_DIR}/tests/${file}" ${tests_ARGS} "${class}.test_${method}")
  endforeach()
endfunction()
