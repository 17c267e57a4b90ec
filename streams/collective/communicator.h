#pragma once
// Collectives of a group of ranks.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "streams/collective/reduce.h"

namespace sluice::collective {

// Ranks that make the same calls in the same order. Memory is the host's, contiguous; a "part" is what one rank gives
// or gets, and parts lie in the order of the group's ranks. Results of reductions are the same bits in every rank.
//
// A call returns when this rank's part in it is done. It throws "<call>: <what>" when a rank of the job failed, is
// gone, hangs or did not come in time (kTimeout); then all later calls of every group fail with it.
//
// Thread safety: one call at a time; different groups are independent.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;
  // How long a call waits for other ranks.
  virtual std::chrono::milliseconds timeout() const = 0;
  // The failure of the job, once it has failed.
  virtual Status failure() const = 0;
  // The job ends with a failure of this rank, as World::fail().
  virtual void fail(const std::string& text) noexcept = 0;

  virtual void barrier() = 0;
  virtual void all_reduce(void* data, int64_t elements, DType dtype, ReduceOp op) = 0;
  virtual void all_gather(const void* part, void* parts, uint64_t part_bytes) = 0;
  // `elements` of one part. `workspace` has the size of all parts.
  virtual void reduce_scatter(const void* parts, void* part, void* workspace, int64_t elements, DType dtype,
                              ReduceOp op) = 0;
  virtual void all_to_all(const void* parts_in, void* parts_out, uint64_t part_bytes) = 0;
  virtual void broadcast(void* data, uint64_t bytes, int root) = 0;
  // In a group of two, the data of `from` replace those of the other. Counts as a collective.
  virtual void transfer(void* data, uint64_t bytes, int from) = 0;
  // The receiving rank says beforehand where the first transfer() to come that was not granted yet will write, so that
  // its bytes may come while the rank does something else. Returns at once; false when there are enough already, or
  // nothing more can come.
  virtual bool grant(void* /*data*/, uint64_t /*bytes*/, int /*from*/) noexcept { return false; }
  virtual int granted() const { return 0; }  // transfers to come
  // Nothing will be received any more: memory that was granted is not written to from now on.
  virtual void take_back() noexcept {}
  // False: transfer(), called next with these, neither waits for the other rank nor takes long.
  virtual bool transfer_waits(uint64_t /*bytes*/, int /*from*/) const { return true; }
  // Instead of the next collective, which this rank cannot take part in: it fails in the others with `text`, as soon as
  // they want something of this rank, and nothing else does.
  virtual void miss(const std::string& text) = 0;
  // Messages from point to point are told apart by `tag` when several are in flight between the same two ranks.
  virtual void send(const void* data, uint64_t bytes, int to, uint32_t tag) = 0;
  virtual void receive(void* data, uint64_t bytes, int from, uint32_t tag) = 0;
};

}  // namespace sluice::collective
