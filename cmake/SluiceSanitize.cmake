# Flags of the sanitizer builds (SLUICE_SANITIZE). A report ends the test: nothing recovers. -O1 with line tables keeps a
# whole build on two cores within minutes; the kernels' -O3 is dropped for the same reason.
string(REPLACE "-O2 -g -DNDEBUG" "-O1 -g1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
set(SLUICE_KERNEL_OPTIMIZATION "")
add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
add_link_options(-fsanitize=${SLUICE_SANITIZE})
if(SLUICE_SANITIZE MATCHES undefined)
  add_compile_options(-fno-sanitize-recover=all)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC takes moved variants for uninitialized once their code is instrumented
  add_compile_options(-Wno-maybe-uninitialized)
endif()

# What every test is started by. Under ThreadSanitizer the system's OpenMP library, which is not instrumented, would have
# each of its barriers reported as a race: OMP_THREAD_LIMIT keeps every parallel region to the thread that meets it. The
# same sanitizer needs the usual address layout, hence setarch. Tests ask for more memory than there is, and are to be
# told so: allocator_may_return_null. The leak checker of GCC 12 guesses the size of a loaded library's thread-local
# memory from what lies before it, and ends by signal 11 where that guess is wrong: intercept_tls_get_addr=0.
set(SLUICE_TEST_LAUNCHER env)
if(SLUICE_SANITIZE MATCHES thread)
  list(APPEND SLUICE_TEST_LAUNCHER OMP_THREAD_LIMIT=1
       TSAN_OPTIONS=allocator_may_return_null=1:suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp setarch -R)
endif()
if(SLUICE_SANITIZE MATCHES address)
  list(APPEND SLUICE_TEST_LAUNCHER
       ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1:intercept_tls_get_addr=0)
endif()
if(SLUICE_SANITIZE MATCHES undefined)
  list(APPEND SLUICE_TEST_LAUNCHER UBSAN_OPTIONS=print_stacktrace=1)
endif()
