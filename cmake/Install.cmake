# cmake --install build/release --prefix X: programs, the codec for C, example jobs, documents. The tree may be moved:
# rooms are linked statically, libraries are the system's, and `trireme` finds `trireme-worker` beside itself.
include(GNUInstallDirs)
foreach(program trireme trireme-worker triremed trireme-agent)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()
install(DIRECTORY deploy/examples deploy/slurm deploy/systemd DESTINATION "${CMAKE_INSTALL_DATADIR}/trireme")
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/trireme")
install(FILES README.md LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/trireme")
install(TARGETS trireme_codec LIBRARY DESTINATION lib)
install(FILES compress/c/trireme_codec.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES compress/c/trireme-codec.pc DESTINATION lib/pkgconfig)
