#pragma once
// A foreign backend in the program itself, which takes the ops that a test says.
#include <map>
#include <set>
#include <string>

#include "include/sluice/offload.h"
#include "plan/foreign/foreign.h"

namespace sluice {

inline std::set<std::string>& taken_by_fake_backend() {
  static std::set<std::string> taken;
  return taken;
}
// Those of the last question.
inline std::map<std::string, std::string>& options_of_fake_backend() {
  static std::map<std::string, std::string> options;
  return options;
}

// Adds the backend "fake". It compiles nothing.
inline void add_fake_backend() {
  static const auto supports = [](const sluice_offload_graph* one) -> const char* {
    static std::string reason;
    options_of_fake_backend().clear();
    for (size_t i = 0; i < one->num_options; ++i)
      options_of_fake_backend()[one->options[i]->name] = one->options[i]->value;
    if (taken_by_fake_backend().contains(one->nodes[0]->op)) return nullptr;
    reason = "not one of";
    for (const std::string& op : taken_by_fake_backend()) reason += " " + op;
    return reason.c_str();
  };
  static const sluice_offload_backend backend = {
      SLUICE_OFFLOAD_ABI,
      sizeof(sluice_offload_backend),
      "fake",
      "1",
      0,
      supports,
      [](const sluice_offload_graph*, void**) -> const char* { return "it compiles nothing"; },
      [](void*, size_t) -> const sluice_offload_type* { return nullptr; },
      [](void*, const void* const*, void* const*) -> const char* { return "it runs nothing"; },
      [](void*) {}};
  plan::add_foreign(backend, "the test");
}

}  // namespace sluice
