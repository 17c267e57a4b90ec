#pragma once
// Inputs of a part of a call, and the results of all of them.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "plan/family/family.h"
#include "runtime/session/session.h"

namespace sluice {

// Ports as long as calls may be; where no dim says, as in the member of `known`.
std::vector<PortInfo> at_most(const plan::Family& family, std::vector<PortInfo> known,
                              const std::vector<plan::FamilyPort>& ports);

// The rows of a part, filled up with zeros to what its member takes. An input that need not be filled up is not copied,
// and it is handed over where no other part of the call may read it (`alone`).
class PartInputs {
 public:
  PartInputs(const plan::Family& family, const plan::Part& part, std::span<const InputTensor> inputs, bool alone);
  std::span<const InputTensor> tensors() const { return tensors_; }

 private:
  std::vector<std::vector<std::byte>> filled_;
  std::vector<InputTensor> tensors_;
};

// The results of a call from those of its parts, in memory of their own unless they are those of one part, as it is.
std::vector<OutputTensor> join_parts(const plan::Family& family, const std::vector<plan::Part>& parts,
                                     const std::vector<std::vector<OutputTensor>>& results);

}  // namespace sluice
