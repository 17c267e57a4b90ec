#pragma once
// Extensions: ops and kernels from shared libraries (include/sluice/extension.h). The runtime takes their kernels; what
// their ops are is kept for those who know graphs.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/attr.h"
#include "base/error.h"
#include "include/sluice/extension.h"

namespace sluice {

class KernelTable;

struct LoadedExtension {
  const void* library = nullptr;  // equal for equal libraries
  std::string path;               // as given
  std::string name, version;
  std::vector<std::shared_ptr<const api::Op>> ops;
  std::vector<std::pair<std::string, std::shared_ptr<const api::KernelFactory>>> kernels;  // for built-in ops
  std::string str() const { return name + " " + version; }
};

// Loads the library and asks it what it has. The same library opened twice says the same. Throws kIo when it cannot be
// loaded, kUnsupported when it is no extension or one for another ABI, kValue when what it offers is wrong.
std::shared_ptr<const LoadedExtension> open_extension(const std::string& path);
// All of its kernels or none. Throws kValue for a new op with a name that is taken, and for a kernel of no built-in op.
void add_extension_kernels(KernelTable& table, const LoadedExtension& extension);

// A bundle says in meta.json which extension each of its ops comes from, so that it can be asked for.
std::string extension_key(const std::string& op);  // the key of meta.json
// Throws kUnsupported naming the extension when `known` denies an op of the bundle.
void check_extensions(const std::string& bundle, const std::map<std::string, std::string>& meta,
                      const std::function<bool(const std::string& op)>& known);

// The same attributes on either side of the border.
api::Attribute to_api(const Attr& attr);
Attr from_api(const api::Attribute& attribute);

// Calls code of an extension; whatever it throws becomes an Error that begins with `where`.
template <class F>
auto call_extension(const std::string& where, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error&) {  // of Sluice itself, beneath the extension
    throw;
  } catch (const api::Error& error) {
    throw Error(static_cast<ErrorKind>(error.kind()), where + ": " + error.what());
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kRuntime, where + ": " + error.what());
  } catch (...) {
    throw Error(ErrorKind::kRuntime, where + ": threw something that is no std::exception; derive from that");
  }
}

}  // namespace sluice
