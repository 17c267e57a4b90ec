# cmake --install: headers, shared libraries, CMake package, pkg-config files, programs, licence; cpack: the same as a .deb.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS sluice_runtime_shared sluice_shared EXPORT sluiceTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/sluice/*.h
     ${PROJECT_SOURCE_DIR}/include/sluice/*.hpp)
set(serving_headers ${PROJECT_SOURCE_DIR}/include/sluice/serving.hpp ${PROJECT_SOURCE_DIR}/include/sluice/sluice_server.h)
list(REMOVE_ITEM public_headers ${serving_headers})
install(FILES ${public_headers} ${PROJECT_BINARY_DIR}/include/sluice/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice COMPONENT cpp)
foreach(program plan-viz sluice-info sluice-compile)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT cpp)

# The server is a component, and a package, of its own: it brings gRPC and protobuf.
set(components cpp)
if(TARGET sluice-serve)
  list(APPEND components serving)
  install(TARGETS sluice-serve RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT serving)
  if(TARGET sluice-perf)
    install(TARGETS sluice-perf RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT serving)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/serving/deploy/ COMPONENT serving
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice-server PATTERN __pycache__ EXCLUDE PATTERN "*.py" EXCLUDE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright COMPONENT serving
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/sluice-server)
endif()
if(TARGET sluice_serving_shared)
  install(TARGETS sluice_serving_shared EXPORT sluiceServingTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT serving)
  install(FILES ${serving_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice COMPONENT serving)
endif()

# find_package(sluice). The shared libraries name what they need themselves, so nothing else has to be found.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluiceTargets NAMESPACE sluice:: DESTINATION ${package_dir} COMPONENT cpp)
if(TARGET sluice_serving_shared)
  install(EXPORT sluiceServingTargets NAMESPACE sluice:: DESTINATION ${package_dir} COMPONENT serving)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sluiceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/sluiceConfig.cmake INSTALL_DESTINATION ${package_dir}
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/sluiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/sluiceConfig.cmake ${PROJECT_BINARY_DIR}/cmake/sluiceConfigVersion.cmake
        ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake DESTINATION ${package_dir} COMPONENT cpp)

# pkg-config. Paths start at the file itself, so that an installed tree may be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
set(pc_names sluice sluice_runtime)
if(TARGET sluice_serving_shared)
  list(APPEND pc_names sluice_serving)
endif()
foreach(name ${pc_names})
  set(pc_name ${name})
  set(pc_description "${PROJECT_DESCRIPTION}")
  set(pc_requires "")
  set(pc_component cpp)
  if(name STREQUAL sluice_serving)
    set(pc_description "${PROJECT_DESCRIPTION}: the inference server within a program")
    set(pc_requires sluice)
    set(pc_component serving)
  endif()
  if(name STREQUAL sluice_runtime)
    set(pc_description "${PROJECT_DESCRIPTION}: without the compiler")
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/cmake/sluice.pc.in ${PROJECT_BINARY_DIR}/cmake/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT ${pc_component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR Sluice)
set(CPACK_PACKAGE_CONTACT "The Sluice authors <sluice@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_COMPONENTS_GROUPING IGNORE)  # a package for each
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_CPP_PACKAGE_NAME sluice)
set(CPACK_DEBIAN_SERVING_PACKAGE_NAME sluice-server)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_CPP_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_SERVING_PACKAGE_SECTION net)
set(CPACK_COMPONENT_SERVING_DESCRIPTION "Inference server: answers Triton's clients with models that Sluice saved")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})  # where the server's package finds the libraries
set(CPACK_DEBIAN_CPP_PACKAGE_DEPENDS "libstdc++-12-dev | libstdc++-dev")
set(CPACK_DEBIAN_SERVING_PACKAGE_DEPENDS "sluice (= ${PROJECT_VERSION})")
include(CPack)
