#include "runtime/extension.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <set>

#include "kernels/kernel.h"
#include "kernels/sim/sim_kernels.h"
#include "runtime/api/api_support.h"

namespace sluice {
namespace {

class Collector final : public api::Extension {
 public:
  explicit Collector(LoadedExtension& loaded) : loaded_(loaded) {}
  void describe(const std::string& name, const std::string& version) override {
    loaded_.name = name;
    loaded_.version = version;
  }
  void add_op(std::shared_ptr<const api::Op> op) override { loaded_.ops.push_back(std::move(op)); }
  void add_kernel(const std::string& op, std::shared_ptr<const api::KernelFactory> kernel) override {
    loaded_.kernels.emplace_back(op, std::move(kernel));
  }

 private:
  LoadedExtension& loaded_;
};

bool is_name(const std::string& text) {
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

void check(const LoadedExtension& loaded, const std::string& where) {
  SLUICE_CHECK(is_name(loaded.name) && !loaded.version.empty(),
               "{}: describes itself as '{}' version '{}'; both must be given, the name in letters, digits and '_'",
               where, loaded.name, loaded.version);
  std::set<std::string> names;
  for (const auto& op : loaded.ops) {
    SLUICE_CHECK(op != nullptr, "{}: adds a null op; it must be an object", where);
    const std::string name = op->name();
    SLUICE_CHECK(is_name(name), "{}: op '{}': not a name; must be letters, digits and '_', beginning with a letter",
                 where, name);
    SLUICE_CHECK(names.insert(name).second, "{}: op '{}': added twice; once is enough", where, name);
    SLUICE_CHECK(op->kernel() != nullptr || op->composed(),
                 "{}: op '{}': has neither a kernel nor compose(); it must have one of them", where, name);
    SLUICE_CHECK(op->num_outputs() >= 1, "{}: op '{}': has {} outputs; must be at least 1", where, name,
                 op->num_outputs());
    const std::vector<std::string> inputs = op->inputs();
    bool optional = false;
    for (const std::string& input : inputs) {
      const char mark = input.empty() ? '\0' : input.back();
      const bool marked = mark == '?' || mark == '*';
      SLUICE_CHECK(is_name(input.substr(0, input.size() - marked)) && (mark != '*' || inputs.size() == 1) &&
                       (!optional || mark == '?'),
                   "{}: op '{}': input '{}': must be a name, 'name?' after all others, or a single 'name*'", where,
                   name, input);
      optional = mark == '?';
    }
    std::set<std::string> parameters;
    for (const api::Parameter& parameter : op->parameters()) {
      SLUICE_CHECK(is_name(parameter.name) && parameters.insert(parameter.name).second,
                   "{}: op '{}': parameter '{}': must be a name, and each its own", where, name, parameter.name);
      SLUICE_CHECK(parameter.default_value.index() != 0,
                   "{}: op '{}': parameter '{}': has no default; give one, which decides its type", where, name,
                   parameter.name);
    }
  }
  for (const auto& [op, kernel] : loaded.kernels)
    SLUICE_CHECK(kernel != nullptr, "{}: adds a null kernel for '{}'; it must be an object", where, op);
}

std::vector<api::OperandSpec> specs_of(const std::vector<TensorSpec>& specs, size_t required) {
  std::vector<api::OperandSpec> result;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    result.push_back({static_cast<api::DType>(spec.dtype), spec.shape.vec(), spec.strides.vec(),
                      i < required || spec.shape.rank() > 0});
  }
  return result;
}

class ExtensionKernel final : public PreparedKernel {
 public:
  ExtensionKernel(std::unique_ptr<api::Kernel> kernel, std::string op) : kernel_(std::move(kernel)), op_(op) {
    workspace_bytes_ = call_extension(op_, [&] { return kernel_->workspace_bytes(); });
  }
  void run(const KernelArgs& args) const override {
    call_extension(op_, [&] { kernel_->run({args.inputs, args.outputs, args.workspace}); });
  }

 private:
  const std::unique_ptr<api::Kernel> kernel_;
  const std::string op_;
};

// `required`: how many of the op's inputs are not optional. `former`: the kernel whose place it takes, or null.
KernelDef kernel_def(const std::string& op, std::shared_ptr<const api::KernelFactory> factory, size_t required,
                     const KernelDef* former) {
  KernelDef def;
  def.op = op;
  if (factory->any_strides()) {
    def.layouts = [](const plan::KernelQuery& query) {
      return plan::LayoutPreference{std::vector(query.inputs.size(), plan::Layout::kAny),
                                    std::vector(query.outputs.size(), plan::Layout::kAny)};
    };
  }
  def.prepare = [factory = std::move(factory), required, former = former == nullptr ? nullptr : former->prepare](
                    const plan::KernelQuery& query, const PrepareContext& context) -> std::unique_ptr<PreparedKernel> {
    api::Attributes::Items items;
    for (const auto& [name, value] : query.attrs) items.emplace_back(name, to_api(value));
    const api::KernelRequest request{query.op, specs_of(query.inputs, required), specs_of(query.outputs, SIZE_MAX),
                                     api::Attributes(std::move(items)), context.threads};
    auto kernel = call_extension(query.op, [&] { return factory->prepare(request); });
    if (kernel == nullptr && former) return former(query, context);
    SLUICE_CHECK_KIND(kUnsupported, kernel != nullptr, "{}: prepare() gave no kernel; it must give one, or throw",
                      query.op);
    return std::make_unique<ExtensionKernel>(std::move(kernel), query.op);
  };
  return def;
}

size_t required_inputs(const api::Op& op) {
  const std::vector<std::string> inputs = op.inputs();
  if (inputs.size() == 1 && inputs[0].back() == '*') return SIZE_MAX;
  return std::count_if(inputs.begin(), inputs.end(), [](const std::string& i) { return i.back() != '?'; });
}

}  // namespace

std::shared_ptr<const LoadedExtension> open_extension(const std::string& path) {
  const std::string where = fmt::format("extension '{}'", path);
  SLUICE_CHECK_KIND(kIo, !path.empty(), "{}: no name of a file; give the library's path", where);
  // A name without a slash would be searched for in the system's folders.
  const std::string file = std::filesystem::absolute(path).string();
  // Never unloaded: what it has made may live as long as the process.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* reason = dlerror();
    fail(ErrorKind::kIo, "{}: cannot be loaded: {}; it must be a shared library made with sluice/extension.h", where,
         reason == nullptr ? "unknown" : reason);
  }
  const auto abi = reinterpret_cast<const char* (*)()>(dlsym(library, "sluice_extension_abi"));
  const auto entry = reinterpret_cast<void (*)(api::Extension&)>(dlsym(library, "sluice_extension"));
  SLUICE_CHECK_KIND(kUnsupported, abi != nullptr && entry != nullptr,
                    "{}: has no function '{}'; it must define SLUICE_EXTENSION", where,
                    abi == nullptr ? "sluice_extension_abi" : "sluice_extension");
  const char* made_for = abi();
  SLUICE_CHECK_KIND(kUnsupported, made_for != nullptr && std::strcmp(made_for, SLUICE_EXTENSION_ABI) == 0,
                    "{}: was made for extension interface '{}'; this Sluice has '{}': build it again with its headers",
                    where, made_for == nullptr ? "" : made_for, SLUICE_EXTENSION_ABI);
  auto loaded = std::make_shared<LoadedExtension>();
  loaded->library = library;
  loaded->path = path;
  Collector collector(*loaded);
  call_extension(where, [&] {
    entry(collector);
    check(*loaded, where);
  });
  return loaded;
}

void add_extension_kernels(KernelTable& table, const LoadedExtension& extension) {
  for (const auto& op : extension.ops) {
    SLUICE_CHECK(table.find(op->name(), DeviceKind::kCpu) == nullptr,
                 "extension '{}': '{}' has a kernel on cpu already; the name of a new op must be new", extension.name,
                 op->name());
  }
  for (const auto& [op, kernel] : extension.kernels) {
    SLUICE_CHECK(table.find(op, DeviceKind::kCpu) != nullptr,
                 "extension '{}': a kernel for '{}': no built-in op of that name has one to replace; give new ops by "
                 "add_op()",
                 extension.name, op);
  }
  std::vector<KernelDef> fresh, instead;
  call_extension(extension.name, [&] {
    for (const auto& op : extension.ops)
      if (auto kernel = op->kernel())
        fresh.push_back(kernel_def(op->name(), std::move(kernel), required_inputs(*op), nullptr));
    for (const auto& [op, kernel] : extension.kernels)
      instead.push_back(kernel_def(op, kernel, SIZE_MAX, table.find(op, DeviceKind::kCpu)));
  });
  for (KernelDef& def : fresh) {
    const std::string op = def.op;
    table.add(DeviceKind::kCpu, std::move(def));
    add_sim_kernel(table, op);
  }
  for (KernelDef& def : instead) {
    const std::string op = def.op;
    table.replace(DeviceKind::kCpu, std::move(def));
    replace_sim_kernel(table, op);
  }
}

constexpr std::string_view kKey = "extension.";

std::string extension_key(const std::string& op) { return std::string(kKey) + op; }

void check_extensions(const std::string& bundle, const std::map<std::string, std::string>& meta,
                      const std::function<bool(const std::string& op)>& known) {
  for (const auto& [key, extension] : meta) {
    if (!key.starts_with(kKey)) continue;
    const std::string op = key.substr(kKey.size());
    SLUICE_CHECK_KIND(kUnsupported, known(op),
                      "bundle '{}': op '{}' is of extension '{}', which is not loaded; load its library first "
                      "(Engine::load_extension, sluice.ops.load_library)",
                      bundle, op, extension);
  }
}

api::Attribute to_api(const Attr& attr) {
  return std::visit(
      [&attr](const auto& value) -> api::Attribute {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, DType>)
          return static_cast<api::DType>(value);
        else if constexpr (std::is_same_v<T, NoAttr>)
          return std::monostate{};
        else if constexpr (std::is_constructible_v<api::Attribute, std::in_place_type_t<T>, const T&>)
          return value;
        else
          fail(ErrorKind::kUnsupported,
               "attribute {}: a {}; extensions know none, bool, int, float, str, dtype and lists of int",
               attr_str(attr), attr_kind(attr));
      },
      attr);
}

Attr from_api(const api::Attribute& attribute) {
  return std::visit(
      [](const auto& value) -> Attr {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, api::DType>)
          return api::checked_dtype(value);
        else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return NoAttr{};
        else
          return value;
      },
      attribute);
}

}  // namespace sluice
