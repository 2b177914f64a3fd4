/*
 * ZONAL__CLONES before a function with a hot loop: one binary for every x86-64. The function is
 * compiled for three levels of the processor, of which one is chosen when the program is loaded.
 * GCC 12 is the first that knows the levels by name.
 */
#ifndef ZONAL_BACKEND_CPU_CLONES_H
#define ZONAL_BACKEND_CPU_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12 &&      \
    !defined(ZONAL_PLAIN_KERNELS)
#define ZONAL__CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define ZONAL__CLONES
#endif

#endif
