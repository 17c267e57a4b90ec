# What Debian builds with, as dpkg-buildflags has it: buffers on the stack and in libc's functions are checked, and what the
# loader fills in is read-only before the program starts. For packages: `make deb`.
if(SLUICE_SANITIZE OR NOT CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  message(FATAL_ERROR "SLUICE_HARDENED: the build is ${CMAKE_BUILD_TYPE} ${SLUICE_SANITIZE}; it must be optimised and without sanitizers")
endif()
add_compile_options(-fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
