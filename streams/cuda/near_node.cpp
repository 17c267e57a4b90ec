#include "streams/cuda/near_node.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace sluice::cuda {
namespace {

// The kernel counts one bit less than it is told.
constexpr NodeCalls kSystem{[](int* mode, unsigned long* nodes, unsigned long bits) {
                              return syscall(SYS_get_mempolicy, mode, nodes, bits + 1, nullptr, 0) == 0;
                            },
                            [](int mode, const unsigned long* nodes, unsigned long bits) {
                              return syscall(SYS_set_mempolicy, mode, nodes, bits + 1) == 0;
                            }};

std::atomic<const NodeCalls*> node_calls{&kSystem};

}  // namespace

void use_node_calls(const NodeCalls* calls) { node_calls = calls != nullptr ? calls : &kSystem; }

NearNode::NearNode(int node) {
  if (node < 0 || node >= static_cast<int>(kNodes)) return;
  const NodeCalls* const calls = node_calls.load();
  const auto at = static_cast<unsigned long>(node);
  unsigned long wanted[kNodes / kBits] = {};
  wanted[at / kBits] = 1ul << at % kBits;
  if (calls->get(&mode_, nodes_, kNodes) && calls->set(MPOL_PREFERRED, wanted, kNodes))
    calls_ = calls;
  else
    log(LogLevel::kInfo, LogArea::kStreams, "memory near node {}: not to be had: {}", node, std::strerror(errno));
}

NearNode::~NearNode() {
  if (calls_ != nullptr) static_cast<void>(calls_->set(mode_, nodes_, kNodes));
}

}  // namespace sluice::cuda
