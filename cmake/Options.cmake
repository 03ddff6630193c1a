# Compiler settings of every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TRIREME_CCACHE}")
endif()
find_program(TRIREME_MOLD mold)
if(TRIREME_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off: the same formula gives the same bits wherever it is inlined.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -ffp-contract=off)
set(TRIREME_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
if(TRIREME_SANITIZE)
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()
