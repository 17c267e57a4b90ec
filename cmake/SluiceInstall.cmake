# cmake --install: headers, shared libraries, CMake package, pkg-config files, programs, licence. The component `cpp` is all of
# them; Debian packages have parts of it (SluicePackages.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# install(ARGN), in the component `cpp` and in the one of a Debian package.
macro(sluice_install package)
  install(${ARGN} COMPONENT cpp)
  install(${ARGN} COMPONENT ${package} EXCLUDE_FROM_ALL)
endmacro()

# Says of a target whose libraries it is to find in the installed tree, wherever that is moved to. In the folders of the
# system the loader looks anyway, and Debian wants programs that name none.
function(sluice_finds_libraries target component destination)
  file(RELATIVE_PATH from /${destination} /${CMAKE_INSTALL_LIBDIR})
  string(REGEX REPLACE "/$" "" from "$ORIGIN/${from}")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${from}")
  set(file $<TARGET_FILE_NAME:${target}>)
  install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
                  file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}/usr/${destination}/${file}\")
                endif()" COMPONENT ${component})
endfunction()

install(TARGETS sluice_runtime_shared sluice_shared EXPORT sluiceTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(TARGETS sluice_runtime_shared sluice_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT libraries NAMELINK_COMPONENT development EXCLUDE_FROM_ALL)
file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/sluice/*.h
     ${PROJECT_SOURCE_DIR}/include/sluice/*.hpp)
set(serving_headers ${PROJECT_SOURCE_DIR}/include/sluice/serving.hpp ${PROJECT_SOURCE_DIR}/include/sluice/sluice_server.h)
list(REMOVE_ITEM public_headers ${serving_headers})
sluice_install(development FILES ${public_headers} ${PROJECT_BINARY_DIR}/include/sluice/version.h
               DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice)
set(programs plan-viz sluice-info sluice-compile sluice-run sluice-bench)
foreach(program ${programs})
  if(TARGET ${program})
    sluice_install(programs TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT cpp)

# The server is a component, and a package, of its own: it brings gRPC and protobuf.
if(TARGET sluice-serve)
  foreach(program sluice-serve sluice-perf)
    if(TARGET ${program})
      install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT serving)
      sluice_finds_libraries(${program} serving ${CMAKE_INSTALL_BINDIR})
    endif()
  endforeach()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/serving/deploy/ COMPONENT serving
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice-server PATTERN __pycache__ EXCLUDE PATTERN "*.py" EXCLUDE)
endif()
if(TARGET sluice_serving_shared)
  install(TARGETS sluice_serving_shared EXPORT sluiceServingTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT serving)
  sluice_finds_libraries(sluice_serving_shared serving ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${serving_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice COMPONENT serving)
endif()

# find_package(sluice). The shared libraries name what they need themselves, so nothing else has to be found.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
install(EXPORT sluiceTargets NAMESPACE sluice:: DESTINATION ${package_dir} COMPONENT cpp)
# CMake takes an export once, so the package has a copy of what the component cpp gets.
set(stage ${PROJECT_BINARY_DIR}/packages/stage)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -E env --unset=DESTDIR \"${CMAKE_COMMAND}\" --install
                                \"${PROJECT_BINARY_DIR}\" --component cpp --prefix \"${stage}\"
                              OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
              file(GLOB targets \"${stage}/${package_dir}/sluiceTargets*.cmake\")
              file(INSTALL \${targets} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${package_dir}\")"
        COMPONENT development EXCLUDE_FROM_ALL)
if(TARGET sluice_serving_shared)
  install(EXPORT sluiceServingTargets NAMESPACE sluice:: DESTINATION ${package_dir} COMPONENT serving)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sluiceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/sluiceConfig.cmake INSTALL_DESTINATION ${package_dir}
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/sluiceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
sluice_install(development FILES ${PROJECT_BINARY_DIR}/cmake/sluiceConfig.cmake
               ${PROJECT_BINARY_DIR}/cmake/sluiceConfigVersion.cmake ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake
               DESTINATION ${package_dir})

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
  set(pc_install FILES ${PROJECT_BINARY_DIR}/cmake/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  if(pc_component STREQUAL cpp)
    sluice_install(development ${pc_install})
  else()
    install(${pc_install} COMPONENT ${pc_component})
  endif()
endforeach()

include(SluicePackages)
