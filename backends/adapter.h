#pragma once
// Adapters share this: loading a library when it is used, texts as sluice/offload.h wants them, questions that were
// answered before.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/offload.h"

namespace adapter {

// Texts that functions return stay valid until the next call on the thread.
inline const char* kept(std::string text) {
  static thread_local std::string last;
  last = std::move(text);
  return last.c_str();
}

// Turns what `run` throws into the text that a function of a backend returns.
template <class Run>
const char* guarded(Run run) {
  try {
    run();
    return nullptr;
  } catch (const std::exception& error) {
    return kept(error.what());
  }
}

// A library that has been loaded.
struct Library {
  void* handle = nullptr;
  std::string name;
  // Throws where it has none; `what` it should be.
  void* symbol(const char* symbol, const char* what) const {
    void* const found = dlsym(handle, symbol);
    if (found == nullptr) throw std::runtime_error(name + ": no function " + symbol + "(); it is no " + what);
    return found;
  }
};

// That which the variable names, or else the first of `names` that the system finds, or that lies where this adapter
// was built to look. `flags`: of dlopen(), more than RTLD_NOW.
inline Library library(const char* variable, std::vector<std::string> names, const std::string& install,
                       int flags = RTLD_LOCAL) {
  const char* const named = std::getenv(variable);
  if (named != nullptr && *named != '\0') names = {named};
  for (const std::string& name : names)
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | flags)) return {handle, name};
  throw std::runtime_error(names[0] + " cannot be loaded; " + install + " by " + variable);
}

// The contents of an input that stay as they are, or null. A program that is older than this adapter knows none.
inline const void* constant(const sluice_offload_graph& graph, size_t input) {
  const bool known = graph.size >= offsetof(sluice_offload_graph, constants) + sizeof graph.constants;
  return known && graph.constants != nullptr ? graph.constants[input] : nullptr;
}

// Nodes of a net repeat, so what a library has said of one is kept.
class Answers {
 public:
  template <class Ask>
  const char* of(const std::string& question, Ask ask) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = answers_.find(question);
    if (found != answers_.end()) return kept(found->second);
    const char* const why = guarded(ask);
    return kept(answers_[question] = why == nullptr ? "" : why);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> answers_;
};

// The value of the option `precision`. Throws for one that is not among `known`, and for any other option that is not
// among `others`, whose values are put there.
inline std::string options(const sluice_offload_graph& graph, const std::vector<std::string>& precisions,
                           std::map<std::string, std::string>& others) {
  std::string precision = "fp32", known;
  for (const std::string& each : precisions) known += (known.empty() ? "precision=" : " or ") + each;
  for (const auto& [name, usual] : others) known = name + ", " + known;
  for (size_t i = 0; i < graph.num_options; ++i) {
    const std::string name = graph.options[i]->name, value = graph.options[i]->value;
    bool fits = others.find(name) != others.end();
    if (fits) others[name] = value;
    for (const std::string& each : precisions)
      if (name == "precision" && value == each) precision = value, fits = true;
    if (!fits) throw std::runtime_error("unknown option (known are " + known + "): " + name + "=" + value);
  }
  return precision;
}

}  // namespace adapter
