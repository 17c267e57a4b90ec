# Debian packages, by cpack: libsluice0, libsluice-dev, sluice-tools, python3-sluice, sluice-server. `make deb` builds them
# hardened (SLUICE_HARDENED) and looks through them; cpack in another build makes the same of what is there.
#
#   component    package         holds
#   libraries    libsluice0      the shared libraries
#   development  libsluice-dev   headers, links, CMake package, pkg-config files
#   programs     sluice-tools    plan-viz, sluice-info, sluice-run and others, and their manual pages
#   python3      python3-sluice  the Python package, for Debian's Python of the build's version
#   serving      sluice-server   sluice-serve, sluice-perf, their manual pages, libsluice_serving
set(packages libraries=libsluice0 development=libsluice-dev programs=sluice-tools)
if(TARGET sluice_python AND NOT SKBUILD)
  list(APPEND packages python3=python3-sluice)
endif()
if(TARGET sluice-serve)
  list(APPEND packages serving=sluice-server)
endif()
set(release 1)  # of the package: 0.1.0-1
set(same "(= ${PROJECT_VERSION}-${release})")
set(contact "The Sluice authors <maintainers@sluice.invalid>")

# Manual pages, from what --help says. The target `man` is part of `all`; what was not built is not installed.
find_package(Python 3.9 COMPONENTS Interpreter QUIET)
set(man_dir ${PROJECT_BINARY_DIR}/man)
file(MAKE_DIRECTORY ${man_dir})
foreach(program ${programs} sluice-serve sluice-perf)
  if(TARGET ${program} AND Python_Interpreter_FOUND AND NOT SLUICE_SANITIZE)
    set(page ${man_dir}/${program}.1.gz)
    add_custom_command(OUTPUT ${page} DEPENDS ${program} ${PROJECT_SOURCE_DIR}/tools/packages/man.py
      COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/packages/man.py $<TARGET_FILE:${program}> ${PROJECT_VERSION} ${page}
      COMMENT "Manual page of ${program}" VERBATIM)
    list(APPEND man_pages ${page})
    set(man_install FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
    if(program IN_LIST programs)
      sluice_install(programs ${man_install})
    else()
      install(${man_install} COMPONENT serving)
    endif()
  endif()
endforeach()
add_custom_target(man ALL DEPENDS ${man_pages})

# The Python package, as `import sluice` finds it; the wheel has its own rules (SluiceWheel.cmake).
if("python3=python3-sluice" IN_LIST packages)
  set(python_dir lib/python3/dist-packages)
  install(TARGETS sluice_python LIBRARY DESTINATION ${python_dir}/sluice COMPONENT python3 EXCLUDE_FROM_ALL)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/sluice DESTINATION ${python_dir} COMPONENT python3
          EXCLUDE_FROM_ALL PATTERN __pycache__ EXCLUDE)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/sluice/_C DESTINATION ${python_dir}/sluice COMPONENT python3
          EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_BINARY_DIR}/python/sluice/__init__.pyi DESTINATION ${python_dir}/sluice COMPONENT python3
          EXCLUDE_FROM_ALL OPTIONAL)
  file(WRITE ${PROJECT_BINARY_DIR}/cmake/METADATA "Metadata-Version: 2.1\nName: sluice\nVersion: ${PROJECT_VERSION}\n")
  install(FILES ${PROJECT_BINARY_DIR}/cmake/METADATA DESTINATION ${python_dir}/sluice-${PROJECT_VERSION}.dist-info
          COMPONENT python3 EXCLUDE_FROM_ALL)
  math(EXPR next_minor "${Python_VERSION_MINOR} + 1")
endif()

# Each package says where it comes from and what is new, in Debian's form.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT cpp)
file(TIMESTAMP ${PROJECT_SOURCE_DIR}/CHANGELOG.md changelog_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(doc_files ${PROJECT_BINARY_DIR}/packages)
find_program(SLUICE_GZIP gzip REQUIRED)
foreach(entry ${packages})
  string(REGEX MATCH "([^=]+)=(.+)" _ ${entry})
  set(component ${CMAKE_MATCH_1})
  set(package ${CMAKE_MATCH_2})
  set(folder ${doc_files}/${package})
  file(WRITE ${folder}/changelog.Debian "${package} (${PROJECT_VERSION}-${release}) unstable; urgency=medium

  * New upstream release. changelog.gz, beside this file, tells what it brings.

 -- ${contact}  ${changelog_date}
")
  configure_file(${PROJECT_SOURCE_DIR}/tools/packages/copyright.in ${folder}/copyright @ONLY)
  install(CODE "file(COPY_FILE \"${PROJECT_SOURCE_DIR}/CHANGELOG.md\" \"${folder}/changelog\")
                execute_process(COMMAND \"${SLUICE_GZIP}\" -9nkf changelog.Debian changelog COMMAND_ERROR_IS_FATAL ANY
                                WORKING_DIRECTORY \"${folder}\")" COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${folder}/changelog.Debian.gz ${folder}/changelog.gz ${folder}/copyright COMPONENT ${component}
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} EXCLUDE_FROM_ALL)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR Sluice)
set(CPACK_PACKAGE_CONTACT "${contact}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)  # a package for each
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${release})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})  # where the server's package finds the libraries

set(about "Sluice compiles steps of training and inference into plans, in which\n actors move data through registers of bounded size.")
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tools/packages/triggers)
set(CPACK_DEBIAN_LIBRARIES_DESCRIPTION "dataflow engine for deep learning, the libraries
${about}
 This package has the libraries for C++ and C.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libsluice0 ${same}, libstdc++-12-dev | libstdc++-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake, pkg-config, libcaf-dev")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "dataflow engine for deep learning, to build programs with
${about}
 This package has the headers for C++ and C, the CMake package and the files
 of pkg-config.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_DESCRIPTION "dataflow engine for deep learning, tools for plans
${about}
 plan-viz shows a plan and every byte of it; sluice-run runs a saved graph and
 sluice-bench measures it; sluice-compile compiles saved graphs; sluice-info
 tells what it runs on, and what errors mean.")
set(CPACK_DEBIAN_PYTHON3_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_DEPENDS "python3 (>= 3.${Python_VERSION_MINOR}), python3 (<< 3.${next_minor}), python3-numpy")
set(CPACK_DEBIAN_PYTHON3_PACKAGE_RECOMMENDS "sluice-tools ${same}")
set(CPACK_DEBIAN_PYTHON3_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tools/packages/postinst
    ${PROJECT_SOURCE_DIR}/tools/packages/prerm)
set(CPACK_DEBIAN_PYTHON3_DESCRIPTION "dataflow engine for deep learning, for Python
${about}
 Programs are written as with PyTorch: import sluice as torch.")
set(CPACK_DEBIAN_SERVING_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVING_PACKAGE_DEPENDS "libsluice0 ${same}")
set(CPACK_DEBIAN_SERVING_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tools/packages/triggers)
set(CPACK_DEBIAN_SERVING_DESCRIPTION "inference server for models that Sluice saved
It answers clients of the Open Inference Protocol, such as Triton's, over
 HTTP and gRPC, with batching, versions, limits and metrics. sluice-perf
 measures it.")
include(CPack)
