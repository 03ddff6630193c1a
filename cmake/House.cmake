# The house checks (tests/house): rooms.txt from the declared arrows, ctest entries, and the targets `tidy` and
# `single_files`.
get_property(trireme_arrows GLOBAL PROPERTY TRIREME_ROOMS)
set(trireme_rooms_text "")
foreach(arrow IN LISTS trireme_arrows)
  # The list of a room's arrows joins the list of rooms: an element with a colon begins a room.
  if(arrow MATCHES ":")
    string(APPEND trireme_rooms_text "\n${arrow}")
  else()
    string(APPEND trireme_rooms_text ";${arrow}")
  endif()
endforeach()
file(WRITE "${PROJECT_BINARY_DIR}/rooms.txt" "${trireme_rooms_text}\n")

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(trireme_house "${PROJECT_SOURCE_DIR}/tests/house")

add_custom_target(tidy
  COMMAND "${Python3_EXECUTABLE}" -B "${trireme_house}/tidy.py" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}"
  DEPENDS trireme_generated USES_TERMINAL VERBATIM)

add_custom_target(single_files
  COMMAND "${Python3_EXECUTABLE}" -B "${trireme_house}/single_files.py" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}"
  DEPENDS trireme_generated USES_TERMINAL VERBATIM)

# The checks look at sources and installed programs, not at what the sanitizers change.
if(NOT TRIREME_SANITIZE)
  function(trireme_house_test name script)
    trireme_add_test(house.${name} SECONDS 120 LABELS fast CORES 1
      COMMAND "${Python3_EXECUTABLE}" -B "${trireme_house}/${script}" ${ARGN})
  endfunction()

  trireme_house_test(rooms rooms.py "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/rooms.txt")
  trireme_house_test(sizes sizes.py "${PROJECT_SOURCE_DIR}")
  trireme_house_test(classes classes.py "${PROJECT_SOURCE_DIR}")
  trireme_house_test(docs docs.py "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/rooms.txt")
  # CMake writes the file once all is read: the names of its tests, with those of Python.
  trireme_house_test(proof proof.py "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/CTestTestfile.cmake")
  trireme_house_test(listed listed.py "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/CTestTestfile.cmake")
  trireme_house_test(format format.py "${PROJECT_SOURCE_DIR}")
  trireme_house_test(python python_names.py "${PROJECT_SOURCE_DIR}")
  trireme_house_test(planted planted_test.py)
  add_executable(planted_verdicts "${trireme_house}/planted_verdicts.cc")
  target_include_directories(planted_verdicts PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(planted_verdicts PRIVATE trireme_test_main)
  trireme_house_test(skips skips_test.py "${PROJECT_SOURCE_DIR}" "$<TARGET_FILE:planted_verdicts>")
  set(trireme_control_plane)
  foreach(target trireme test_runtime_plan)
    if(TARGET ${target})
      list(APPEND trireme_control_plane "$<TARGET_FILE:${target}>")
    endif()
  endforeach()
  trireme_house_test(ldd links.py ${trireme_control_plane})
  trireme_house_test(install install.py "${PROJECT_BINARY_DIR}")
endif()
