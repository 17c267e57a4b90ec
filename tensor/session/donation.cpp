#include "tensor/session/donation.h"

#include <algorithm>

namespace sluice {

Donations::~Donations() {
  for (const Donation& donation : donations_)
    if (donation.given != nullptr) donation.from->get_back(*donation.given);
}

void Donations::add(size_t index, const std::string& name, const Tensor& input) {
  const auto refuse = [&](const std::string& what, const char* remedy) {
    fail(ErrorKind::kValue, "graph '{}': argument '{}' cannot be donated: {}; {}", graph_, name, what, remedy);
  };
  auto& impl = static_cast<EagerImpl&>(*input.impl());
  if (input.requires_grad()) refuse("it requires grad, and autograd may read it later", "donate its detach()");
  if (impl.global) refuse("it is a global tensor", "donate tensors of one device");
  const std::shared_ptr<Storage>& storage = impl.storage();
  if (impl.device() != DeviceId{} || storage->space().kind != plan::SpaceKind::kHost)
    refuse("it lies on " + impl.device().str(), "donate tensors of cpu:0, where graphs take their inputs");
  if (!storage->owned()) refuse("its memory is borrowed, from NumPy, DLPack or a file", "donate its clone()");
  if (storage->held())
    refuse("its memory is shared with NumPy, DLPack or a buffer", "let go of that, or donate its clone()");
  if (storage->has_users()) refuse("a graph has it as a parameter or buffer", "donate its clone()");
  if (!input.is_contiguous() || impl.offset() != 0 || impl.spec().extent_bytes() != storage->bytes())
    refuse(fmt::format("it is a view: {} with strides {} at element {} of a storage of {} bytes", input.type().str(),
                       input.strides().str(), impl.offset(), storage->bytes()),
           "donate its clone(), or the whole");
  donations_.push_back({index, name, input.type(), storage, nullptr});
}

void Donations::check_apart(std::span<const Tensor> inputs) const {
  for (const Donation& donation : donations_) {
    const auto same = std::count_if(inputs.begin(), inputs.end(), [&](const Tensor& input) {
      return static_cast<const EagerImpl&>(*input.impl()).storage() == donation.from;
    });
    SLUICE_CHECK(same == 1,
                 "graph '{}': argument '{}' cannot be donated: {} arguments have its memory; pass the others a clone()",
                 graph_, donation.name, same);
  }
}

void Donations::take(std::span<InputTensor> data) {
  for (Donation& donation : donations_) {
    donation.given = donation.from->give_away(
        fmt::format("tensor: {} was donated to graph '{}' as argument '{}'; clone() it before the call where it is "
                    "needed afterwards",
                    donation.type.str(), graph_, donation.name));
    data[donation.index].storage = donation.given;
    data[donation.index].data = donation.given->data();
  }
}

}  // namespace sluice
