#pragma once
// The storage that eager tensors, variables and results share.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "memory/allocator.h"
#include "plan/plan.h"

namespace sluice {

class MappedFile;

// Someone with asynchronous accesses to a storage in flight: a session that has it bound as a variable. REQUIRES: its
// accesses are done, or it has detached, when its last owner lets go; a user that is gone is not waited for.
class StorageUser {
 public:
  virtual ~StorageUser() = default;
  // Blocks until every access submitted so far is done; with `writes_only`, every write.
  virtual void wait_idle(bool writes_only) = 0;
  // Throws where it has not made the content that is awaited; called after that.
  virtual void check(const class Storage& /*storage*/) {}
};

// A block of memory with one owner count. Eager code calls before_read / before_write ahead of touching data(), which
// gives each variable its program order: reads wait for submitted writers, writes also for submitted readers.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> allocator, uint64_t bytes, plan::Space space = {});
  // Borrows foreign memory; `release` runs when the last owner goes.
  Storage(void* data, uint64_t bytes, std::function<void()> release, plan::Space space = {});
  // A part of a file's pages. REQUIRES: it lies in them.
  Storage(std::shared_ptr<const MappedFile> file, uint64_t offset, uint64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_.load(std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_; }
  // Storages that are made later have larger numbers; that of borrowed memory is 0.
  uint64_t number() const { return number_; }
  static uint64_t next_number();
  const plan::Space& space() const { return space_; }
  // The file whose pages it is; null of other memory.
  const std::shared_ptr<const MappedFile>& file() const { return file_; }
  // kIo where pages of its file were missing when they were read.
  Status check() const;
  // It holds the first `bytes` bytes of `other`. REQUIRES: nobody writes to either; both are of the host.
  bool begins_as(const Storage& other, uint64_t bytes) const;

  // Attaching again adds to what the user does: once a writer, it stays one until it detaches.
  void attach(std::weak_ptr<StorageUser> user, bool writes);
  void detach(const StorageUser* user);
  bool has_users();
  // `self`: a user that orders its own accesses and is not waited for.
  void before_read(const StorageUser* self = nullptr) {
    if (has_users_.load(std::memory_order_acquire)) wait_users(self, true);
  }
  void before_write(const StorageUser* self = nullptr) {
    if (has_users_.load(std::memory_order_acquire)) wait_users(self, false);
    count_write();
  }

  // Rises with every write, so that equal versions mean equal contents to those who keep copies; also when one that
  // takes its time is done (Writing). before_write() counts; sessions count the writes of each step they submit.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  void count_write() { version_.fetch_add(1, std::memory_order_release); }
  // The eager call that has written it last, by its number in the queue of its device; 0: none has. Only that queue
  // says more.
  uint64_t written_by() const { return written_by_.load(std::memory_order_relaxed); }
  void set_written_by(uint64_t call) { written_by_.store(call, std::memory_order_relaxed); }
  // Others have its address and may write at any time: its version says nothing. Calls count, and take_back() one each.
  bool lent() const { return lent_.load(std::memory_order_acquire) > 0; }
  void lend() { lent_.fetch_add(1); }
  void take_back() {
    count_write();
    lent_.fetch_sub(1);
  }
  // Somebody holds its address now (Lent).
  bool held() const { return holders_.load(std::memory_order_acquire) > 0; }

  // It allocated its memory, and frees it.
  bool owned() const { return owned_; }
  // Moves the memory to a storage of its own, for somebody who gets it for good. This one has none from then on, and
  // tells `why` to who asks for it. Throws kRuntime with the reason where it has gone before.
  // REQUIRES: owned(); nobody uses the memory meanwhile.
  std::shared_ptr<Storage> give_away(std::string why);
  // Undoes that. REQUIRES: `given` is what give_away() gave, and nobody uses it.
  void get_back(Storage& given);
  bool gone() const { return gone_.load(std::memory_order_acquire); }
  // Throws kRuntime, saying why, where it has been given away.
  void check_here() const {
    if (gone()) [[unlikely]]
      fail_gone();
  }

 private:
  friend class Lent;
  struct Use {
    std::weak_ptr<StorageUser> user;
    const StorageUser* key;
    bool writes;
  };
  void wait_users(const StorageUser* self, bool for_read);
  [[noreturn]] void fail_gone() const;

  std::shared_ptr<Allocator> allocator_;
  std::atomic<void*> data_{nullptr};
  uint64_t bytes_ = 0;
  uint64_t number_ = 0;
  plan::Space space_;
  std::function<void()> release_;
  std::atomic<uint64_t> version_{0}, written_by_{0};
  std::atomic<int> lent_{0}, holders_{0};
  std::shared_ptr<const MappedFile> file_;
  std::atomic<bool> has_users_{false}, gone_{false};
  bool owned_ = false;
  mutable Mutex mutex_;
  std::vector<Use> users_ SLUICE_GUARDED_BY(mutex_);
  std::unique_ptr<const std::string> why_gone_ SLUICE_GUARDED_BY(mutex_);
};

// A write by eager code, from before_write() on.
class Writing {
 public:
  explicit Writing(Storage& storage, const StorageUser* self = nullptr) : storage_(storage) {
    storage_.before_write(self);
  }
  ~Writing() { storage_.count_write(); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  Storage& storage_;
};

// Memory that others have the address of, for as long as this lives.
class Lent {
 public:
  explicit Lent(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {
    storage_->lend();
    storage_->holders_.fetch_add(1);
  }
  ~Lent() {
    storage_->take_back();
    storage_->holders_.fetch_sub(1, std::memory_order_release);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  const std::shared_ptr<Storage> storage_;
};

}  // namespace sluice
