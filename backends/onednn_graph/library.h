#pragma once
// oneDNN 3 with its graph interface, loaded when it is used: functions by name, with the types that its header gives
// them.
#include <oneapi/dnnl/dnnl_graph.h>

#include <memory>
#include <string>
#include <type_traits>

#include "backends/adapter.h"

namespace onednn_graph {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kOwnSymbols = RTLD_LOCAL;  // sanitizers know no other way
#else
// A program may have linked another oneDNN, whose functions have the same names.
inline constexpr int kOwnSymbols = RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// Its functions keep their names.
class Library {
  const adapter::Library library_ = adapter::library("SLUICE_ONEDNN_LIBRARY", {"libdnnl.so.3"},
                                                     "install oneDNN 3, or name its libdnnl.so.3", kOwnSymbols);

 public:
  // Throws std::runtime_error where it is not there.
  static const Library& instance() {
    static const Library* const library = new Library;  // compiled code may outlive statics
    return *library;
  }

#define SLUICE_OF_ONEDNN(name) \
  decltype(&::name) const name = reinterpret_cast<decltype(&::name)>(library_.symbol(#name, "oneDNN 3 with graphs"))
  SLUICE_OF_ONEDNN(dnnl_engine_create);
  SLUICE_OF_ONEDNN(dnnl_stream_create);
  SLUICE_OF_ONEDNN(dnnl_stream_wait);
  SLUICE_OF_ONEDNN(dnnl_stream_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_create_with_fpmath_mode);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_finalize);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_filter);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_get_partition_num);
  SLUICE_OF_ONEDNN(dnnl_graph_graph_get_partitions);
  SLUICE_OF_ONEDNN(dnnl_graph_add_op);
  SLUICE_OF_ONEDNN(dnnl_graph_op_create);
  SLUICE_OF_ONEDNN(dnnl_graph_op_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_op_add_input);
  SLUICE_OF_ONEDNN(dnnl_graph_op_add_output);
  SLUICE_OF_ONEDNN(dnnl_graph_op_set_attr_f32);
  SLUICE_OF_ONEDNN(dnnl_graph_op_set_attr_bool);
  SLUICE_OF_ONEDNN(dnnl_graph_op_set_attr_s64);
  SLUICE_OF_ONEDNN(dnnl_graph_op_set_attr_str);
  SLUICE_OF_ONEDNN(dnnl_graph_logical_tensor_init_with_dims);
  SLUICE_OF_ONEDNN(dnnl_graph_logical_tensor_get_mem_size);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_is_supported);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_op_num);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_ops);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_input_ports_num);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_input_ports);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_output_ports_num);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_get_output_ports);
  SLUICE_OF_ONEDNN(dnnl_graph_partition_compile);
  SLUICE_OF_ONEDNN(dnnl_graph_compiled_partition_create);
  SLUICE_OF_ONEDNN(dnnl_graph_compiled_partition_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_compiled_partition_execute);
  SLUICE_OF_ONEDNN(dnnl_graph_compiled_partition_query_logical_tensor);
  SLUICE_OF_ONEDNN(dnnl_graph_tensor_create);
  SLUICE_OF_ONEDNN(dnnl_graph_tensor_destroy);
  SLUICE_OF_ONEDNN(dnnl_graph_tensor_set_data_handle);
  SLUICE_OF_ONEDNN(dnnl_graph_set_constant_tensor_cache);
  SLUICE_OF_ONEDNN(dnnl_graph_set_compiled_partition_cache_capacity);
#undef SLUICE_OF_ONEDNN

  dnnl_engine_t engine() const { return engine_; }

 private:
  Library() {
    check(dnnl_engine_create(&engine_, dnnl_cpu, 0), "an engine");
    // Weights are reordered once. Equal partitions do not share what is compiled, since they would share the weights,
    // too.
    check(dnnl_graph_set_constant_tensor_cache(1), "a cache of constants");
    check(dnnl_graph_set_compiled_partition_cache_capacity(0), "a cache of partitions");
  }

 public:
  static void check(dnnl_status_t status, const std::string& what) {
    if (status == dnnl_success) return;
    const char* const why = status == dnnl_out_of_memory       ? "no memory"
                            : status == dnnl_invalid_arguments ? "invalid arguments"
                            : status == dnnl_unimplemented     ? "unimplemented"
                                                               : nullptr;
    throw std::runtime_error("oneDNN: " + what + ": " + (why != nullptr ? why : "status " + std::to_string(status)));
  }

 private:
  dnnl_engine_t engine_ = nullptr;
};

// An object of the library, closed by one of its functions.
template <class Handle>
struct Closer {
  dnnl_status_t (*close)(Handle) = nullptr;
  void operator()(Handle handle) const { close(handle); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Closer<Handle>>;
template <class Handle>
Owned<Handle> owned(Handle handle, dnnl_status_t (*close)(Handle)) {
  return {handle, Closer<Handle>{close}};
}

}  // namespace onednn_graph
