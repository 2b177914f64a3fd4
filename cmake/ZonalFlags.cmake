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

if(ZONAL_SANITIZE)
    string(APPEND CMAKE_C_FLAGS_DEBUG " -O1 -fno-omit-frame-pointer")
    # libzonal.so and the programs must agree on it, hence directory-wide and not in zonal_flags.
    add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=address,undefined>
        $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>)
    add_link_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
endif()
