# What `cmake --install` copies, and how others find it: tandem.pc and find_package(Tandem).
# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)
install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS tandem_shared EXPORT TandemTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tandem_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(program tandem tandemd)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# Man pages and shell completions, made from what the programs print for --help.
if(TARGET tandem AND TARGET tandemd)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/man/tandem.1
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/manual.py $<TARGET_FILE:tandem>
      $<TARGET_FILE:tandemd> ${PROJECT_VERSION} ${manual}
    DEPENDS tandem tandemd ${CMAKE_SOURCE_DIR}/cmake/manual.py VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/man/tandem.1)
  install(DIRECTORY ${manual}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(DIRECTORY ${manual}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(DIRECTORY ${manual}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${package_dir})
configure_package_config_file(cmake/TandemConfig.cmake.in TandemConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TandemConfig.cmake ${CMAKE_BINARY_DIR}/TandemConfigVersion.cmake
  DESTINATION ${package_dir})

# The prefix is found from the file's own place, so that an installed tree may be moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
configure_file(cmake/tandem.pc.in tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
