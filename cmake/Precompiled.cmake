# What most files include, parsed once: a third of the time of a sanitized build from nothing. An include that is missing is
# found by the preset check, which reads each file with nothing but its own.
option(TRIREME_PRECOMPILED "Parse the headers that most files include once" ON)
if(TRIREME_PRECOMPILED)
  set(trireme_parsed_headers <algorithm> <filesystem> <map> <memory> <span> <string> <vector> <fmt/format.h>
      <absl/status/statusor.h> <absl/strings/str_cat.h>)
  # Some files need it, and all must be compiled alike.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  file(WRITE "${PROJECT_BINARY_DIR}/precompiled.cc" "")
  # Libraries are compiled with -fPIC and programs with -fPIE: their precompiled headers differ.
  add_library(trireme_precompiled_room OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  target_link_libraries(trireme_precompiled_room PRIVATE absl::statusor absl::strings fmt::fmt)
  target_precompile_headers(trireme_precompiled_room PRIVATE ${trireme_parsed_headers})
  add_library(trireme_precompiled_test OBJECT "${PROJECT_BINARY_DIR}/precompiled.cc")
  set_target_properties(trireme_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(trireme_precompiled_test PRIVATE -fPIE -O1)  # as the tests are
  target_link_libraries(trireme_precompiled_test PRIVATE absl::statusor absl::strings fmt::fmt)
  target_precompile_headers(trireme_precompiled_test PRIVATE ${trireme_parsed_headers} <catch2/catch.hpp>)
endif()

# kind: room or test; ROOMS: what it links. The definitions of fmt come with runtime/base: without it nothing is reused.
function(trireme_precompile target kind)
  cmake_parse_arguments(precompile "" "" "ROOMS" ${ARGN})
  if(TRIREME_PRECOMPILED AND "runtime/base" IN_LIST precompile_ROOMS)
    target_precompile_headers(${target} REUSE_FROM trireme_precompiled_${kind})
  endif()
endfunction()
