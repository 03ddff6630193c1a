# cpack --config build/release/CPackConfig.cmake -B FOLDER: Debian packages of what is built. Their dependencies on
# libraries are read off the programs (dpkg-shlibdeps of dpkg-dev).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_VENDOR "The Trireme authors")
set(CPACK_PACKAGE_CONTACT "The Trireme authors <trireme@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL trireme coordinator codec)
# Installs what is there; without this it would first build all of the tree, tests and benchmarks among it.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TRIREME_PACKAGE_NAME trireme)
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_NAME trireme-coordinator)
set(CPACK_DEBIAN_CODEC_PACKAGE_NAME libtrireme-codec-dev)
set(CPACK_DEBIAN_CODEC_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_TRIREME_DESCRIPTION "Distributed training of deep networks
Trains GPT-2 and Llama models over data, tensor and pipeline ranks, by
MPI: the command line and the program of a rank.")
set(CPACK_COMPONENT_COORDINATOR_DESCRIPTION "Coordinator of Trireme's jobs and keeper of its nodes
triremed queues jobs, gives them places and starts them again when
something breaks; trireme-agent starts and watches the ranks of a node.")
set(CPACK_COMPONENT_CODEC_DESCRIPTION "Error-bounded coding of floating-point values
The codec of Trireme for C programs: library, header and pkg-config file.")
set(CPACK_DEBIAN_TRIREME_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_TRIREME_PACKAGE_RECOMMENDS trireme-coordinator)
# The version is that of this build: an agent starts the worker beside it.
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_DEPENDS
    "trireme (= ${PROJECT_VERSION}), systemd | systemd-standalone-sysusers")
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/deploy/debian/postinst"
    "${PROJECT_SOURCE_DIR}/deploy/debian/prerm" "${PROJECT_SOURCE_DIR}/deploy/debian/postrm")
set(CPACK_DEBIAN_CODEC_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/deploy/debian/triggers")
foreach(pair trireme:trireme coordinator:trireme-coordinator codec:libtrireme-codec-dev)
  string(REPLACE ":" ";" pair "${pair}")
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES deploy/debian/copyright DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}" COMPONENT ${component})
endforeach()
include(CPack)
