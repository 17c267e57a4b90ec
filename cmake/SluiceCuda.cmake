# The CUDA backend: libsluice_cuda.so, from streams/cuda and kernels/cuda. The core does not link it and it does not
# link the driver; each loads the other when a cuda device is first asked for. Building it takes CUDA's headers alone.
#   sluice_cuda          its objects, for tests
#   sluice_cuda_backend  libsluice_cuda.so
find_path(SLUICE_CUDA_INCLUDE_DIR cuda.h PATHS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda /usr/local/cuda-13.0
          PATH_SUFFIXES include DOC "Where the headers of CUDA 13 or newer are")
set(cuda_found OFF)
if(SLUICE_CUDA_INCLUDE_DIR)
  file(STRINGS ${SLUICE_CUDA_INCLUDE_DIR}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+$" cuda_version "${cuda_version}")
  if(cuda_version GREATER_EQUAL 13000)
    set(cuda_found ON)
  endif()
endif()
if(NOT cuda_found)
  if(NOT SLUICE_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "SLUICE_CUDA=${SLUICE_CUDA}: no headers of CUDA 13 or newer: ${SLUICE_CUDA_INCLUDE_DIR}; "
                        "install the toolkit, set SLUICE_CUDA_INCLUDE_DIR, or build with -DSLUICE_CUDA=OFF")
  endif()
  message(STATUS "CUDA backend: off, no headers of CUDA 13 or newer")
  return()
endif()
message(STATUS "CUDA backend: on, ${SLUICE_CUDA_INCLUDE_DIR}")

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/streams/cuda/*.cpp ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
list(FILTER cuda_sources EXCLUDE REGEX "/backend\\.cpp$")
add_library(sluice_cuda STATIC ${cuda_sources})
target_link_libraries(sluice_cuda PUBLIC sluice_kernels sluice_streams sluice_plan sluice_base ${CMAKE_DL_LIBS})
target_include_directories(sluice_cuda SYSTEM PUBLIC ${SLUICE_CUDA_INCLUDE_DIR})
target_compile_options(sluice_cuda PRIVATE ${SLUICE_WARNINGS} -Werror)

# sluice_cuda_module(TARGET NAME SOURCE...): a backend's library, which exports one function.
function(sluice_cuda_module target name)
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE sluice_cuda)
  target_compile_options(${target} PRIVATE ${SLUICE_WARNINGS} -Werror)
  target_compile_definitions(${target} PRIVATE SLUICE_BACKEND_ABI="${SLUICE_BACKEND_ABI}")
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
endfunction()
sluice_cuda_module(sluice_cuda_backend sluice_cuda kernels/cuda/backend.cpp)
if(SLUICE_INSTALL)
  include(GNUInstallDirs)
  install(TARGETS sluice_cuda_backend LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
endif()
