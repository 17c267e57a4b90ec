#include "base/key.h"

namespace sluice {
namespace {

struct Writer {
  Key& key;
  void operator()(NoAttr) const {}
  template <class T>
  void operator()(const std::vector<T>& list) const {
    key.add(list.size());
    for (const auto& item : list) key.add(static_cast<const T&>(item));
  }
  void operator()(const AttrGraph& graph) const { key.add(attr_str(graph)); }
  template <class T>
  void operator()(const T& value) const {
    key.add(value);
  }
};

}  // namespace

Key& Key::add(const Attr& attr) {
  add(attr.index());
  std::visit(Writer{*this}, attr);
  return *this;
}

}  // namespace sluice
