# The libraries that others link, made from the objects of the folders' static ones:
#   sluice::runtime   libsluice_runtime.so  loads and runs bundles; no graph, no compiler
#   sluice::sluice    libsluice.so          the same and the compiler; stands alone, so a program links one of the two
# Their names carry major.minor, because until 1.0 a minor version may change the interface.
set(SLUICE_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# sluice_shared(NAME OBJECTS FOLDER... DEPS FOLDER...): every object of OBJECTS, and of DEPS what those need.
function(sluice_shared name)
  cmake_parse_arguments(ARG "" "" "OBJECTS;DEPS" ${ARGN})
  string(REPLACE sluice_ "" short ${name})
  list(TRANSFORM ARG_OBJECTS REPLACE "(.+)" "$<TARGET_OBJECTS:sluice_\\1>")
  list(TRANSFORM ARG_DEPS PREPEND sluice_)
  add_library(${name}_shared SHARED ${ARG_OBJECTS})
  target_link_libraries(${name}_shared PRIVATE ${ARG_DEPS} Boost::json CAF::core Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${name}_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/sluice.map)
  target_include_directories(${name}_shared INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include;${PROJECT_BINARY_DIR}/include>" $<INSTALL_INTERFACE:include>)
  target_compile_features(${name}_shared INTERFACE cxx_std_20)
  set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${short} VERSION ${PROJECT_VERSION}
                        SOVERSION ${SLUICE_SOVERSION} LINKER_LANGUAGE CXX
                        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/sluice.map)
  add_library(sluice::${short} ALIAS ${name}_shared)
endfunction()

sluice_shared(sluice_runtime OBJECTS runtime DEPS actors kernels memory streams plan base)
sluice_shared(sluice OBJECTS runtime tensor DEPS compiler graph actors kernels memory streams plan base)

# sluice::caf: sluice::runtime for programs that use sluice/caf.hpp, which is all header.
add_library(sluice_caf INTERFACE)
target_link_libraries(sluice_caf INTERFACE sluice_runtime_shared CAF::core)
add_library(sluice::caf ALIAS sluice_caf)
