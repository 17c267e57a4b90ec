# What a device backend outside of the tree is built with: headers, and an archive of what they declare.
# sluice_backend.cmake, for this build or beside the installed package, makes libraries of both.
set(SLUICE_BACKEND_HEADERS base/attr.h base/cost.h base/device.h base/dtype.h base/error.h
    base/extent_of.h base/libraries.h base/mutex.h base/pause.h base/provenance.h base/shape.h base/tensor_spec.h
    base/thread_annotations.h kernels/kernel.h plan/plan.h plan/target.h
    streams/backend.h streams/devices.h streams/host_memory.h streams/stream.h)
# Their definitions call base/layout.cpp; streams/backend.cpp is the side of the door that is the core's.
set(objects "")
foreach(header ${SLUICE_BACKEND_HEADERS} base/layout.h)
  string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
  if(EXISTS ${PROJECT_SOURCE_DIR}/${source} AND NOT source MATCHES "^streams/backend\\.cpp$")
    string(REGEX REPLACE "/.*" "" folder ${source})
    string(REPLACE "." "[.]" pattern ${source})
    set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:sluice_${folder}>,INCLUDE,/${pattern}[.]o>")
  endif()
endforeach()
add_library(sluice_backend_archive STATIC ${objects})
set_target_properties(sluice_backend_archive PROPERTIES OUTPUT_NAME sluice_backend LINKER_LANGUAGE CXX)

set(SLUICE_BACKEND_INCLUDE "${PROJECT_SOURCE_DIR}")
set(SLUICE_BACKEND_ARCHIVE "${PROJECT_BINARY_DIR}/libsluice_backend.a")
configure_file(cmake/sluice_backend.cmake.in sluice_backend.cmake @ONLY)

if(SLUICE_INSTALL)
  include(GNUInstallDirs)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
  set(headers_dir ${CMAKE_INSTALL_INCLUDEDIR}/sluice/backend)
  file(RELATIVE_PATH headers /${package_dir} /${headers_dir})
  file(RELATIVE_PATH libraries /${package_dir} /${CMAKE_INSTALL_LIBDIR})
  set(SLUICE_BACKEND_INCLUDE "\${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${headers}")
  set(SLUICE_BACKEND_ARCHIVE "\${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${libraries}/libsluice_backend.a")
  configure_file(cmake/sluice_backend.cmake.in cmake/sluice_backend.cmake @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/sluice_backend.cmake DESTINATION ${package_dir} COMPONENT backend)
  install(TARGETS sluice_backend_archive ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT backend)
  install(FILES include/sluice/backend/README.md DESTINATION ${headers_dir} COMPONENT backend)
  foreach(header ${SLUICE_BACKEND_HEADERS})
    string(REGEX REPLACE "/.*" "" folder ${header})
    install(FILES ${header} DESTINATION ${headers_dir}/${folder} COMPONENT backend)
  endforeach()
endif()
