# The registry of backends: src/backend knows no backend by name, so the list of those that were
# built is made here.
#
#   zonal_backend(<name>)                    from a backend's CMakeLists.txt: it defines
#                                            zonal__backend_<name>() and zonal__training_<name>()
#   zonal_backend_left_out(<name> <what>)    it could be built and was not; the sentence for
#                                            whoever asks for it is "this build of zonal has no
#                                            <what>"
#   zonal_write_backends(<target>)           after all of them: gives the target the lists as C
function(zonal_backend name)
    set_property(GLOBAL APPEND PROPERTY ZONAL_BACKENDS ${name})
endfunction()

function(zonal_backend_left_out name what)
    set_property(GLOBAL APPEND PROPERTY ZONAL_BACKENDS_LEFT_OUT ${name})
    set_property(GLOBAL PROPERTY ZONAL_BACKEND_LEFT_OUT_${name} "${what}")
endfunction()

# The C file of one list: functions that return "const <type> *", one for each backend.
function(zonal_write_list file header type prefix list more)
    get_property(backends GLOBAL PROPERTY ZONAL_BACKENDS)
    set(declared "")
    set(built "")
    foreach(name IN LISTS backends)
        string(APPEND declared "const ${type} *${prefix}_${name}(void);\n")
        string(APPEND built "${prefix}_${name}, ")
    endforeach()
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"/* Made by cmake/ZonalBackends.cmake: the backends of this build. */
#include \"@header@\"

@declared@
const @type@ *(*const @list@[])(void) = {@built@NULL};
@more@")
endfunction()

function(zonal_write_backends target)
    get_property(left_out GLOBAL PROPERTY ZONAL_BACKENDS_LEFT_OUT)
    set(sentences "")
    foreach(name IN LISTS left_out)
        get_property(what GLOBAL PROPERTY ZONAL_BACKEND_LEFT_OUT_${name})
        string(APPEND sentences "{\"${name}\", \"${what}\"}, ")
    endforeach()
    get_target_property(folder ${target} BINARY_DIR)
    zonal_write_list(${folder}/backends.c backend/registry.h zonal__backend zonal__backend
        zonal__backends_built
        "const zonal__backend_left_out zonal__backends_left_out[] = {${sentences}{NULL, NULL}};\n")
    zonal_write_list(${folder}/training_backends.c backend/registry.h zonal__training_tables
        zonal__training zonal__trainings_built "")
    target_sources(${target} PRIVATE ${folder}/backends.c ${folder}/training_backends.c)
endfunction()
