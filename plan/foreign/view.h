#pragma once
// A cluster as the C structs of include/sluice/offload.h.
#include <deque>
#include <string>
#include <vector>

#include "include/sluice/offload.h"
#include "plan/foreign/foreign.h"

namespace sluice::plan {

// The structs, and what they point to. REQUIRES: the cluster outlives it.
class ForeignView {
 public:
  // `onnx`: the model, or "".
  ForeignView(const ForeignCluster& cluster, std::string onnx);
  const sluice_offload_graph& graph() const { return graph_; }

 private:
  const sluice_offload_type* add(const TensorType& type);
  const sluice_offload_attribute* add(const std::string& name, const Attr& attr);
  void add_call(const AttrCall& call, int first);
  void add_option(const std::string& option);
  const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }

  // Deques, since what lies in them does not move when they grow.
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<int32_t>> numbers_;
  std::deque<sluice_offload_type> types_;
  std::deque<sluice_offload_attribute> attributes_;
  std::deque<std::vector<const sluice_offload_attribute*>> lists_;
  std::deque<sluice_offload_node> nodes_;
  std::deque<sluice_offload_option> options_;
  std::vector<const sluice_offload_type*> values_;
  std::vector<const sluice_offload_node*> node_list_;
  std::vector<const sluice_offload_option*> option_list_;
  std::vector<int32_t> outputs_;
  std::string onnx_;
  std::vector<const void*> constants_;
  sluice_offload_graph graph_{};
};

}  // namespace sluice::plan
