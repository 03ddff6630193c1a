# The room proto/: C++ of every proto/trireme/v1/*.proto, headers as SYSTEM.
file(GLOB trireme_protos CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/proto/trireme/v1/*.proto")
set(trireme_proto_out "${PROJECT_BINARY_DIR}/generated")
file(MAKE_DIRECTORY "${trireme_proto_out}")
set(trireme_proto_sources)
foreach(proto IN LISTS trireme_protos)
  get_filename_component(stem "${proto}" NAME_WE)
  set(out "${trireme_proto_out}/trireme/v1/${stem}.pb")
  add_custom_command(
    OUTPUT "${out}.cc" "${out}.h"
    COMMAND protobuf::protoc "--cpp_out=${trireme_proto_out}" "-I${PROJECT_SOURCE_DIR}/proto" "${proto}"
    DEPENDS ${trireme_protos} VERBATIM)
  list(APPEND trireme_proto_sources "${out}.cc" "${out}.h")
endforeach()
add_library(trireme_proto STATIC ${trireme_proto_sources})
# Generated sources use the same names for their tables.
set_target_properties(trireme_proto PROPERTIES UNITY_BUILD OFF)
target_compile_options(trireme_proto PRIVATE -fno-sanitize=undefined)  # nothing of ours
target_include_directories(trireme_proto SYSTEM PUBLIC "${trireme_proto_out}")
target_link_libraries(trireme_proto PUBLIC protobuf::libprotobuf)
set_property(GLOBAL APPEND PROPERTY TRIREME_ROOMS "proto:")

# The services of those that have any, for programs that speak gRPC: a library of its own, for the others do without.
set(trireme_service_sources)
foreach(stem agent control worker)
  set(out "${trireme_proto_out}/trireme/v1/${stem}.grpc.pb")
  add_custom_command(
    OUTPUT "${out}.cc" "${out}.h"
    COMMAND protobuf::protoc "--grpc_out=${trireme_proto_out}" "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>"
            "-I${PROJECT_SOURCE_DIR}/proto" "${PROJECT_SOURCE_DIR}/proto/trireme/v1/${stem}.proto"
    DEPENDS ${trireme_protos} VERBATIM)
  list(APPEND trireme_service_sources "${out}.cc" "${out}.h")
endforeach()
add_library(trireme_proto_services STATIC ${trireme_service_sources})
set_target_properties(trireme_proto_services PROPERTIES UNITY_BUILD OFF)
target_compile_options(trireme_proto_services PRIVATE -fno-sanitize=undefined)
target_link_libraries(trireme_proto_services PUBLIC trireme_proto gRPC::grpc++)
set_property(GLOBAL APPEND PROPERTY TRIREME_ROOMS "proto/services:proto")

# What the generators write, without compiling it: all that clang-tidy needs.
add_custom_target(trireme_generated DEPENDS ${trireme_proto_sources} ${trireme_service_sources})
