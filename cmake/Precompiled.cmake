# What most files include, parsed once: a third of the time of a sanitized build from nothing, half of whose files are
# smaller than their headers. Only where TRIREME_PRECOMPILED says so (presets asan and tsan): it gains a seventh elsewhere, and
# g++ 12 then finds false overflows in the standard library (-Wstringop-overflow, -Warray-bounds), which are errors there. An
# include that is missing is found by the preset check.
option(TRIREME_PRECOMPILED "Parse the headers that most files include once" OFF)
set(trireme_parsed_headers <algorithm> <filesystem> <map> <memory> <span> <string> <vector> <fmt/format.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h>)
if(TRIREME_PRECOMPILED)
  # Some files need them, and all must be compiled alike.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fopenmp> $<$<COMPILE_LANGUAGE:CXX>:-pthread>)
  file(WRITE "${PROJECT_BINARY_DIR}/precompiled.cc" "")
endif()

# Libraries are compiled with -fPIC and programs with -fPIE, and each is optimised or not: their precompiled headers differ.
function(trireme_precompiled kind level)
  cmake_parse_arguments(parsed "" "" "OPTIONS;HEADERS" ${ARGN})
  if(NOT TRIREME_PRECOMPILED)
    return()
  endif()
  set(target trireme_precompiled_${kind}${level})
  add_library(${target} OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  target_compile_options(${target} PRIVATE ${parsed_OPTIONS} ${level})
  target_link_libraries(${target} PRIVATE absl::statusor absl::strings fmt::fmt)
  target_precompile_headers(${target} PRIVATE ${trireme_parsed_headers} ${parsed_HEADERS})
  if(kind STREQUAL "test")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
endfunction()
foreach(level IN ITEMS "" -O0)
  trireme_precompiled(room "${level}")
  if(TRIREME_TESTS)
    trireme_precompiled(test "${level}" OPTIONS -fPIE HEADERS <catch2/catch.hpp>)
  endif()
endforeach()

# ROOMS: what the target links. The definitions of fmt come with runtime/base: without it nothing is reused.
function(trireme_precompile target kind level)
  cmake_parse_arguments(precompile "" "" "ROOMS" ${ARGN})
  if(TARGET trireme_precompiled_${kind}${level} AND "runtime/base" IN_LIST precompile_ROOMS)
    target_precompile_headers(${target} REUSE_FROM trireme_precompiled_${kind}${level})
  endif()
endfunction()
