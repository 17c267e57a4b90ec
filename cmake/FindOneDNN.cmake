# Finds oneDNN by header and library: Debian's config file demands OpenCL, which a CPU build does not use.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR)
if(OneDNN_FOUND AND NOT TARGET OneDNN::onednn)
  add_library(OneDNN::onednn UNKNOWN IMPORTED)
  set_target_properties(OneDNN::onednn PROPERTIES IMPORTED_LOCATION "${ONEDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE_DIR}")
endif()
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)
