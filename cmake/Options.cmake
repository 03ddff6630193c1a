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
  # Paths relative to the tree: clones and build folders share what is compiled.
  # The sloppiness is what precompiled headers ask for.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros "${TRIREME_CCACHE}")
endif()
find_program(TRIREME_MOLD mold)
if(TRIREME_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off: the same formula gives the same bits wherever it is inlined.
# Off: -Wextra's complaint about designated initialisers that leave defaults, and g++ 12's false reading of std::string
# (-Wrestrict, GCC bug 105651).
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-restrict)
endif()
set(TRIREME_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
if(TRIREME_SANITIZE)
  # Without recovery there is less code behind each check, and the first finding ends the program. null, vptr,
  # pointer-overflow and object-size: AddressSanitizer sees what comes of such a pointer, and the checks take a quarter of the
  # compiler's time. float-cast-overflow: Highway's scalar loops convert what is not finite, and
  # then take something else; g++ leaves it out of `undefined`.
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-sanitize=null,vptr,pointer-overflow,object-size,float-cast-overflow
                      -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  # With the whole names of inlined functions, which suppressions are for.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fdebug-info-for-profiling>")
endif()

# Loops that are compiled once for each instruction set do without SSSE3 alone: every processor that has it but no SSE4 is older
# than the rest of what Trireme runs on. Sanitized, one of those that work alike is enough; for threads, the baseline.
set(trireme_left_out "HWY_SSSE3")
if(TRIREME_SANITIZE)
  string(APPEND trireme_left_out "|HWY_SSE4|HWY_AVX3")
endif()
if(TRIREME_SANITIZE STREQUAL "thread")
  string(APPEND trireme_left_out "|HWY_AVX2|HWY_AVX3_DL")
endif()
add_compile_definitions("HWY_DISABLED_TARGETS=(${trireme_left_out})")

# UBSan asks of every member that is read whether it lies on its boundary, which takes another fifth. That stays where numbers
# are read out of bytes: below runtime, checkpoint and compress.
function(trireme_trust_alignment target)
  if(TRIREME_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
  endif()
endfunction()

# The sources of a room are compiled in batches, each as one file: headers are parsed once a batch, which is most of the
# compiler's time here. The preset check compiles each file alone, so an include that is missing is found there.
option(TRIREME_UNITY "Compile the sources of each room and test program in batches" ON)
set(CMAKE_UNITY_BUILD ${TRIREME_UNITY})
# Fewer in the sanitized presets: their compiler works longest on large files, and parses headers once anyway. A divisor of
# what the others take, so that no two files meet that do not meet there.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12 CACHE STRING "Sources of a batch")
# Sources that compile themselves once for each instruction set cannot share a file. Their vectors are locals by the thousand in
# one function, and what AddressSanitizer notes of the life of each takes six times as long as the rest of the compilation.
function(trireme_compile_alone)
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" found REGEX "hwy/foreach_target[.]h")
    if(found)
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      if(TRIREME_SANITIZE MATCHES "address")
        set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS -fno-sanitize-address-use-after-scope)
      endif()
    endif()
  endforeach()
endfunction()

# g++ looks for memory that it could use again so often that it takes a tenth of the time; up to half a GiB it need not.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>")

# The control plane and tests wait for disks, networks and people: of -O3 they have nothing but a compiler that takes a third longer. clang,
# which makes the sanitized builds, takes a third of the time without any optimisation; what computes, oracles and simulated
# clusters, then takes more than that.
set(trireme_computing "^(runtime/(kernels|comm|plan|graph|optim)|checkpoint|compress|coordinator/(reconciler|job_machine|scheduler|job_store))$")
# The folder's level, or "" where it is the preset's.
function(trireme_little_optimised path variable)
  set(level -O1)
  if(TRIREME_SANITIZE)
    set(level -O0)
    if(path MATCHES "${trireme_computing}")
      set(level "")
    endif()
  endif()
  set(${variable} "${level}" PARENT_SCOPE)
endfunction()
