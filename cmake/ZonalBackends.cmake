# The registry of backends: src/backend knows no backend by name, so the list of those that were
# built is made here.
#
#   zonal_backend(<name>)                    from a backend's CMakeLists.txt: it defines
#                                            zonal__backend_<name>()
#   zonal_training_backend(<name>)           likewise, zonal__training_<name>()
#   zonal_backend_left_out(<name> <what>)    it could be built and was not; the sentence for
#                                            whoever asks for it is "this build of zonal has no
#                                            <what>"
#   zonal_write_backends(<target>)           after all of them: gives the target the list as C
#   zonal_write_trainings(<target>)          likewise
function(zonal_backend name)
    set_property(GLOBAL APPEND PROPERTY ZONAL_BACKENDS ${name})
endfunction()

function(zonal_training_backend name)
    set_property(GLOBAL APPEND PROPERTY ZONAL_TRAINING_BACKENDS ${name})
endfunction()

function(zonal_backend_left_out name what)
    set_property(GLOBAL APPEND PROPERTY ZONAL_BACKENDS_LEFT_OUT ${name})
    set_property(GLOBAL PROPERTY ZONAL_BACKEND_LEFT_OUT_${name} "${what}")
endfunction()

# The C file of one list: functions that return "const <type> *", one for each backend of the
# property.
function(zonal_write_list target file property header type prefix list more)
    get_property(backends GLOBAL PROPERTY ${property})
    get_target_property(folder ${target} BINARY_DIR)
    set(declared "")
    set(built "")
    foreach(name IN LISTS backends)
        string(APPEND declared "const ${type} *${prefix}_${name}(void);\n")
        string(APPEND built "${prefix}_${name}, ")
    endforeach()
    file(CONFIGURE OUTPUT ${folder}/${file} @ONLY CONTENT
"/* Made by cmake/ZonalBackends.cmake: the backends of this build. */
#include \"@header@\"

@declared@
const @type@ *(*const @list@[])(void) = {@built@NULL};
@more@")
    target_sources(${target} PRIVATE ${folder}/${file})
endfunction()

function(zonal_write_backends target)
    get_property(left_out GLOBAL PROPERTY ZONAL_BACKENDS_LEFT_OUT)
    set(sentences "")
    foreach(name IN LISTS left_out)
        get_property(what GLOBAL PROPERTY ZONAL_BACKEND_LEFT_OUT_${name})
        string(APPEND sentences "{\"${name}\", \"${what}\"}, ")
    endforeach()
    zonal_write_list(${target} backends.c ZONAL_BACKENDS backend/registry.h zonal__backend
        zonal__backend zonal__backends_built
        "const zonal__backend_left_out zonal__backends_left_out[] = {${sentences}{NULL, NULL}};\n")
endfunction()

function(zonal_write_trainings target)
    zonal_write_list(${target} training_backends.c ZONAL_TRAINING_BACKENDS
        backend/training/tables.h zonal__training_tables zonal__training zonal__trainings_built "")
endfunction()
