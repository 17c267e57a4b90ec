#include "memory/storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

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

TEST(Storage, MemoryIsGivenAwayOnceAndMayComeBack) {
  auto allocator = make_host_allocator();
  Storage storage(allocator, 256);
  void* const data = storage.data();
  std::shared_ptr<Storage> given = storage.give_away("it went");
  EXPECT_EQ(given->data(), data);
  EXPECT_EQ(given->bytes(), 256u);
  EXPECT_EQ(given->number(), storage.number());
  EXPECT_TRUE(given->owned());
  EXPECT_FALSE(given->gone());
  EXPECT_TRUE(storage.gone());
  const auto error = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error([&] { storage.check_here(); }).find("it went"), std::string::npos);
  EXPECT_NE(error([&] { storage.give_away("again"); }).find("it went"), std::string::npos);
  storage.get_back(*given);
  given.reset();
  EXPECT_EQ(error([&] { storage.check_here(); }), "");
  EXPECT_EQ(storage.data(), data);
  EXPECT_EQ(allocator->stats().current_bytes, 256u);
  storage.give_away("for good").reset();
  EXPECT_EQ(allocator->stats().current_bytes, 0u);
}

TEST(Storage, OfThreadsThatGiveItAwayOneDoes) {
  for (int round = 0; round < 100; ++round) {
    Storage storage(make_host_allocator(), 64);
    std::atomic<int> gave{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        try {
          gave += storage.give_away("it went") != nullptr;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("it went"), std::string::npos);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(gave, 1);
  }
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
