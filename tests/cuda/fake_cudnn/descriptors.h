#pragma once
// Descriptors as maps of attributes, and the rules that they are held to.
#include <cudnn_graph.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace fake_cudnn {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<const Descriptor>;

struct Attribute {
  std::vector<std::byte> bytes;
  std::vector<DescriptorPtr> descriptors;
  int64_t count = 0;
};

// The properties of an engine. `right`: it computes what the graph says.
struct Engine {
  int64_t index = 0;
  std::vector<cudnnBackendNumericalNote_t> notes;
  int64_t workspace_bytes = 0;
  bool plannable = true, right = true, tf32 = false;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalised = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes = {};
  Engine engine = {};             // of engines and their configs
  DescriptorPtr graph = nullptr;  // of configs

  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> all(static_cast<size_t>(found->second.count));
    std::memcpy(all.data(), found->second.bytes.data(), found->second.bytes.size());
    return all;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    T one{};
    if (const auto found = attributes.find(name); found != attributes.end())
      std::memcpy(&one, found->second.bytes.data(), sizeof(T));
    return one;
  }
  const Descriptor& at(cudnnBackendAttributeName_t name) const { return *attributes.at(name).descriptors.at(0); }
};

// The object behind an API's descriptor: the library holds on to what others are made of.
struct Handle {
  std::shared_ptr<Descriptor> descriptor;
};
inline Handle& handle_of(cudnnBackendDescriptor_t descriptor) { return *static_cast<Handle*>(descriptor); }

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values);
cudnnStatus_t finalise(Descriptor& descriptor);

// The three operands of a convolution in their roles, and whether it is one.
struct Convolution {
  explicit Convolution(const Descriptor& operation);
  const Descriptor *x = nullptr, *w = nullptr, *y = nullptr, *how = nullptr;
  const Descriptor* result = nullptr;  // of the three
  bool is = false;
};

// Tensors of attention in their roles, and which way it goes.
struct Attention {
  explicit Attention(const Descriptor& operation);
  const Descriptor *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *stats = nullptr, *scale = nullptr;
  const Descriptor *d_o = nullptr, *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;  // of its backward pass
  const Descriptor* on_scores = nullptr;                                            // a graph, or null
  int64_t scores_in = 0, scores_out = 0;                                            // its tensors
  bool is = false, backward = false;
};

inline std::vector<int64_t> sizes_of(const Descriptor& tensor) {
  return tensor.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
}
size_t size_of(cudnnDataType_t type);  // in bytes; 0: not known here

}  // namespace fake_cudnn
