# docs/job_spec.md: the target job_spec_doc writes it, the test spec.job_spec_doc checks that the committed one is current.
set(job_spec_descriptors "${PROJECT_BINARY_DIR}/generated/job_spec.desc")
set(job_spec_page "${PROJECT_SOURCE_DIR}/docs/job_spec.md")
set(job_spec_proto "${PROJECT_SOURCE_DIR}/proto/trireme/v1/job_spec.proto")
add_custom_command(
  OUTPUT "${job_spec_descriptors}"
  COMMAND protobuf::protoc --include_source_info "--descriptor_set_out=${job_spec_descriptors}"
          "-I${PROJECT_SOURCE_DIR}/proto" "${job_spec_proto}"
  DEPENDS "${job_spec_proto}" VERBATIM)
add_executable(make_job_spec_doc "${PROJECT_SOURCE_DIR}/tests/tools/job_spec_doc.cc" "${job_spec_descriptors}")
target_link_libraries(make_job_spec_doc PRIVATE trireme_proto trireme_runtime_base trireme_runtime_spec)
add_custom_target(job_spec_doc COMMAND make_job_spec_doc "${job_spec_descriptors}" "${job_spec_page}" write VERBATIM)
trireme_add_test(spec.job_spec_doc SECONDS 60 LABELS fast plain CORES 1
  COMMAND make_job_spec_doc "${job_spec_descriptors}" "${job_spec_page}" check)
add_dependencies(tests_plain make_job_spec_doc)
