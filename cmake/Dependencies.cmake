# Debian 12 packages; docs/dependencies.md says what each is for.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
find_package(Boost 1.74 REQUIRED) # headers alone: Asio and Beast

# oneDNN's own dnnl-config asks for the OpenCL headers of its GPU half, which nobody here uses.
find_path(dnnl_include_folder oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(dnnl_library dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${dnnl_library}"
                      INTERFACE_INCLUDE_DIRECTORIES "${dnnl_include_folder}")
