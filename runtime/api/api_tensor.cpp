// Tensors of the public C++ API, in host memory or on a device, and files of them.
#include <cstring>

#include "include/sluice/sluice.hpp"
#include "runtime/api/api_support.h"
#include "runtime/bundle/safetensors.h"
#include "runtime/session/engine.h"
#include "streams/stream.h"

namespace sluice::api {
namespace {

// Holds a tensor's memory: if it is known to be a storage, that storage is handed over, not what a caller sees of it.
struct StorageHolder {
  std::shared_ptr<Storage> storage;
  void operator()(void*) { storage.reset(); }
};

// Null where Sluice does not know it: then it is a caller's, of the host.
const std::shared_ptr<Storage>* known_storage(const std::shared_ptr<void>& data) {
  const StorageHolder* const holder = std::get_deleter<StorageHolder>(data);
  return holder == nullptr || holder->storage == nullptr ? nullptr : &holder->storage;
}

}  // namespace

Tensor tensor_of(const OutputTensor& output) {
  return {static_cast<DType>(output.type.dtype), output.type.shape.vec(),
          std::shared_ptr<void>(output.storage->data(), StorageHolder{output.storage})};
}

std::shared_ptr<Storage> storage_of(const Tensor& tensor) {
  const std::shared_ptr<void>& data = tensor.shared();
  if (data == nullptr) return nullptr;
  const std::shared_ptr<Storage>* const known = known_storage(data);
  if (known != nullptr && (*known)->data() == data.get()) return *known;
  return std::make_shared<Storage>(
      data.get(), tensor.bytes(), [data] {}, space_of(tensor));
}

plan::Space space_of(const Tensor& tensor) {
  const std::shared_ptr<Storage>* const known = known_storage(tensor.shared());
  return known == nullptr ? plan::Space{} : (*known)->space();
}

std::string device_of(const plan::Space& space) {
  return space.kind == plan::SpaceKind::kDevice ? space.device.str() : DeviceId{}.str();
}

const char* dtype_name(DType dtype) {
  return guarded([&] { return sluice::dtype_name(checked_dtype(dtype)); });
}
size_t dtype_size(DType dtype) {
  return guarded([&] { return sluice::dtype_size(checked_dtype(dtype)); });
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  guarded([&] {
    const uint64_t bytes = checked_bytes(type_of(*this).shape, dtype_size(dtype));
    const auto storage = std::make_shared<Storage>(make_host_allocator(), bytes);
    std::memset(storage->data(), 0, bytes);
    data_ = std::shared_ptr<void>(storage->data(), StorageHolder{storage});
  });
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> data)
    : dtype_(dtype), shape_(std::move(shape)), data_(std::move(data)) {
  guarded([&] {
    const TensorType type = type_of(*this);
    const uint64_t bytes = checked_bytes(type.shape, dtype_size(dtype));
    SLUICE_CHECK(data_ != nullptr || bytes == 0, "tensor: no data for {}; give the address of all of it", type.str());
  });
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> data, const std::string& device)
    : Tensor(dtype, std::move(shape), std::move(data)) {
  guarded([&] {
    const DeviceId id = parse_device(device);
    SLUICE_CHECK(id.rank == 0, "tensor: device \"{}\": of another rank; must be one of this process", device);
    if (id.kind == DeviceKind::kCpu) return;
    void* const address = data_.get();
    const uint64_t size = bytes();
    const auto storage = std::make_shared<Storage>(
        address, size, [kept = std::move(data_)] {}, plan::Space{plan::SpaceKind::kDevice, id});
    data_ = std::shared_ptr<void>(address, StorageHolder{storage});
  });
}

Tensor Tensor::copy_of(DType dtype, std::vector<int64_t> shape, const void* data, size_t bytes) {
  Tensor tensor(dtype, std::move(shape));
  guarded([&] {
    SLUICE_CHECK(bytes == tensor.bytes(), "tensor: {} bytes of values; {} needs {}", bytes, tensor.str(),
                 tensor.bytes());
  });
  if (bytes > 0) std::memcpy(tensor.raw(), data, bytes);
  return tensor;
}

int64_t Tensor::size() const {
  int64_t n = 1;
  for (const int64_t dim : shape_) n *= dim;
  return data_ == nullptr ? 0 : n;
}

std::string Tensor::device() const {
  return guarded([&] { return device_of(space_of(*this)); });
}

Tensor Tensor::to(Engine& engine, const std::string& device) const {
  return guarded([&] {
    sluice::Engine& owner = inside(engine);
    const TensorType type = type_of(*this);
    const DeviceId id = parse_device(device);
    Device& target = owner.device(id);
    const plan::Space from = space_of(*this),
                      to = target.describe().host_memory ? plan::Space{} : plan::Space{plan::SpaceKind::kDevice, id};
    if (device_of(from) == device_of(to)) return *this;
    const uint64_t size = bytes();
    Tensor here = *this;
    if (from.kind == plan::SpaceKind::kDevice) {
      here = Tensor(dtype_, shape_);
      owner.device(from.device).copy_to_host(here.raw(), raw(), size);
    }
    if (to.kind != plan::SpaceKind::kDevice) return here;
    const auto storage = std::make_shared<Storage>(owner.allocator(to), size, to);
    target.copy_from_host(storage->data(), here.raw(), size);
    return tensor_of({type, storage});
  });
}

void Tensor::check_dtype(DType dtype) const {
  guarded([&] { check_on_host(*this); });
  if (dtype == dtype_) return;
  throw Error(ErrorKind::kType,
              fmt::format("tensor: {} read as {}; ask for its own element type", str(), dtype_name(dtype)));
}

std::string Tensor::str() const {
  return guarded([&] { return type_of(*this).str(); });
}
std::vector<NamedTensor> load_tensors(const std::string& path) {
  return guarded([&] {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : read_safetensors(path, make_host_allocator())) {
      tensors.push_back({name, tensor_of({{tensor.spec.dtype, tensor.spec.shape}, tensor.storage})});
    }
    return tensors;
  });
}

void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  guarded([&] {
    std::map<std::string, BundleTensor> named;
    for (const NamedTensor& t : tensors) {
      named[t.name] = {TensorSpec::contiguous(type_of_whole(t.name, t.tensor)),
                       std::make_shared<Storage>(t.tensor.raw(), t.tensor.bytes(), nullptr)};
    }
    write_safetensors(path, named);
  });
}

}  // namespace sluice::api
