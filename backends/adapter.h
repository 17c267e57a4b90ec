#pragma once
// Adapters share this: loading a library when it is used, its objects, texts as sluice/offload.h wants them, questions
// that were answered before, and the functions of a backend.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
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
  std::string name, what;  // `what` it should be
  // Throws where it has none.
  void* symbol(const char* symbol) const {
    void* const found = dlsym(handle, symbol);
    if (found == nullptr) throw std::runtime_error(name + ": no function " + symbol + "(); it is no " + what);
    return found;
  }
};

// That which the variable names, or else the first of `names` that the system finds, or that lies where this adapter
// was built to look. `flags`: of dlopen(), more than RTLD_NOW.
inline Library library(const char* variable, std::vector<std::string> names, const char* what,
                       const std::string& install, int flags = RTLD_LOCAL) {
  const char* const named = std::getenv(variable);
  if (named != nullptr && *named != '\0') names = {named};
  for (const std::string& name : names)
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | flags)) return {handle, name, what};
  throw std::runtime_error(names[0] + " cannot be loaded; " + install + " by " + variable);
}

// A function of `library_`, under its own name and with the type of its header.
#define SLUICE_ADAPTED(name) decltype(&::name) const name = reinterpret_cast<decltype(&::name)>(library_.symbol(#name))

// An object of a library, closed by one of its functions.
template <class Object, class Result = void>
struct Closer {
  Result (*close)(Object*) = nullptr;
  void operator()(Object* object) const { close(object); }
};
template <class Object, class Result = void>
using Owned = std::unique_ptr<Object, Closer<Object, Result>>;
template <class Object, class Result>
Owned<Object, Result> owned(Object* object, Result (*close)(Object*)) {
  return {object, Closer<Object, Result>{close}};
}

// Objects that a run needs for itself: it takes one, and gives it back for another run. Thread-safe.
template <class Object>
class Spares {
 public:
  template <class Make>
  Object take(Make make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!spares_.empty()) {
        Object object = std::move(spares_.back());
        spares_.pop_back();
        return object;
      }
    }
    return make();
  }
  void give(Object object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    spares_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;
  std::vector<Object> spares_;
};

// A type that is there when the cluster is gone.
class Type {
 public:
  explicit Type(const sluice_offload_type& from) : Type(from, {from.shape, from.shape + from.rank}) {}
  Type(const sluice_offload_type& from, std::vector<int64_t> shape)
      : dtype_(from.dtype),
        shape_(std::move(shape)),
        type_{sizeof type_, dtype_.c_str(), from.item_bytes, shape_.data(), shape_.size()} {}
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;
  const std::string& dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const sluice_offload_type& get() const { return type_; }

 private:
  const std::string dtype_;
  const std::vector<int64_t> shape_;
  const sluice_offload_type type_;
};

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

// The functions of a backend. Code is a compiled cluster: made of a cluster, with output_type(output) and run(inputs,
// outputs); its constructor and run() throw what goes wrong.
template <class Code>
class Backend {
 public:
  // Returns the table that sluice_offload() gives.
  static const sluice_offload_backend* of(const char* name, const char* version, uint32_t flags,
                                          decltype(sluice_offload_backend::supports) supports) {
    static const sluice_offload_backend backend = {SLUICE_OFFLOAD_ABI, sizeof backend, name,        version, flags,
                                                   supports,           compile,        output_type, run,     destroy};
    return &backend;
  }

  // Compiling it says whether the library has code for it. Nodes with the same `words` have the same answer.
  static const char* supports(const sluice_offload_graph& one, const std::string& words) {
    static Answers answers;
    return answers.of(words, [&] {
      sluice_offload_graph plain = one;  // options are for compile
      plain.num_options = 0;
      Code{plain};
    });
  }
  // The same for a library that reads models of ONNX.
  static const char* supports_model(const sluice_offload_graph* one) {
    if (one->onnx == nullptr) return "no model of ONNX";
    return supports(*one, {static_cast<const char*>(one->onnx), one->onnx_bytes});
  }

 private:
  static const char* compile(const sluice_offload_graph* cluster, void** handle) {
    return guarded([&] { *handle = new Code(*cluster); });
  }
  static const sluice_offload_type* output_type(void* handle, size_t output) {
    return static_cast<const Code*>(handle)->output_type(output);
  }
  static const char* run(void* handle, const void* const* inputs, void* const* outputs) {
    return guarded([&] { static_cast<Code*>(handle)->run(inputs, outputs); });
  }
  static void destroy(void* handle) { delete static_cast<Code*>(handle); }
};

}  // namespace adapter
