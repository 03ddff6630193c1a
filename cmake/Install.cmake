# cmake --install build/release --prefix X: programs, the codec for C, example jobs, documents. The tree may be moved:
# rooms are linked statically, libraries are the system's, and `trireme` finds `trireme-worker` beside itself.
# Components are the Debian packages of cmake/Package.cmake; what names none belongs to `trireme`.
include(GNUInstallDirs)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME trireme)
foreach(program trireme trireme-worker triremed trireme-agent)
  if(TARGET ${program})
    set(component trireme)
    if(program MATCHES "triremed|agent")
      set(component coordinator)
    endif()
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT ${component})
  endif()
endforeach()
install(DIRECTORY deploy/examples deploy/kubernetes deploy/modules
        DESTINATION "${CMAKE_INSTALL_DATADIR}/trireme")
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/trireme")
install(FILES README.md LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/trireme")
install(TARGETS trireme_codec LIBRARY DESTINATION lib COMPONENT codec)
install(FILES compress/c/trireme_codec.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT codec)
install(FILES compress/c/trireme-codec.pc DESTINATION lib/pkgconfig COMPONENT codec)

install(FILES deploy/systemd/triremed.service deploy/systemd/trireme-agent.service DESTINATION lib/systemd/system
        COMPONENT coordinator)
install(FILES deploy/debian/trireme.sysusers DESTINATION lib/sysusers.d RENAME trireme.conf COMPONENT coordinator)
install(DIRECTORY deploy/config deploy/prometheus deploy/grafana DESTINATION "${CMAKE_INSTALL_DATADIR}/trireme" COMPONENT coordinator)
include(Package)
