#pragma once
// SLUICE_REPLACE_NEW(take, give): this program's operator new and delete, all of them, by
//   void* take(size_t bytes, size_t alignment)   which throws std::bad_alloc
//   void give(void* data)                        of null too
// Also for shared libraries that the program loads.
#include <cstddef>
#include <new>

#define SLUICE_NEW __attribute__((visibility("default")))
#define SLUICE_REPLACE_NEW_FORM(form, take)                                                                  \
  SLUICE_NEW void* operator form(size_t bytes) { return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }     \
  SLUICE_NEW void* operator form(size_t bytes, std::align_val_t alignment) {                                 \
    return take(bytes, static_cast<size_t>(alignment));                                                      \
  }                                                                                                          \
  SLUICE_NEW void* operator form(size_t bytes, const std::nothrow_t&) noexcept {                             \
    try {                                                                                                    \
      return take(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);                                                  \
    } catch (const std::bad_alloc&) {                                                                        \
      return nullptr;                                                                                        \
    }                                                                                                        \
  }                                                                                                          \
  SLUICE_NEW void* operator form(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept { \
    try {                                                                                                    \
      return take(bytes, static_cast<size_t>(alignment));                                                    \
    } catch (const std::bad_alloc&) {                                                                        \
      return nullptr;                                                                                        \
    }                                                                                                        \
  }
#define SLUICE_REPLACE_DELETE_FORM(form, give)                                                 \
  SLUICE_NEW void operator form(void* data) noexcept { give(data); }                           \
  SLUICE_NEW void operator form(void* data, size_t) noexcept { give(data); }                   \
  SLUICE_NEW void operator form(void* data, std::align_val_t) noexcept { give(data); }         \
  SLUICE_NEW void operator form(void* data, size_t, std::align_val_t) noexcept { give(data); } \
  SLUICE_NEW void operator form(void* data, const std::nothrow_t&) noexcept { give(data); }    \
  SLUICE_NEW void operator form(void* data, std::align_val_t, const std::nothrow_t&) noexcept { give(data); }
#define SLUICE_REPLACE_NEW(take, give)     \
  SLUICE_REPLACE_NEW_FORM(new, take)       \
  SLUICE_REPLACE_NEW_FORM(new[], take)     \
  SLUICE_REPLACE_DELETE_FORM(delete, give) \
  SLUICE_REPLACE_DELETE_FORM(delete[], give)
