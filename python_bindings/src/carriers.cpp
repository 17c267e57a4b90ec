// Carriers of messages that are written in Python, for sluice.distributed.register_carrier().
#include <atomic>
#include <chrono>
#include <mutex>

#include "bindings.h"
#include "gil.h"
#include "streams/collective/carrier.h"

namespace sluice::python {
namespace {

// Calls an object of Python's. Its errors are Sluice's, and say which method has raised them.
class PyCarrier final : public collective::Carrier {
 public:
  PyCarrier(std::string name, nb::object object)
      : name_(std::move(name)), object_(shared_with_gil(std::move(object))) {}

  void send(int to, uint64_t key, std::vector<std::byte> message) override {
    call("send", [&] {
      (void)object_->attr("send")(to, key, nb::bytes(reinterpret_cast<const char*>(message.data()), message.size()));
    });
  }
  std::vector<std::byte> receive(int from, uint64_t key) override {
    std::vector<std::byte> message;
    call("receive", [&] {
      const nb::object got = object_->attr("receive")(from, key);
      SLUICE_CHECK_KIND(kType, nb::isinstance<nb::bytes>(got), "returned {}; must be bytes",
                        nb::type_name(got.type()).c_str());
      const auto bytes = nb::cast<nb::bytes>(got);
      const auto* const data = reinterpret_cast<const std::byte*>(bytes.c_str());
      message.assign(data, data + bytes.size());
    });
    return message;
  }
  void fail(const std::string& text) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_.ok()) return;
      failure_ = Status(ErrorKind::kRuntime, text);
    }
    try {
      call("fail", [&] { (void)object_->attr("fail")(text); });
    } catch (const Error&) {  // the first failure is the one to tell
    }
  }
  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void leave(const std::string& failure) noexcept override {
    if (!failure.empty()) fail(failure);
    if (left_.exchange(true)) return;
    try {
      call("close", [&] { (void)object_->attr("close")(); });
    } catch (const Error&) {  // nobody is left to be told
    }
  }

 private:
  template <class F>
  void call(const char* method, F&& f) {
    const GilAcquire gil;
    try {
      f();
    } catch (nb::python_error& error) {
      const ErrorKind kind = error.matches(PyExc_TimeoutError) ? ErrorKind::kTimeout : ErrorKind::kRuntime;
      throw Error(kind, fmt::format("carrier '{}': {}: {}", name_, method, nb::str(error.value()).c_str()));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("carrier '{}': {}: {}", name_, method, error.what()));
    }
  }

  const std::string name_;
  const std::shared_ptr<nb::object> object_;
  mutable std::mutex mutex_;
  Status failure_;
  std::atomic<bool> left_{false};
};

}  // namespace

void bind_carriers(nb::module_& m) {
  m.def(
      "register_carrier",
      [](const std::string& name, nb::object make) {
        const auto maker = shared_with_gil(std::move(make));
        collective::register_carrier(name, [name, maker](const collective::WorldOptions& options) {
          const GilAcquire gil;
          try {
            const auto seconds = std::chrono::duration<double>(options.timeout).count();
            return std::make_shared<PyCarrier>(name, (*maker)(options.rank, options.size, seconds));
          } catch (nb::python_error& error) {
            fail(ErrorKind::kRuntime, "carrier '{}': {}", name, nb::str(error.value()).c_str());
          }
        });
      },
      nb::arg("name"), nb::arg("make"));
}

}  // namespace sluice::python
