#include "memory/storage.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

class CountingUser : public StorageUser {
 public:
  void wait_idle(bool writes_only) override { ++(writes_only ? write_waits : all_waits); }
  int write_waits = 0, all_waits = 0;
};

TEST(Storage, OwnsItsBytes) {
  auto allocator = make_host_allocator();
  {
    Storage storage(allocator, 256);
    EXPECT_EQ(storage.bytes(), 256u);
    EXPECT_EQ(storage.space().str(), "host");
    EXPECT_EQ(allocator->stats().current_bytes, 256u);
  }
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

TEST(Storage, BorrowedMemoryIsReleasedOnce) {
  int released = 0;
  char bytes[4];
  {
    Storage storage(bytes, 4, [&] { ++released; });
  }
  EXPECT_EQ(released, 1);
}

TEST(Storage, ReadsWaitForWritersAndWritesForAll) {
  Storage storage(make_host_allocator(), 8);
  auto reader = std::make_shared<CountingUser>(), writer = std::make_shared<CountingUser>();
  storage.attach(reader, false);
  storage.attach(writer, true);
  storage.before_read();
  EXPECT_EQ(reader->write_waits + reader->all_waits, 0);
  EXPECT_EQ(writer->write_waits, 1);
  storage.before_write();
  EXPECT_EQ(reader->all_waits, 1);
  EXPECT_EQ(writer->all_waits, 1);
  storage.before_write(writer.get());  // a user orders its own accesses
  EXPECT_EQ(writer->all_waits, 1);
  EXPECT_EQ(reader->all_waits, 2);
  storage.detach(reader.get());
  storage.detach(writer.get());
  storage.before_write();
  EXPECT_EQ(reader->all_waits, 2);
}

TEST(Storage, AttachingAgainOnlyAdds) {
  Storage storage(make_host_allocator(), 8);
  auto user = std::make_shared<CountingUser>();
  storage.attach(user, false);
  storage.attach(user, true);
  storage.attach(user, false);
  storage.before_read();
  EXPECT_EQ(user->write_waits, 1);
}

TEST(Storage, UsersThatAreGoneAreForgotten) {
  Storage storage(make_host_allocator(), 8);
  auto user = std::make_shared<CountingUser>();
  storage.attach(user, true);
  user.reset();
  storage.before_write();
  storage.before_read();
}

// The last owner of a user may go while it is waited for; its destructor detaches.
class SelfDetaching : public StorageUser {
 public:
  explicit SelfDetaching(Storage& storage) : storage_(storage) {}
  ~SelfDetaching() override { storage_.detach(this); }
  void wait_idle(bool) override { owner->reset(); }
  std::shared_ptr<SelfDetaching>* owner = nullptr;

 private:
  Storage& storage_;
};

TEST(Storage, AUserMayEndWhileItIsWaitedFor) {
  Storage storage(make_host_allocator(), 8);
  auto user = std::make_shared<SelfDetaching>(storage);
  user->owner = &user;
  storage.attach(user, true);
  storage.before_read();
  EXPECT_EQ(user, nullptr);
}

TEST(Storage, ThreadsAttachDetachAndWait) {
  Storage storage(make_host_allocator(), 8);
  std::thread users([&] {
    for (int i = 0; i < 500; ++i) {
      auto user = std::make_shared<SelfDetaching>(storage);
      std::shared_ptr<SelfDetaching> nobody;
      user->owner = &nobody;
      storage.attach(user, i % 2 == 0);
      storage.before_write(user.get());
    }
  });
  for (int i = 0; i < 500; ++i) storage.before_read();
  users.join();
  storage.before_write();
}

}  // namespace
}  // namespace sluice
