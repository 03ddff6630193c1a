# The bench of silent bugs (docs/silent_bugs.md): `silent_bugs` runs it all; the target silent_bugs_doc writes its rows into the
# page, the tests check that the page is what is measured. Left to the release build: it is about numbers, not about threads.
set(silent_bugs_page "${PROJECT_SOURCE_DIR}/docs/silent_bugs.md")
file(GLOB silent_bugs_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/silent_bugs/*.cc")
add_executable(silent_bugs ${silent_bugs_sources} "${PROJECT_SOURCE_DIR}/tests/runtime/engine/layout_run.cc"
               "${PROJECT_SOURCE_DIR}/tests/runtime/engine/mutation_switch.cc")
target_include_directories(silent_bugs PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_options(silent_bugs PRIVATE -O1)
target_link_libraries(silent_bugs PRIVATE trireme_runtime_base trireme_runtime_engine trireme_runtime_comm_local trireme_runtime_kernels
                      trireme_runtime_kernels_cpu trireme_runtime_kernels_ref trireme_runtime_data trireme_runtime_model
                      trireme_runtime_plan trireme_runtime_spec trireme_runtime_layout trireme_checkpoint_format
                      trireme_checkpoint_client)
add_custom_target(silent_bugs_doc COMMAND silent_bugs write "${silent_bugs_page}" VERBATIM)
if(NOT TRIREME_SANITIZE)
  trireme_add_test(silent_bugs.caught SECONDS 300 LABELS fast silent_bugs COMMAND silent_bugs caught "${silent_bugs_page}")
  trireme_add_test(silent_bugs.losses SECONDS 600 LABELS slow silent_bugs COMMAND silent_bugs check "${silent_bugs_page}")
endif()
