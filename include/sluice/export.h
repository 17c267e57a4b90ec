#ifndef SLUICE_EXPORT_H_
#define SLUICE_EXPORT_H_
/* Marks what the shared libraries offer; everything else in them is hidden. For C and C++. */

#define SLUICE_API __attribute__((visibility("default")))
/* Private members of a class that is offered. */
#define SLUICE_HIDDEN __attribute__((visibility("hidden")))

#endif
