#include "cuda/fake_driver/nodes.h"

#include <linux/mempolicy.h>

#include <bit>
#include <cerrno>

#include "cuda/fake_driver/machine.h"

namespace fake_cuda {
namespace {

constexpr unsigned long kBits = 8 * sizeof(unsigned long);

// A thread's wish, as the system keeps it. Nodes beyond the first word are none that tests have.
struct Policy {
  int mode = MPOL_DEFAULT;
  unsigned long nodes = 0;
};
thread_local Policy policy;

bool refuses() {
  Machine& m = Machine::get();
  const Machine::Lock lock(m.mutex);
  return m.nodes.empty() || m.refuses_policies;
}

}  // namespace

CUresult node_of_device(int device, int* node) {
  Machine& m = Machine::get();
  const Machine::Lock lock(m.mutex);
  if (m.nodes.empty()) return CUDA_ERROR_INVALID_VALUE;  // as a driver that does not know the attribute
  const auto at = static_cast<size_t>(device);
  *node = at < m.nodes.size() ? m.nodes[at] : -1;
  return CUDA_SUCCESS;
}

int preferred_node() { return policy.mode == MPOL_PREFERRED ? std::countr_zero(policy.nodes) : 0; }

void set_nodes(const std::vector<int>& nodes) {
  Machine& m = Machine::get();
  const Machine::Lock lock(m.mutex);
  m.nodes = nodes;
}

bool get_policy(int* mode, unsigned long* nodes, unsigned long bits) {
  errno = EPERM;
  if (refuses()) return false;
  *mode = policy.mode;
  for (unsigned long i = 0; i < bits / kBits; ++i) nodes[i] = i == 0 ? policy.nodes : 0;
  return true;
}

bool set_policy(int mode, const unsigned long* nodes, unsigned long bits) {
  errno = EPERM;
  if (refuses()) return false;
  errno = EINVAL;
  const unsigned long wanted = nodes == nullptr || bits == 0 ? 0 : nodes[0];
  if ((mode == MPOL_DEFAULT) != (wanted == 0)) return false;
  policy = {mode, wanted};
  return true;
}

void refuse_policies(bool refuse) {
  Machine& m = Machine::get();
  const Machine::Lock lock(m.mutex);
  m.refuses_policies = refuse;
}

int node_of(const void* pinned) {
  Machine& m = Machine::get();
  const Machine::Lock lock(m.mutex);
  const auto found = m.pinned_node.find(pinned);
  return found == m.pinned_node.end() ? -1 : found->second;
}

}  // namespace fake_cuda
