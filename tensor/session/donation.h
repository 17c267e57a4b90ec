#pragma once
// Inputs of a call whose memory it hands over to the step, for good.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/session.h"
#include "tensor/tensor.h"

namespace sluice {

// Takes the donated arguments of one call; everything it has taken goes back unless keep() is called: a call that fails
// has taken nothing.
class Donations {
 public:
  explicit Donations(const std::string& graph) : graph_(graph) {}  // REQUIRES: it outlives this
  ~Donations();
  Donations(const Donations&) = delete;
  Donations& operator=(const Donations&) = delete;

  // An input that is data[`index`] of take(). Throws kValue naming why it cannot be donated, kRuntime where it has been
  // already. Waits for the step that makes it.
  void add(size_t index, const std::string& name, const Tensor& input);
  // Throws kValue where an input that is donated has the memory of another one of the call's. REQUIRES: all that are
  // donated have been added.
  void check_apart(std::span<const Tensor> inputs) const;
  // From now on the tensors, and all that share their memory, have none. Throws kRuntime where another call was faster.
  void take(std::span<InputTensor> data);
  void keep() { donations_.clear(); }

 private:
  struct Donation {
    size_t index = 0;
    std::string name;
    TensorType type;
    std::shared_ptr<Storage> from, given;
  };
  const std::string& graph_;
  std::vector<Donation> donations_;
};

}  // namespace sluice
