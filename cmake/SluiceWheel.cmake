# Installs the component `python`: what a wheel holds beside the pure Python package, and the component `cuda`: what
# the wheel sluice-cuda holds (python_bindings/cuda), which lies down in the same folder. scikit-build-core runs it.
#
# A wheel runs where the libraries Sluice was built against are missing or older: they lie in sluice/lib, each with its
# licence. Of the system only the C and C++ runtimes are used. The module has an RPATH, not a RUNPATH: that one also
# holds for what its libraries need themselves.
set_target_properties(sluice_python plan-viz PROPERTIES BUILD_WITH_INSTALL_RPATH OFF)
set_target_properties(sluice_python PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
set_target_properties(plan-viz PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(target sluice_python plan-viz)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags -s)
endforeach()

install(TARGETS sluice_python LIBRARY DESTINATION sluice COMPONENT python)
install(TARGETS plan-viz RUNTIME DESTINATION sluice/bin COMPONENT python)
if(TARGET sluice_cuda_backend)  # it needs no library that the module does not
  set_target_properties(sluice_cuda_backend PROPERTIES BUILD_WITH_INSTALL_RPATH OFF INSTALL_RPATH "$ORIGIN")
  target_link_options(sluice_cuda_backend PRIVATE -s)
  install(TARGETS sluice_cuda_backend LIBRARY DESTINATION sluice/lib COMPONENT cuda)
endif()
set(stubs ${CMAKE_BINARY_DIR}/python/sluice)
install(DIRECTORY ${stubs}/_C DESTINATION sluice COMPONENT python)
install(FILES ${stubs}/__init__.pyi DESTINATION sluice COMPONENT python)

# Eigen is headers, compiled into the module (MPL 2.0).
install(FILES /usr/share/doc/libeigen3-dev/copyright DESTINATION sluice/lib/licenses RENAME libeigen3-dev.txt COMPONENT python)

install(CODE "set(binaries \"$<TARGET_FILE:sluice_python>;$<TARGET_FILE:plan-viz>\")" COMPONENT python)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${binaries} RESOLVED_DEPENDENCIES_VAR libraries
       PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so")
  set(package ${CMAKE_INSTALL_PREFIX}/sluice)
  foreach(library ${libraries})
    file(INSTALL ${library} DESTINATION ${package}/lib FOLLOW_SYMLINK_CHAIN)
    get_filename_component(name ${library} NAME)
    get_filename_component(real ${library} REALPATH)
    # The name that the loader asks for is one file; the package index takes no links.
    file(REMOVE ${package}/lib/${name})
    file(COPY_FILE ${real} ${package}/lib/${name})
    get_filename_component(real_name ${real} NAME)
    if(NOT real_name STREQUAL name)
      file(REMOVE ${package}/lib/${real_name})
    endif()
    string(REGEX REPLACE "^/usr/" "/" packaged ${real})  # where some packages say that they put it
    foreach(path ${real} ${packaged})
      execute_process(COMMAND dpkg-query --search ${path} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE unknown)
      if(NOT unknown)
        break()
      endif()
    endforeach()
    if(unknown)
      message(FATAL_ERROR "wheel: ${real}: belongs to no Debian package; its licence must come along")
    endif()
    string(REGEX REPLACE "[:,].*" "" owner "${owner}")
    file(INSTALL /usr/share/doc/${owner}/copyright DESTINATION ${package}/lib/licenses RENAME ${owner}.txt)
  endforeach()
]] COMPONENT python)
