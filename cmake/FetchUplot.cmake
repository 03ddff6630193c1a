# cmake -DNPM=/usr/bin/npm -DWEB=<folder of the lock file> -DOUT=<folder> -P FetchUplot.cmake: OUT/uPlot.esm.js and
# OUT/uPlot.min.css, by npm and the lock file; stand-ins of nothing where NPM is empty or reaches no registry.
set(uplot "${OUT}/node_modules/uplot/dist")
file(MAKE_DIRECTORY "${OUT}")
file(COPY "${WEB}/package.json" "${WEB}/package-lock.json" DESTINATION "${OUT}")
set(why "there is no npm, or TRIREME_UPLOT is off")
if(NPM)
  execute_process(
    COMMAND "${NPM}" ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-timeout=20000
    WORKING_DIRECTORY "${OUT}" TIMEOUT 90 RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(STRIP "${said}" said)
  set(why "npm ci: ${failed}: ${said}")
  if(failed EQUAL 0 AND EXISTS "${uplot}/uPlot.esm.js")
    set(why "")
  endif()
endif()
if(why STREQUAL "")
  file(COPY "${uplot}/uPlot.esm.js" "${uplot}/uPlot.min.css" DESTINATION "${OUT}")
else()
  message(STATUS "dashboard: built without uPlot, its curves are simpler (${why})")
  file(WRITE "${OUT}/uPlot.esm.js" "export default null;\n")
  file(WRITE "${OUT}/uPlot.min.css" "")
endif()
# Copies keep the time of the package, which is older than the lock file.
file(TOUCH "${OUT}/uPlot.esm.js" "${OUT}/uPlot.min.css")
