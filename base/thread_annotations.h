#pragma once
// Says which lock guards what, so that clang's -Wthread-safety can check it (tools/check_threads.sh). Other compilers
// read nothing here.
#if defined(__clang__)
#define SLUICE_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define SLUICE_THREAD_ATTRIBUTE(x)
#endif

// A type that is a lock, and one that holds a lock for as long as it lives.
#define SLUICE_LOCK_TYPE SLUICE_THREAD_ATTRIBUTE(capability("mutex"))
#define SLUICE_HOLDS_LOCK SLUICE_THREAD_ATTRIBUTE(scoped_lockable)
// A field that is read and written only while the lock is held; a pointer whose target is.
#define SLUICE_GUARDED_BY(lock) SLUICE_THREAD_ATTRIBUTE(guarded_by(lock))
#define SLUICE_POINTEE_GUARDED_BY(lock) SLUICE_THREAD_ATTRIBUTE(pt_guarded_by(lock))
// A function that is called with the lock held, or without it.
#define SLUICE_REQUIRES(...) SLUICE_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define SLUICE_EXCLUDES(...) SLUICE_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// A function that takes the lock, takes it if it returns the given value, or lets go of it.
#define SLUICE_ACQUIRES(...) SLUICE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define SLUICE_TRIES_TO_ACQUIRE(...) SLUICE_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define SLUICE_RELEASES(...) SLUICE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
// A function that the analysis cannot follow; a comment beside it says why it is right.
#define SLUICE_UNCHECKED_LOCKS SLUICE_THREAD_ATTRIBUTE(no_thread_safety_analysis)
