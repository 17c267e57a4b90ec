#include "memory/storage.h"

#include <algorithm>
#include <cstring>

#include "base/files/mapped_file.h"

namespace sluice {

static std::atomic<uint64_t> numbers{1};

uint64_t Storage::next_number() { return numbers.load(std::memory_order_relaxed); }

Storage::Storage(std::shared_ptr<Allocator> allocator, uint64_t bytes, plan::Space space)
    : allocator_(std::move(allocator)),
      data_(allocator_->allocate(bytes)),
      bytes_(bytes),
      number_(numbers.fetch_add(1, std::memory_order_relaxed)),
      space_(space),
      owned_(true) {}

Storage::Storage(void* data, uint64_t bytes, std::function<void()> release, plan::Space space)
    : data_(data), bytes_(bytes), space_(space), release_(std::move(release)) {}

Storage::Storage(std::shared_ptr<const MappedFile> file, uint64_t offset, uint64_t bytes)
    : data_(file->data() + offset), bytes_(bytes), file_(std::move(file)) {}

Storage::~Storage() {
  if (allocator_ != nullptr) {
    allocator_->deallocate(data(), bytes_);
  } else if (release_) {
    release_();
  }
}

std::shared_ptr<Storage> Storage::give_away(std::string why) {
  auto given = std::make_shared<Storage>(nullptr, bytes_, nullptr, space_);
  auto reason = std::make_unique<const std::string>(std::move(why));
  {
    const MutexLock lock(mutex_);
    if (!gone_.load(std::memory_order_relaxed)) {
      given->allocator_ = std::move(allocator_);
      given->data_ = data_.exchange(nullptr);
      given->owned_ = true;
      given->number_ = number_;
      why_gone_ = std::move(reason);
      gone_.store(true, std::memory_order_release);
      return given;
    }
  }
  fail_gone();
}

void Storage::get_back(Storage& given) {
  const MutexLock lock(mutex_);
  allocator_ = std::move(given.allocator_);
  data_ = given.data_.exchange(nullptr);
  why_gone_.reset();
  gone_.store(false, std::memory_order_release);
}

void Storage::fail_gone() const {
  const MutexLock lock(mutex_);
  fail(ErrorKind::kRuntime, "{}", why_gone_ == nullptr ? "storage: its memory was given away" : *why_gone_);
}

bool Storage::has_users() {
  const MutexLock lock(mutex_);
  std::erase_if(users_, [](const Use& use) { return use.user.expired(); });
  has_users_.store(!users_.empty(), std::memory_order_release);
  return !users_.empty();
}

Status Storage::check() const { return file_ == nullptr ? Status() : file_->check(); }

bool Storage::begins_as(const Storage& other, uint64_t bytes) const {
  if (bytes_ < bytes || other.bytes_ < bytes) return false;
  const auto offset = [](const Storage& s) { return static_cast<const std::byte*>(s.data()) - s.file_->data(); };
  // Then none of it need be read.
  if (file_ != nullptr && other.file_ != nullptr && file_->same_file(*other.file_) && offset(*this) == offset(other))
    return true;
  return std::memcmp(data(), other.data(), bytes) == 0;
}

void Storage::attach(std::weak_ptr<StorageUser> user, bool writes) {
  const std::shared_ptr<StorageUser> alive = user.lock();
  if (alive == nullptr) return;
  const MutexLock lock(mutex_);
  const auto known = std::find_if(users_.begin(), users_.end(),
                                  [&](const Use& use) { return use.key == alive.get() && !use.user.expired(); });
  if (known != users_.end()) {
    known->writes = known->writes || writes;
    return;
  }
  users_.push_back({std::move(user), alive.get(), writes});
  has_users_.store(true, std::memory_order_release);
}

void Storage::detach(const StorageUser* user) {
  const MutexLock lock(mutex_);
  std::erase_if(users_, [&](const Use& use) { return use.key == user || use.user.expired(); });
  has_users_.store(!users_.empty(), std::memory_order_release);
}

// Users are waited for, and let go, outside the lock: they may detach meanwhile, or end because we held them last.
void Storage::wait_users(const StorageUser* self, bool for_read) {
  std::vector<std::shared_ptr<StorageUser>> waited_for;
  {
    const MutexLock lock(mutex_);
    std::erase_if(users_, [](const Use& use) { return use.user.expired(); });
    has_users_.store(!users_.empty(), std::memory_order_release);
    for (const Use& use : users_) {
      if (use.key == self || (for_read && !use.writes)) continue;
      if (auto user = use.user.lock()) waited_for.push_back(std::move(user));
    }
  }
  for (const auto& user : waited_for) {
    user->wait_idle(for_read);
    user->check(*this);
  }
}

}  // namespace sluice
