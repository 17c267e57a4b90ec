#pragma once
// Arguments of a graph as its build() has them: tensors in lists and dictionaries. A session has a port for each
// tensor, whose name is the way to it: "batch.images", "x.0".
//
//   const Nested arguments = Nested::dict({{"batch", Nested::dict({{"images", images}, {"sizes", sizes}})}});
//   Nested results = unflatten(session.outputs(), session.run(flatten(session.inputs(), arguments)));
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "plan.h"
#include "tensor.h"

namespace sluice::api {

// A tensor, or a list or dictionary of such values. Copies share the memory of tensors.
class Nested {
 public:
  enum class Kind { kTensor, kList, kDict };

  Nested(Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: a tensor is one
  static Nested list(std::vector<Nested> values = {}) {
    Nested made((Tensor()));
    made.kind_ = Kind::kList;
    made.values_ = std::move(values);
    return made;
  }
  static Nested dict(std::vector<std::pair<std::string, Nested>> entries = {}) {
    Nested made = list();
    made.kind_ = Kind::kDict;
    for (auto& [name, value] : entries) made.set(name, std::move(value));
    return made;
  }

  Kind kind() const { return kind_; }
  size_t size() const { return values_.size(); }                    // of a list or dictionary
  const std::vector<std::string>& names() const { return names_; }  // of a dictionary, in its order
  const std::vector<Nested>& values() const { return values_; }     // of a list or dictionary
  // Each throws kType where this is something else; kIndex, kValue for what is not there.
  const Tensor& tensor() const {
    check(Kind::kTensor, "a tensor");
    return tensor_;
  }
  const Nested& at(size_t index) const {
    check(Kind::kList, "a list");
    if (index >= values_.size())
      throw Error(ErrorKind::kIndex, "nested: element " + std::to_string(index) + " of a list of " +
                                         std::to_string(values_.size()) + "; there is none");
    return values_[index];
  }
  const Nested& at(const std::string& name) const {
    check(Kind::kDict, "a dictionary");
    for (size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) return values_[i];
    throw Error(ErrorKind::kValue, "nested: no entry '" + name + "'; names() lists those there are");
  }
  void add(Nested value) {  // to a list
    check(Kind::kList, "a list");
    values_.push_back(std::move(value));
  }
  void set(const std::string& name, Nested value) {  // of a dictionary: a new entry, or another value for one
    check(Kind::kDict, "a dictionary");
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] != name) continue;
      values_[i] = std::move(value);
      return;
    }
    names_.push_back(name);
    values_.push_back(std::move(value));
  }

 private:
  void check(Kind kind, const char* what) const {
    if (kind_ != kind) throw Error(ErrorKind::kType, std::string("nested: it is not ") + what + "; kind() tells what");
  }

  Kind kind_ = Kind::kTensor;
  Tensor tensor_;
  std::vector<std::string> names_;
  std::vector<Nested> values_;
};

// The tensors of `arguments`, a dictionary by argument, in the order of `ports`. Throws kValue naming a port that no
// tensor is for, and a tensor that no port is for.
inline std::vector<Tensor> flatten(const std::vector<Port>& ports, const Nested& arguments) {
  std::vector<std::pair<std::string, const Nested*>> waiting = {{"", &arguments}};
  std::vector<std::pair<std::string, Tensor>> found;
  while (!waiting.empty()) {
    const auto [name, value] = waiting.back();
    waiting.pop_back();
    if (value->kind() == Nested::Kind::kTensor) found.emplace_back(name, value->tensor());
    for (size_t i = 0; i < value->size(); ++i) {
      const std::string part = value->kind() == Nested::Kind::kDict ? value->names()[i] : std::to_string(i);
      waiting.emplace_back(name.empty() ? part : name + "." + part, &value->values()[i]);
    }
  }
  std::vector<Tensor> tensors(ports.size());
  std::vector<bool> given(ports.size());
  for (auto& [name, tensor] : found) {
    size_t port = 0;
    while (port < ports.size() && ports[port].name != name) ++port;
    if (port == ports.size())
      throw Error(ErrorKind::kValue, "nested: '" + name + "' is no input; Session::inputs() lists those there are");
    tensors[port] = std::move(tensor);
    given[port] = true;
  }
  for (size_t port = 0; port < ports.size(); ++port)
    if (!given[port])
      throw Error(ErrorKind::kValue, "nested: input '" + ports[port].str() + "' is not given; give a tensor for it");
  return tensors;
}

// The reverse: a dictionary of the results, by name. If the parts of all names are 0, 1, ... it is a list.
inline Nested unflatten(const std::vector<Port>& ports, const std::vector<Tensor>& tensors) {
  struct Entry {
    std::string name;  // what is left of it
    const Tensor* tensor;
  };
  struct Build {
    static Nested of(const std::vector<Entry>& entries) {
      if (entries.size() == 1 && entries[0].name.empty()) return *entries[0].tensor;
      std::vector<std::pair<std::string, std::vector<Entry>>> groups;
      for (const Entry& entry : entries) {
        const size_t dot = entry.name.find('.');
        const std::string part = entry.name.substr(0, dot);
        const Entry rest = {dot == std::string::npos ? "" : entry.name.substr(dot + 1), entry.tensor};
        size_t g = 0;
        while (g < groups.size() && groups[g].first != part) ++g;
        if (g == groups.size()) groups.push_back({part, {}});
        groups[g].second.push_back(rest);
      }
      bool list = true;
      for (size_t g = 0; g < groups.size(); ++g) list = list && groups[g].first == std::to_string(g);
      Nested made = list ? Nested::list() : Nested::dict();
      for (const auto& [part, inside] : groups) {
        if (list) {
          made.add(of(inside));
        } else {
          made.set(part, of(inside));
        }
      }
      return made;
    }
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < ports.size() && i < tensors.size(); ++i) entries.push_back({ports[i].name, &tensors[i]});
  return Build::of(entries);
}

}  // namespace sluice::api
