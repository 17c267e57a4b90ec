# sluice_reduced(MODEL...): the runtime with the kernels that some models need and no others, in <build>/reduced: the
# library and sluice-run. A model is a bundle, or a file with a list of ops (sluice-info ops). Kernels are compiled as ever;
# the linker leaves out those that the list of families (kernels/cpu/families.inc) does not name.
find_program(SLUICE_SIZE size REQUIRED)
get_filename_component(SLUICE_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

function(sluice_reduced)
  set(where ${PROJECT_BINARY_DIR}/reduced)
  set(kept ${where}/kept_kernels.inc)
  foreach(model ${ARGN})
    file(REAL_PATH ${model} model BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    if(NOT EXISTS ${model})
      message(FATAL_ERROR "SLUICE_MODELS: ${model}: no such file; it must name bundles, or lists of sluice-info ops")
    endif()
    list(APPEND models ${model})
    if(IS_DIRECTORY ${model})
      file(GLOB_RECURSE files CONFIGURE_DEPENDS ${model}/*plan.json)
      list(APPEND read ${files})
    else()
      list(APPEND read ${model})
    endif()
  endforeach()
  file(MAKE_DIRECTORY ${where})
  add_custom_command(OUTPUT ${kept} COMMAND kept_kernels ${kept} ${models} DEPENDS kept_kernels ${read} VERBATIM
                     COMMENT "Kernels of ${models}")

  # In front of the libraries, so that their own list of kernels stays out.
  add_library(sluice_kept_kernels OBJECT ${SLUICE_ROOT}/kernels/cpu/cpu_kernels.cpp ${kept})
  target_compile_definitions(sluice_kept_kernels PRIVATE SLUICE_KEPT_KERNELS="${kept}")
  target_link_libraries(sluice_kept_kernels PRIVATE sluice_kernels)
  add_library(sluice_runtime_reduced SHARED $<TARGET_OBJECTS:sluice_kept_kernels>)
  target_link_libraries(sluice_runtime_reduced PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,sluice_runtime>)
  target_link_options(sluice_runtime_reduced PRIVATE -Wl,--version-script=${SLUICE_ROOT}/cmake/sluice.map)
  set_target_properties(sluice_runtime_reduced PROPERTIES OUTPUT_NAME sluice_runtime SOVERSION ${SLUICE_SOVERSION}
                        LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${where})
  add_executable(sluice-run-reduced ${SLUICE_ROOT}/tools/sluice_run/main.cpp $<TARGET_OBJECTS:sluice_kept_kernels>)
  target_include_directories(sluice-run-reduced PRIVATE ${CLI11_INCLUDE_DIR})
  target_link_libraries(sluice-run-reduced PRIVATE sluice_run_values)
  set_target_properties(sluice-run-reduced PROPERTIES OUTPUT_NAME sluice-run RUNTIME_OUTPUT_DIRECTORY ${where})
  foreach(target sluice_runtime_reduced sluice-run-reduced)
    target_link_options(${target} PRIVATE -Wl,--gc-sections -Wl,--as-needed)
  endforeach()

  add_custom_target(sluice_reduced ALL DEPENDS sluice_runtime_reduced sluice-run-reduced
    COMMAND ${CMAKE_COMMAND} -DSIZE=${SLUICE_SIZE} -P ${SLUICE_ROOT}/cmake/SluiceSizes.cmake
            $<TARGET_FILE:sluice::runtime> $<TARGET_FILE:sluice_runtime_reduced>
            $<TARGET_FILE:sluice-run> $<TARGET_FILE:sluice-run-reduced> VERBATIM)
  add_dependencies(sluice_reduced sluice::runtime sluice-run)
endfunction()
