# What most files include, parsed once: a third of the time of a sanitized build from nothing, half of whose files are
# smaller than their headers. Only where TRIREME_PRECOMPILED says so (presets asan and tsan): it gains a seventh elsewhere, and
# g++ 12 then finds false overflows in the standard library (-Wstringop-overflow, -Warray-bounds), which are errors there. An
# include that is missing is found by the preset check.
set(TRIREME_PRECOMPILED "" CACHE STRING "For whom the headers that most files include are parsed once: room, test, both or none")
set(trireme_parsed_headers <algorithm> <filesystem> <map> <memory> <span> <string> <vector> <fmt/format.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h>)
if(TRIREME_PRECOMPILED)
  # Some files need it, and all must be compiled alike.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  file(WRITE "${PROJECT_BINARY_DIR}/precompiled.cc" "")
endif()

# kind: as above. Libraries are compiled with -fPIC and programs with -fPIE: their precompiled headers differ.
function(trireme_precompiled kind)
  cmake_parse_arguments(parsed "" "" "OPTIONS;HEADERS" ${ARGN})
  if(NOT kind IN_LIST TRIREME_PRECOMPILED)
    return()
  endif()
  add_library(trireme_precompiled_${kind} OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  target_compile_options(trireme_precompiled_${kind} PRIVATE ${parsed_OPTIONS})
  target_link_libraries(trireme_precompiled_${kind} PRIVATE absl::statusor absl::strings fmt::fmt)
  target_precompile_headers(trireme_precompiled_${kind} PRIVATE ${trireme_parsed_headers} ${parsed_HEADERS})
endfunction()
trireme_precompiled(room)
if(TRIREME_TESTS)
  trireme_precompiled(test OPTIONS -fPIE -O1 HEADERS <catch2/catch.hpp>)
  if(TARGET trireme_precompiled_test)
    set_target_properties(trireme_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
endif()

# ROOMS: what the target links. The definitions of fmt come with runtime/base: without it nothing is reused.
function(trireme_precompile target kind)
  cmake_parse_arguments(precompile "" "" "ROOMS" ${ARGN})
  if(TARGET trireme_precompiled_${kind} AND "runtime/base" IN_LIST precompile_ROOMS)
    target_precompile_headers(${target} REUSE_FROM trireme_precompiled_${kind})
  endif()
endfunction()
