#pragma once
// The node of the machine (NUMA) on which memory of the host lies.

namespace sluice::cuda {

// The node next to a device, as its driver says; -1: the machine has one alone, or the driver does not say.
inline constexpr int kNoNode = -1;

// The system's calls that say on which nodes memory of the calling thread lies: get_mempolicy(2) and set_mempolicy(2),
// whose masks have `bits` bits. True if they did it.
struct NodeCalls {
  bool (*get)(int* mode, unsigned long* nodes, unsigned long bits) = nullptr;
  bool (*set)(int mode, const unsigned long* nodes, unsigned long bits) = nullptr;
};
// Those of another machine take the place of the system's, for tests; null gives these back.
void use_node_calls(const NodeCalls* calls);

// Memory that this thread takes and touches within a scope lies on a node, as far as that has room. Where the system
// refuses, as in containers that may not ask, memory lies where it would without. For kNoNode nothing is asked.
class NearNode {
 public:
  explicit NearNode(int node);
  ~NearNode();
  NearNode(const NearNode&) = delete;
  NearNode& operator=(const NearNode&) = delete;

 private:
  static constexpr unsigned long kNodes = 1024;
  static constexpr unsigned long kBits = 8 * sizeof(unsigned long);

  const NodeCalls* calls_ = nullptr;  // null where nothing was changed
  int mode_ = 0;                      // of the thread before
  unsigned long nodes_[kNodes / kBits] = {};
};

}  // namespace sluice::cuda
