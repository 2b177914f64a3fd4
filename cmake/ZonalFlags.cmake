# Compiler flags, all carried by one target that every folder links privately.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # the same objects go into libzonal.so and libzonal.a
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(zonal_flags INTERFACE)

# Strict C17 hides M_PI and clock_gettime unless these are asked for.
target_compile_definitions(zonal_flags INTERFACE _DEFAULT_SOURCE _POSIX_C_SOURCE=200809L)

# The prefix map keeps the build machine's paths out of the error records (__FILE__).
target_compile_options(zonal_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
    $<$<BOOL:${ZONAL_WERROR}>:-Werror>>)

# Never -ffast-math: it removes isnan. Contraction stays off so that a formula means the same on
# every machine; src/backend/cpu, which is measured against the reference, turns it on for itself:
# a target's own options come behind the directory's, and the last one counts.
add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)

# Hardening. The level of _FORTIFY_SOURCE is 3 where compiler and C library know it, and it wants an
# optimised build; some distributions set a level of their own, hence -U. Linked in full at the start
# (now), the tables of addresses are read-only from then on.
include(CheckCSourceCompiles)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" ZONAL_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
add_compile_options($<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>)
if(NOT ZONAL_SANITIZE) # whose own checks of the same functions say more
    add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C>,$<NOT:$<CONFIG:Debug>>>:\
-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=$<IF:$<BOOL:${ZONAL_FORTIFY_3}>,3,2>>")
endif()
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)

# A library on the link line of which nothing is used is not loaded at every start.
add_link_options(LINKER:--as-needed)

if(ZONAL_SANITIZE)
    if(ZONAL_SANITIZE STREQUAL "thread") # which cannot be had together with the address sanitizer
        set(sanitizers -fsanitize=thread)
    elseif(ZONAL_SANITIZE MATCHES "^(address|ON|TRUE|YES|1)$")
        set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
    else()
        message(FATAL_ERROR "ZONAL_SANITIZE is ${ZONAL_SANITIZE}: set it to address, thread or OFF")
    endif()
    string(APPEND CMAKE_C_FLAGS_DEBUG " -O1 -fno-omit-frame-pointer")
    # libzonal.so and the programs must agree on it, hence directory-wide and not in zonal_flags.
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:${sanitizers}>")
    add_link_options(${sanitizers})
endif()
