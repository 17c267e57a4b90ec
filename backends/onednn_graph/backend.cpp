// The foreign backend "onednn_graph": clusters as graphs of oneDNN, whose partitions are compiled whole. Between two of
// them values lie as oneDNN wants, in memory that a step takes for all of them. Weights that do not change are
// constants, which oneDNN reorders in the first step.
#include <omp.h>

#include <algorithm>
#include <cstdlib>

#include "backends/onednn_graph/drawing.h"

namespace {

using namespace onednn_graph;
using Tensor = Owned<dnnl_graph_tensor_t>;
using Logical = dnnl_graph_logical_tensor_t;

constexpr size_t kAlignment = 64;

// oneDNN takes as many threads as OpenMP says, where it compiles and where it runs.
class Threads {
 public:
  explicit Threads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(std::max(threads, 1)); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_;
};

struct Partition {
  Owned<dnnl_graph_partition_t> whole;
  Owned<dnnl_graph_compiled_partition_t> code = {};
  std::vector<Logical> inputs = {}, outputs = {};
};

template <class Count, class Ports>
std::vector<Logical> ports(const Partition& p, Count count, Ports get) {
  size_t number = 0;
  Library::check(count(p.whole.get(), &number), "ports");
  std::vector<Logical> made(number);
  Library::check(get(p.whole.get(), number, made.data()), "ports");
  return made;
}

// Ranges of one block of memory, each for values whose times do not meet.
class Room {
 public:
  size_t take(size_t bytes) {
    auto best = slots_.end();
    for (auto slot = slots_.begin(); slot != slots_.end(); ++slot)
      if (slot->free && slot->bytes >= bytes && slot->bytes <= 2 * bytes &&
          (best == slots_.end() || slot->bytes < best->bytes))
        best = slot;
    if (best == slots_.end()) {
      slots_.push_back({end_, (bytes + kAlignment - 1) / kAlignment * kAlignment, true});
      best = slots_.end() - 1;
      end_ += best->bytes;
    }
    best->free = false;
    return best->at;
  }
  void give(size_t at) {
    for (Slot& slot : slots_)
      if (slot.at == at) slot.free = true;
  }
  size_t bytes() const { return end_; }

 private:
  struct Slot {
    size_t at, bytes;
    bool free;
  };
  std::vector<Slot> slots_;
  size_t end_ = 0;
};

// Each run has these for itself.
struct Frame {
  adapter::Owned<void> memory;
  std::vector<std::vector<Tensor>> inputs, outputs;  // by partition
  Owned<dnnl_stream_t> stream;
};

dnnl_fpmath_mode_t precision_of(const sluice_offload_graph& graph) {
  std::map<std::string, std::string> none;
  return adapter::options(graph, {"fp32", "bf16"}, none) == "bf16" ? dnnl_fpmath_mode_bf16 : dnnl_fpmath_mode_strict;
}

class Compiled {
 public:
  explicit Compiled(const sluice_offload_graph& cluster) : threads_(cluster.threads) {
    const Threads scope(threads_);
    Drawing drawing(cluster, precision_of(cluster));
    outputs_.assign(cluster.outputs, cluster.outputs + cluster.num_outputs);
    inputs_ = cluster.num_inputs;
    for (size_t o = 0; o < outputs_.size(); ++o)
      types_.push_back(std::make_unique<adapter::Type>(*cluster.values[outputs_[o]]));
    std::vector<Partition> left;
    for (Owned<dnnl_graph_partition_t>& each : drawing.partitions()) left.push_back({std::move(each)});
    for (Partition& p : left) {
      p.inputs =
          ports(p, library_.dnnl_graph_partition_get_input_ports_num, library_.dnnl_graph_partition_get_input_ports);
      p.outputs =
          ports(p, library_.dnnl_graph_partition_get_output_ports_num, library_.dnnl_graph_partition_get_output_ports);
    }
    for (Id id = 0; id < inputs_; ++id)
      known_[id] = tensor_of(id, drawing.dims(id), dnnl_graph_layout_type_strided, drawing.is_constant(id));
    compile_in_order(left, drawing);
    place();
    frames_.give(take_frame());  // so that what cannot be made is said here
  }

  const sluice_offload_type* output_type(size_t o) const { return &types_[o]->get(); }

  void run(const void* const* inputs, void* const* outputs) {
    const Threads scope(threads_);
    std::unique_ptr<Frame> frame = take_frame();
    std::vector<const_dnnl_graph_tensor_t> in, out;
    for (size_t p = 0; p < partitions_.size(); ++p) {
      fill(frame->inputs[p], partitions_[p].inputs, inputs, outputs, in);
      fill(frame->outputs[p], partitions_[p].outputs, inputs, outputs, out);
      Library::check(library_.dnnl_graph_compiled_partition_execute(partitions_[p].code.get(), frame->stream.get(),
                                                                    in.size(), in.data(), out.size(), out.data()),
                     "a run");
    }
    Library::check(library_.dnnl_stream_wait(frame->stream.get()), "a run");
    frames_.give(std::move(frame));
  }

 private:
  bool is_output(Id id) const { return std::find(outputs_.begin(), outputs_.end(), id) != outputs_.end(); }

  // A partition is compiled when it is known how all lies that it reads.
  void compile_in_order(std::vector<Partition>& left, const Drawing& drawing) {
    while (!left.empty()) {
      const auto next = std::find_if(left.begin(), left.end(), [&](const Partition& p) {
        return std::all_of(p.inputs.begin(), p.inputs.end(), [&](const Logical& t) { return known_.count(t.id) > 0; });
      });
      if (next == left.end()) throw std::runtime_error("oneDNN: partitions in a circle");
      compile(*next, drawing);
      partitions_.push_back(std::move(*next));
      left.erase(next);
    }
    for (const Id id : outputs_)
      if (known_.count(id) == 0) throw std::runtime_error("oneDNN: an output that no partition makes");
  }

  void compile(Partition& p, const Drawing& drawing) {
    for (Logical& t : p.inputs) t = known_.at(t.id);
    std::vector<const Logical*> in, out;
    for (Logical& t : p.outputs) {
      const auto layout = is_output(t.id) ? dnnl_graph_layout_type_strided : dnnl_graph_layout_type_any;
      t = tensor_of(t.id, drawing.dims(t.id), layout, false);
      out.push_back(&t);
    }
    for (const Logical& t : p.inputs) in.push_back(&t);
    dnnl_graph_compiled_partition_t code = nullptr;
    Library::check(library_.dnnl_graph_compiled_partition_create(&code, p.whole.get()), "a partition");
    p.code = owned(code, library_.dnnl_graph_compiled_partition_destroy);
    Library::check(library_.dnnl_graph_partition_compile(p.whole.get(), code, in.size(), in.data(), out.size(),
                                                         out.data(), library_.engine()),
                   "a partition");
    for (Logical& t : p.outputs) {
      Library::check(library_.dnnl_graph_compiled_partition_query_logical_tensor(code, t.id, &t), "an output's layout");
      known_[t.id] = t;
    }
  }

  // Says where values between partitions lie.
  void place() {
    std::map<Id, size_t> last;
    for (size_t p = 0; p < partitions_.size(); ++p)
      for (const Logical& t : partitions_[p].inputs) last[t.id] = p;
    Room room;
    for (size_t p = 0; p < partitions_.size(); ++p) {
      for (const Logical& t : partitions_[p].outputs) {
        if (is_output(t.id)) continue;
        size_t bytes = 0;
        Library::check(library_.dnnl_graph_logical_tensor_get_mem_size(&t, &bytes), "a value's size");
        places_[t.id] = room.take(bytes);
      }
      for (const std::vector<Logical>* ports : {&partitions_[p].inputs, &partitions_[p].outputs})
        for (const Logical& t : *ports)
          if (places_.count(t.id) > 0 && (last.count(t.id) == 0 || last[t.id] == p)) room.give(places_[t.id]);
    }
    bytes_ = std::max(room.bytes(), kAlignment);
  }

  std::unique_ptr<Frame> take_frame() {
    return frames_.take([this] { return new_frame(); });
  }
  std::unique_ptr<Frame> new_frame() const {
    auto frame = std::make_unique<Frame>();
    frame->memory = owned(std::aligned_alloc(kAlignment, bytes_), std::free);
    if (frame->memory == nullptr) throw std::runtime_error("no memory for " + std::to_string(bytes_) + " bytes");
    dnnl_stream_t stream = nullptr;
    Library::check(library_.dnnl_stream_create(&stream, library_.engine(), dnnl_stream_default_flags), "a stream");
    frame->stream = owned(stream, library_.dnnl_stream_destroy);
    for (const Partition& p : partitions_) {
      frame->inputs.push_back(tensors(p.inputs, *frame));
      frame->outputs.push_back(tensors(p.outputs, *frame));
    }
    return frame;
  }

  std::vector<Tensor> tensors(const std::vector<Logical>& ports, const Frame& frame) const {
    std::vector<Tensor> made;
    for (const Logical& t : ports) {
      const auto place = places_.find(t.id);
      void* const at = place == places_.end() ? frame.memory.get()  // run() says where it lies
                                              : static_cast<char*>(frame.memory.get()) + place->second;
      dnnl_graph_tensor_t tensor = nullptr;
      Library::check(library_.dnnl_graph_tensor_create(&tensor, &t, library_.engine(), at), "a tensor");
      made.push_back(owned(tensor, library_.dnnl_graph_tensor_destroy));
    }
    return made;
  }

  // The tensors as oneDNN takes them, with the addresses of the cluster's inputs and outputs.
  void fill(const std::vector<Tensor>& tensors, const std::vector<Logical>& ports, const void* const* inputs,
            void* const* outputs, std::vector<const_dnnl_graph_tensor_t>& to) const {
    to.clear();
    for (size_t i = 0; i < ports.size(); ++i) {
      const Id id = ports[i].id;
      to.push_back(tensors[i].get());
      void* at = nullptr;
      if (id < inputs_)
        at = const_cast<void*>(inputs[id]);
      else if (const auto o = std::find(outputs_.begin(), outputs_.end(), id); o != outputs_.end())
        at = outputs[o - outputs_.begin()];
      if (at != nullptr) Library::check(library_.dnnl_graph_tensor_set_data_handle(tensors[i].get(), at), "an address");
    }
  }

  const Library& library_ = Library::instance();
  const int threads_;
  size_t inputs_ = 0;
  std::vector<Id> outputs_;
  std::vector<std::unique_ptr<adapter::Type>> types_;
  std::vector<Partition> partitions_;  // in an order in which they can run
  std::map<Id, Logical> known_;
  std::map<Id, size_t> places_;  // of values between partitions, in a frame's memory
  size_t bytes_ = 0;
  adapter::Spares<std::unique_ptr<Frame>> frames_;  // go before the partitions
};

// The node in words: nodes with the same words have the same answer.
std::string words_of(const sluice_offload_graph& one) {
  const sluice_offload_node& node = *one.nodes[0];
  std::string words = node.op;
  for (size_t a = 0; a < node.num_attributes; ++a)
    words += std::string(" ") + node.attributes[a]->name + "=" + node.attributes[a]->text;
  for (size_t v = 0; v < one.num_values; ++v) {
    words += std::string(" ") + one.values[v]->dtype;
    for (size_t d = 0; d < one.values[v]->rank; ++d) words += "," + std::to_string(one.values[v]->shape[d]);
  }
  for (size_t i = 0; i < node.num_inputs; ++i) words += " i" + std::to_string(node.inputs[i]);
  for (size_t o = 0; o < one.num_outputs; ++o) words += " o" + std::to_string(one.outputs[o]);
  return words;
}

const char* supports(const sluice_offload_graph* one) {
  return adapter::Backend<Compiled>::supports(*one, words_of(*one));
}

}  // namespace

extern "C" const sluice_offload_backend* sluice_offload(void) {
  return adapter::Backend<Compiled>::of("onednn_graph", "1", SLUICE_OFFLOAD_CONSTANTS, supports);
}
