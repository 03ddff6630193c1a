# The messages and stubs of proto/trireme/v1 for Python programs, in build/<preset>/python: the package trireme.v1.
# Generated where gRPC's plugin for Python is found (Debian: protobuf-compiler-grpc); nothing else needs it.
find_program(TRIREME_GRPC_PYTHON_PLUGIN grpc_python_plugin)
if(NOT TRIREME_GRPC_PYTHON_PLUGIN)
  message(STATUS "no grpc_python_plugin: no Python client")
  return()
endif()
set(trireme_python "${PROJECT_BINARY_DIR}/python")
set(trireme_python_files)
foreach(proto IN LISTS trireme_protos)
  get_filename_component(stem "${proto}" NAME_WE)
  set(out "${trireme_python}/trireme/v1/${stem}_pb2")
  add_custom_command(
    OUTPUT "${out}.py" "${out}_grpc.py"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${trireme_python}"
    COMMAND protobuf::protoc "--python_out=${trireme_python}" "--grpc_out=${trireme_python}"
            "--plugin=protoc-gen-grpc=${TRIREME_GRPC_PYTHON_PLUGIN}" "-I${PROJECT_SOURCE_DIR}/proto" "${proto}"
    DEPENDS ${trireme_protos} VERBATIM)
  list(APPEND trireme_python_files "${out}.py" "${out}_grpc.py")
endforeach()
add_custom_target(python_client ALL DEPENDS ${trireme_python_files})
install(DIRECTORY "${trireme_python}/trireme" DESTINATION "${CMAKE_INSTALL_DATADIR}/trireme/python"
        FILES_MATCHING PATTERN "*.py")
