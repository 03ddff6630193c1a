# The browser's side of the dashboard, carried in triremed: coordinator/dashboard/web, and uPlot, which npm fetches while
# building, of the version and with the checksum of the lock file. Without npm, or without its registry, the build says so
# and goes on: the dashboard then draws simpler curves itself.
option(TRIREME_UPLOT "Let npm fetch uPlot for the dashboard's curves" ON)
set(trireme_web "${PROJECT_SOURCE_DIR}/coordinator/dashboard/web")
set(trireme_web_out "${PROJECT_BINARY_DIR}/dashboard")
find_program(TRIREME_NPM npm)

file(GLOB trireme_web_files CONFIGURE_DEPENDS "${trireme_web}/*.js" "${trireme_web}/*.css" "${trireme_web}/*.html"
     "${trireme_web}/*.svg")
set(trireme_uplot "${trireme_web_out}/uPlot.esm.js" "${trireme_web_out}/uPlot.min.css")
set(trireme_npm "")
if(TRIREME_UPLOT AND TRIREME_NPM)
  set(trireme_npm "${TRIREME_NPM}")
endif()
add_custom_command(
  OUTPUT ${trireme_uplot}
  COMMAND "${CMAKE_COMMAND}" "-DNPM=${trireme_npm}" "-DWEB=${trireme_web}" "-DOUT=${trireme_web_out}"
          -P "${PROJECT_SOURCE_DIR}/cmake/FetchUplot.cmake"
  DEPENDS "${trireme_web}/package-lock.json" "${PROJECT_SOURCE_DIR}/cmake/FetchUplot.cmake"
  COMMENT "uPlot for the dashboard" VERBATIM)
list(APPEND trireme_web_files ${trireme_uplot})

add_custom_command(
  OUTPUT "${trireme_web_out}/web_files.cc"
  COMMAND "${CMAKE_COMMAND}" "-DOUT=${trireme_web_out}/web_files.cc" "-DFILES=${trireme_web_files}"
          -P "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
  DEPENDS ${trireme_web_files} "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake" VERBATIM)
target_sources(trireme_coordinator_dashboard PRIVATE "${trireme_web_out}/web_files.cc")
