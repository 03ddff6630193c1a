# The browser's side of the dashboard, carried in triremed: coordinator/dashboard/web, and uPlot, which npm fetches once per
# build folder by the lock file. Without npm, or without its registry, the dashboard draws simpler curves itself.
option(TRIREME_UPLOT "Let npm fetch uPlot for the dashboard's curves" ON)
set(trireme_web "${PROJECT_SOURCE_DIR}/coordinator/dashboard/web")
set(trireme_web_out "${PROJECT_BINARY_DIR}/dashboard")
set(trireme_uplot "${trireme_web_out}/node_modules/uplot/dist")

function(trireme_fetch_uplot)
  file(MAKE_DIRECTORY "${trireme_web_out}")
  file(COPY "${trireme_web}/package.json" "${trireme_web}/package-lock.json" DESTINATION "${trireme_web_out}")
  find_program(TRIREME_NPM npm)
  if(NOT TRIREME_UPLOT OR NOT TRIREME_NPM)
    return()
  endif()
  set(lock "${trireme_web}/package-lock.json")
  if(EXISTS "${trireme_uplot}/uPlot.esm.js" AND NOT "${lock}" IS_NEWER_THAN "${trireme_uplot}/uPlot.esm.js")
    return()
  endif()
  execute_process(
    COMMAND "${TRIREME_NPM}" ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-timeout=20000
    WORKING_DIRECTORY "${trireme_web_out}" TIMEOUT 90 RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    string(STRIP "${said}" said)
    message(STATUS "npm ci: ${failed}: ${said}")
  else()
    file(TOUCH "${trireme_uplot}/uPlot.esm.js")
  endif()
endfunction()
trireme_fetch_uplot()

file(GLOB trireme_web_files CONFIGURE_DEPENDS "${trireme_web}/*.js" "${trireme_web}/*.css" "${trireme_web}/*.html"
     "${trireme_web}/*.svg")
if(EXISTS "${trireme_uplot}/uPlot.esm.js")
  list(APPEND trireme_web_files "${trireme_uplot}/uPlot.esm.js" "${trireme_uplot}/uPlot.min.css")
else()
  message(STATUS "dashboard: built without uPlot (no npm, or no registry that it reaches); its curves are simpler")
  file(WRITE "${trireme_web_out}/without/uPlot.esm.js" "export default null;\n")
  file(WRITE "${trireme_web_out}/without/uPlot.min.css" "")
  list(APPEND trireme_web_files "${trireme_web_out}/without/uPlot.esm.js" "${trireme_web_out}/without/uPlot.min.css")
endif()

add_custom_command(
  OUTPUT "${trireme_web_out}/web_files.cc"
  COMMAND "${CMAKE_COMMAND}" "-DOUT=${trireme_web_out}/web_files.cc" "-DFILES=${trireme_web_files}"
          -P "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
  DEPENDS ${trireme_web_files} "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake" VERBATIM)
target_sources(trireme_coordinator_dashboard PRIVATE "${trireme_web_out}/web_files.cc")
