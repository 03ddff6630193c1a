# What `trireme` says of itself (coordinator/manual): manual pages and completions beside the programs, for `cmake --install`;
# docs/cli.md, which the target cli_doc writes and the test cli.doc compares with the committed one.
set(trireme_manual "${PROJECT_BINARY_DIR}/manual")
add_custom_command(
  OUTPUT "${trireme_manual}/written"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${trireme_manual}"
  COMMAND trireme man --all "${trireme_manual}/man1"
  COMMAND sh -c "gzip -9n '${trireme_manual}/man1/'*.1"
  COMMAND trireme completion bash > "${trireme_manual}/trireme"
  COMMAND trireme completion zsh > "${trireme_manual}/_trireme"
  COMMAND trireme completion fish > "${trireme_manual}/trireme.fish"
  COMMAND "${CMAKE_COMMAND}" -E touch "${trireme_manual}/written"
  DEPENDS trireme COMMENT "Writing the manual pages" VERBATIM)
add_custom_target(man ALL DEPENDS "${trireme_manual}/written")
install(DIRECTORY "${trireme_manual}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}" OPTIONAL)
install(FILES "${trireme_manual}/trireme" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" OPTIONAL)
install(FILES "${trireme_manual}/_trireme" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions" OPTIONAL)
install(FILES "${trireme_manual}/trireme.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" OPTIONAL)

add_custom_target(cli_doc COMMAND trireme man --markdown > "${PROJECT_SOURCE_DIR}/docs/cli.md" VERBATIM)
