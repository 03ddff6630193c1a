# tests/acceptance: whole jobs held to what others publish and compute. The text of nanoGPT's run is not part of the
# repository; its test skips with a reason where the text or PyTorch is absent.
set(TRIREME_SHAKESPEARE "${PROJECT_SOURCE_DIR}/../shared/data/tinyshakespeare.txt" CACHE FILEPATH
    "tinyshakespeare.txt (1,115,394 bytes) for the test of nanoGPT's published run")

add_executable(write_batches "${PROJECT_SOURCE_DIR}/tests/acceptance/write_batches.cc")
target_include_directories(write_batches PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(write_batches PRIVATE trireme_proto trireme_runtime_base trireme_runtime_spec trireme_runtime_data
                      trireme_runtime_safetensors)

function(trireme_acceptance_test label seconds method)
  trireme_python_tests(acceptance. acceptance/acceptance_test.py Acceptance SECONDS ${seconds} LABELS ${label}
    ARGS "${trireme_bin}" "${TRIREME_SHAKESPEARE}" METHODS ${method})
endfunction()

trireme_acceptance_test(mpi 300 layouts_agree)
trireme_acceptance_test(slow 3000 nanogpt_published_run)
trireme_acceptance_test(slow 3000 nanogpt_with_compression)
