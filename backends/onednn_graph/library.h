#pragma once
// oneDNN 3 with its graph interface, loaded when it is used: functions by name, with the types that its header gives
// them.
#include <oneapi/dnnl/dnnl_graph.h>

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
  const adapter::Library library_ = adapter::library("SLUICE_ONEDNN_LIBRARY", {"libdnnl.so.3"}, "oneDNN 3 with graphs",
                                                     "install oneDNN 3, or name its libdnnl.so.3", kOwnSymbols);

 public:
  // Throws std::runtime_error where it is not there.
  static const Library& instance() {
    static const Library* const library = new Library;  // compiled code may outlive statics
    return *library;
  }

  SLUICE_ADAPTED(dnnl_engine_create);
  SLUICE_ADAPTED(dnnl_stream_create);
  SLUICE_ADAPTED(dnnl_stream_wait);
  SLUICE_ADAPTED(dnnl_stream_destroy);
  SLUICE_ADAPTED(dnnl_graph_graph_create_with_fpmath_mode);
  SLUICE_ADAPTED(dnnl_graph_graph_destroy);
  SLUICE_ADAPTED(dnnl_graph_graph_finalize);
  SLUICE_ADAPTED(dnnl_graph_graph_filter);
  SLUICE_ADAPTED(dnnl_graph_graph_get_partition_num);
  SLUICE_ADAPTED(dnnl_graph_graph_get_partitions);
  SLUICE_ADAPTED(dnnl_graph_add_op);
  SLUICE_ADAPTED(dnnl_graph_op_create);
  SLUICE_ADAPTED(dnnl_graph_op_destroy);
  SLUICE_ADAPTED(dnnl_graph_op_add_input);
  SLUICE_ADAPTED(dnnl_graph_op_add_output);
  SLUICE_ADAPTED(dnnl_graph_op_set_attr_f32);
  SLUICE_ADAPTED(dnnl_graph_op_set_attr_bool);
  SLUICE_ADAPTED(dnnl_graph_op_set_attr_s64);
  SLUICE_ADAPTED(dnnl_graph_op_set_attr_str);
  SLUICE_ADAPTED(dnnl_graph_logical_tensor_init_with_dims);
  SLUICE_ADAPTED(dnnl_graph_logical_tensor_get_mem_size);
  SLUICE_ADAPTED(dnnl_graph_partition_destroy);
  SLUICE_ADAPTED(dnnl_graph_partition_is_supported);
  SLUICE_ADAPTED(dnnl_graph_partition_get_op_num);
  SLUICE_ADAPTED(dnnl_graph_partition_get_ops);
  SLUICE_ADAPTED(dnnl_graph_partition_get_input_ports_num);
  SLUICE_ADAPTED(dnnl_graph_partition_get_input_ports);
  SLUICE_ADAPTED(dnnl_graph_partition_get_output_ports_num);
  SLUICE_ADAPTED(dnnl_graph_partition_get_output_ports);
  SLUICE_ADAPTED(dnnl_graph_partition_compile);
  SLUICE_ADAPTED(dnnl_graph_compiled_partition_create);
  SLUICE_ADAPTED(dnnl_graph_compiled_partition_destroy);
  SLUICE_ADAPTED(dnnl_graph_compiled_partition_execute);
  SLUICE_ADAPTED(dnnl_graph_compiled_partition_query_logical_tensor);
  SLUICE_ADAPTED(dnnl_graph_tensor_create);
  SLUICE_ADAPTED(dnnl_graph_tensor_destroy);
  SLUICE_ADAPTED(dnnl_graph_tensor_set_data_handle);
  SLUICE_ADAPTED(dnnl_graph_set_constant_tensor_cache);
  SLUICE_ADAPTED(dnnl_graph_set_compiled_partition_cache_capacity);

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

template <class Handle>
using Owned = adapter::Owned<std::remove_pointer_t<Handle>, dnnl_status_t>;
using adapter::owned;

}  // namespace onednn_graph
