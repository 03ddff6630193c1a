# tests/acceptance: whole jobs held to what others publish and compute. The text of nanoGPT's run is not part of the
# repository; its test skips with a reason where the text or PyTorch is absent.
set(TRIREME_SHAKESPEARE "${PROJECT_SOURCE_DIR}/../shared/data/tinyshakespeare.txt" CACHE FILEPATH
    "tinyshakespeare.txt (1,115,394 bytes) for the test of nanoGPT's published run")

add_executable(write_batches "${PROJECT_SOURCE_DIR}/tests/acceptance/write_batches.cc")
target_include_directories(write_batches PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(write_batches PRIVATE trireme_proto trireme_runtime_base trireme_runtime_spec trireme_runtime_data
                      trireme_runtime_safetensors)

function(trireme_acceptance_test name label seconds)
  add_test(NAME acceptance.${name} COMMAND "${Python3_EXECUTABLE}" -B
    "${PROJECT_SOURCE_DIR}/tests/acceptance/acceptance_test.py" "${PROJECT_BINARY_DIR}/bin" "${TRIREME_SHAKESPEARE}"
    "Acceptance.test_${name}")
  set_tests_properties(acceptance.${name} PROPERTIES
    LABELS ${label} TIMEOUT ${seconds} SKIP_REGULAR_EXPRESSION "skipped")
endfunction()

trireme_acceptance_test(layouts_agree mpi 300)
trireme_acceptance_test(nanogpt_published_run slow 3000)
trireme_acceptance_test(nanogpt_with_compression slow 3000)
