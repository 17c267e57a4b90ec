#pragma once
// How a logical tensor lies on a mesh of devices: one Sbp for each axis of the mesh. An axis cuts what the axes before
// it have left, so two splits of one dimension are nested.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sbp.h"

namespace sluice {

class NdSbp {
 public:
  NdSbp() : axes_(1) {}
  NdSbp(const Sbp& sbp) : axes_{sbp} {}  // implicit: on a row of devices
  explicit NdSbp(std::vector<Sbp> axes) : axes_(std::move(axes)) {}
  static NdSbp filled(int axes, const Sbp& sbp) { return NdSbp(std::vector<Sbp>(static_cast<size_t>(axes), sbp)); }

  int size() const { return static_cast<int>(axes_.size()); }
  const Sbp& operator[](int axis) const { return axes_[static_cast<size_t>(axis)]; }
  Sbp& operator[](int axis) { return axes_[static_cast<size_t>(axis)]; }
  const std::vector<Sbp>& axes() const { return axes_; }
  bool any(Sbp::Kind kind) const {
    return std::any_of(axes_.begin(), axes_.end(), [&](const Sbp& sbp) { return sbp.kind == kind; });
  }
  std::string str() const;  // "S(0)"; "S(0),B"
  bool operator==(const NdSbp&) const = default;

 private:
  std::vector<Sbp> axes_;
};

// Reads what str() prints. Throws kValue.
NdSbp parse_nd_sbp(std::string_view text);

}  // namespace sluice
