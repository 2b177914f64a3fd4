# What may be used besides the C compiler. Each part ends as a target that exists only where the
# part is there (zonal_dep_openblas, zonal_dep_lapacke, zonal_dep_openmp) and as a line of the
# summary. ZONAL_STATIC_LIBS collects what users of libzonal.a have to link, by name, and
# ZONAL_STATIC_DIRS the folders of it that the compiler does not know by itself.
include(CheckSymbolExists)
include(CheckLanguage)

set(ZONAL_STATIC_LIBS m ${CMAKE_DL_LIBS})
set(ZONAL_STATIC_DIRS "")
set(ZONAL_SUMMARY "")

macro(zonal_note part text)
    list(APPEND ZONAL_SUMMARY "${part}: ${text}")
endmacro()

# Absent: an error where it was insisted on, else a line in the summary.
macro(zonal_absent part text)
    if(ZONAL_${part} STREQUAL "ON")
        message(FATAL_ERROR "ZONAL_${part}=ON, but ${text}")
    endif()
    zonal_note(${part} "absent (${text})")
endmacro()

# A part may be installed or removed between two configurations of one folder. So nothing that is
# found, missed or tried here is kept in the cache: every configuration looks again.
foreach(answer OPENBLAS_WORKS LAPACKE_IN_OPENBLAS LAPACKE_WORKS)
    unset(ZONAL_${answer} CACHE)
endforeach()

# What is set by hand, as in -DZONAL_PNG_LIBRARY=FILE -DZONAL_PNG_INCLUDE=FOLDER, is not looked for.
set(by_hand OPENBLAS LAPACKE CUDNN JPEG PNG WEBP GIF TIFF ZLIB)
list(TRANSFORM by_hand REPLACE "(.+)" "ZONAL_\\1_LIBRARY;ZONAL_\\1_INCLUDE")
foreach(variable IN LISTS by_hand ITEMS ZONAL_PYTHON)
    if(${variable} AND NOT EXISTS "${${variable}}")
        message(FATAL_ERROR "${variable} is set to ${${variable}}, which does not exist: set it to "
            "another path, or leave it to the search with -U${variable}")
    endif()
endforeach()

# A library in use is an input of the configuration: a build after its removal begins with another
# look around instead of ending in an error of the linker.
macro(zonal_in_use)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
endmacro()

find_package(PkgConfig QUIET)

# OpenBLAS. Debian may point the plain cblas.h at another BLAS, so OpenBLAS's own folder (known to
# pkg-config) comes first, and the header must declare what only OpenBLAS has.
if(ZONAL_OPENBLAS STREQUAL "OFF")
    zonal_note(OPENBLAS "off")
else()
    if(PkgConfig_FOUND)
        pkg_check_modules(PC_OPENBLAS QUIET openblas)
    endif()
    find_library(ZONAL_OPENBLAS_LIBRARY NAMES openblas openblasp PATHS ${PC_OPENBLAS_LIBRARY_DIRS}
        NO_CACHE)
    find_path(ZONAL_OPENBLAS_INCLUDE NAMES cblas.h HINTS ${PC_OPENBLAS_INCLUDE_DIRS}
        PATH_SUFFIXES openblas openblas-pthread openblas-openmp NO_CACHE)
    if(ZONAL_OPENBLAS_LIBRARY AND ZONAL_OPENBLAS_INCLUDE)
        set(CMAKE_REQUIRED_INCLUDES ${ZONAL_OPENBLAS_INCLUDE})
        set(CMAKE_REQUIRED_LIBRARIES ${ZONAL_OPENBLAS_LIBRARY})
        check_symbol_exists(openblas_set_num_threads cblas.h ZONAL_OPENBLAS_WORKS)
        unset(CMAKE_REQUIRED_INCLUDES)
        unset(CMAKE_REQUIRED_LIBRARIES)
    endif()
    if(ZONAL_OPENBLAS_WORKS)
        zonal_in_use(${ZONAL_OPENBLAS_LIBRARY} ${ZONAL_OPENBLAS_INCLUDE}/cblas.h)
        add_library(zonal_dep_openblas INTERFACE)
        target_include_directories(zonal_dep_openblas SYSTEM INTERFACE ${ZONAL_OPENBLAS_INCLUDE})
        target_link_libraries(zonal_dep_openblas INTERFACE ${ZONAL_OPENBLAS_LIBRARY})
        target_compile_definitions(zonal_dep_openblas INTERFACE ZONAL_HAVE_OPENBLAS)
        list(APPEND ZONAL_STATIC_LIBS openblas)
        zonal_note(OPENBLAS "${ZONAL_OPENBLAS_LIBRARY}")
    else()
        zonal_absent(OPENBLAS "libopenblas-dev is not installed")
    endif()
endif()

# LAPACKE: a library of its own on Debian, inside OpenBLAS elsewhere.
if(ZONAL_LAPACKE STREQUAL "OFF")
    zonal_note(LAPACKE "off")
else()
    find_path(ZONAL_LAPACKE_INCLUDE NAMES lapacke.h HINTS ${ZONAL_OPENBLAS_INCLUDE}
        PATH_SUFFIXES openblas lapacke NO_CACHE)
    find_library(ZONAL_LAPACKE_LIBRARY NAMES lapacke NO_CACHE)
    if(ZONAL_LAPACKE_INCLUDE)
        set(CMAKE_REQUIRED_INCLUDES ${ZONAL_LAPACKE_INCLUDE})
        if(ZONAL_OPENBLAS_WORKS)
            set(CMAKE_REQUIRED_LIBRARIES ${ZONAL_OPENBLAS_LIBRARY})
            check_symbol_exists(LAPACKE_dsyevd lapacke.h ZONAL_LAPACKE_IN_OPENBLAS)
        endif()
        if(NOT ZONAL_LAPACKE_IN_OPENBLAS AND ZONAL_LAPACKE_LIBRARY)
            set(CMAKE_REQUIRED_LIBRARIES ${ZONAL_LAPACKE_LIBRARY})
            check_symbol_exists(LAPACKE_dsyevd lapacke.h ZONAL_LAPACKE_WORKS)
        endif()
        unset(CMAKE_REQUIRED_INCLUDES)
        unset(CMAKE_REQUIRED_LIBRARIES)
    endif()
    if(ZONAL_LAPACKE_IN_OPENBLAS OR ZONAL_LAPACKE_WORKS)
        zonal_in_use(${ZONAL_LAPACKE_INCLUDE}/lapacke.h)
        add_library(zonal_dep_lapacke INTERFACE)
        target_include_directories(zonal_dep_lapacke SYSTEM INTERFACE ${ZONAL_LAPACKE_INCLUDE})
        target_compile_definitions(zonal_dep_lapacke INTERFACE ZONAL_HAVE_LAPACKE)
        if(ZONAL_LAPACKE_IN_OPENBLAS)
            target_link_libraries(zonal_dep_lapacke INTERFACE ${ZONAL_OPENBLAS_LIBRARY})
            zonal_note(LAPACKE "inside OpenBLAS")
        else()
            zonal_in_use(${ZONAL_LAPACKE_LIBRARY})
            target_link_libraries(zonal_dep_lapacke INTERFACE ${ZONAL_LAPACKE_LIBRARY})
            list(APPEND ZONAL_STATIC_LIBS lapacke)
            zonal_note(LAPACKE "${ZONAL_LAPACKE_LIBRARY}")
        endif()
    else()
        zonal_absent(LAPACKE "liblapacke-dev is not installed")
    endif()
endif()

# OpenMP. The thread sanitizer takes the hand-over of work inside an OpenMP runtime for a race, as runtimes are
# built without it. LLVM's has a tool that reports its hand-overs to the sanitizer, archer (the tests load
# it); gcc's has none, so there the threads are left out.
unset(ZONAL_ARCHER)
if(ZONAL_SANITIZE STREQUAL "thread" AND NOT ZONAL_OPENMP STREQUAL "OFF")
    if(CMAKE_C_COMPILER_ID MATCHES "Clang")
        string(REGEX MATCH "^[0-9]+" clang_major ${CMAKE_C_COMPILER_VERSION})
        find_library(ZONAL_ARCHER NAMES archer PATHS /usr/lib/llvm-${clang_major}/lib NO_CACHE)
    endif()
endif()
if(ZONAL_OPENMP STREQUAL "OFF")
    zonal_note(OPENMP "off")
elseif(ZONAL_SANITIZE STREQUAL "thread" AND NOT ZONAL_ARCHER)
    zonal_absent(OPENMP "the thread sanitizer understands clang's only, with libarcher of libomp-dev")
else()
    foreach(name IN LISTS OpenMP_C_LIB_NAMES) # of an earlier configuration
        if(NOT EXISTS "${OpenMP_${name}_LIBRARY}")
            unset(OpenMP_${name}_LIBRARY CACHE)
            unset(OpenMP_C_FLAGS CACHE)
            unset(OpenMP_C_LIB_NAMES CACHE)
        endif()
    endforeach()
    find_package(OpenMP QUIET COMPONENTS C)
    if(OpenMP_C_FOUND)
        foreach(name IN LISTS OpenMP_C_LIB_NAMES)
            zonal_in_use(${OpenMP_${name}_LIBRARY})
            get_filename_component(openmp_dir ${OpenMP_${name}_LIBRARY} DIRECTORY)
            if(NOT openmp_dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES) # clang's libomp
                list(APPEND ZONAL_STATIC_DIRS ${openmp_dir})
            endif()
        endforeach()
        add_library(zonal_dep_openmp INTERFACE)
        target_link_libraries(zonal_dep_openmp INTERFACE OpenMP::OpenMP_C)
        list(APPEND ZONAL_STATIC_LIBS ${OpenMP_C_LIB_NAMES})
        zonal_note(OPENMP "version ${OpenMP_C_VERSION}")
    else()
        zonal_absent(OPENMP "the compiler has none")
    endif()
endif()

# CUDA. The language has to be enabled here, at the top.
if(ZONAL_CUDA STREQUAL "OFF")
    zonal_note(CUDA "off")
else()
    if(NOT CMAKE_CUDA_COMPILER)
        unset(CMAKE_CUDA_COMPILER CACHE)
        check_language(CUDA)
    elseif(NOT EXISTS "${CMAKE_CUDA_COMPILER}")
        message(FATAL_ERROR "${CMAKE_CUDA_COMPILER}, which compiled the CUDA part of this folder, is "
            "gone: configure anew with cmake --fresh, or with another folder")
    endif()
    if(CMAKE_CUDA_COMPILER)
        # "native" fails where no GPU is plugged in.
        if(NOT CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPU generations to build for")
        endif()
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(ZONAL_WITH_CUDA ON)
        list(APPEND ZONAL_STATIC_DIRS ${CUDAToolkit_LIBRARY_DIR})
        zonal_note(CUDA "${CMAKE_CUDA_COMPILER}, for ${CMAKE_CUDA_ARCHITECTURES}")
    else()
        zonal_absent(CUDA "nvcc was not found")
    endif()
endif()

# cuDNN, for networks on CUDA: beside the toolkit, where the system keeps libraries, or in the wheel
# that the Python on PATH has. It is opened at run time.
if(ZONAL_CUDNN STREQUAL "OFF")
    zonal_note(CUDNN "off")
elseif(NOT ZONAL_WITH_CUDA)
    zonal_absent(CUDNN "it is of no use without CUDA")
else()
    execute_process(COMMAND python3 -c "import nvidia.cudnn as c; print(list(c.__path__)[0])"
        OUTPUT_VARIABLE cudnn_wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_path(ZONAL_CUDNN_INCLUDE NAMES cudnn_graph.h
        HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${cudnn_wheel} PATH_SUFFIXES include NO_CACHE)
    find_library(ZONAL_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
        HINTS ${CUDAToolkit_LIBRARY_DIR} PATHS ${cudnn_wheel} PATH_SUFFIXES lib NO_CACHE)
    if(ZONAL_CUDNN_INCLUDE AND ZONAL_CUDNN_LIBRARY)
        zonal_in_use(${ZONAL_CUDNN_LIBRARY} ${ZONAL_CUDNN_INCLUDE}/cudnn_graph.h)
        add_library(zonal_dep_cudnn INTERFACE)
        target_include_directories(zonal_dep_cudnn SYSTEM INTERFACE ${ZONAL_CUDNN_INCLUDE})
        target_compile_definitions(zonal_dep_cudnn INTERFACE ZONAL_HAVE_CUDNN)
        zonal_note(CUDNN "${ZONAL_CUDNN_LIBRARY}")
    else()
        zonal_absent(CUDNN "cuDNN 9 was not found; networks then run on the CPU only")
    endif()
endif()

# zonal_library(<PART> <header> <libraries> <package>): a part that is one header and its libraries.
macro(zonal_library part header libraries package)
    if(ZONAL_${part} STREQUAL "OFF")
        zonal_note(${part} "off")
    else()
        find_path(ZONAL_${part}_INCLUDE NAMES ${header} NO_CACHE)
        find_library(ZONAL_${part}_LIBRARY NAMES ${libraries} NO_CACHE)
        if(ZONAL_${part}_INCLUDE AND ZONAL_${part}_LIBRARY)
            string(TOLOWER ${part} lower)
            zonal_in_use(${ZONAL_${part}_LIBRARY} ${ZONAL_${part}_INCLUDE}/${header})
            add_library(zonal_dep_${lower} INTERFACE)
            target_include_directories(zonal_dep_${lower} SYSTEM INTERFACE ${ZONAL_${part}_INCLUDE})
            target_link_libraries(zonal_dep_${lower} INTERFACE ${ZONAL_${part}_LIBRARY})
            target_compile_definitions(zonal_dep_${lower} INTERFACE ZONAL_HAVE_${part})
            zonal_note(${part} "${ZONAL_${part}_LIBRARY}")
        else()
            zonal_absent(${part} "${package} is not installed")
        endif()
    endif()
endmacro()
# Image and data files, for src/data.
zonal_library(JPEG jpeglib.h jpeg libjpeg-dev)
zonal_library(PNG png.h "png;png16" libpng-dev)
zonal_library(WEBP webp/decode.h webp libwebp-dev)
zonal_library(GIF gif_lib.h gif libgif-dev)
zonal_library(TIFF tiffio.h tiff libtiff-dev)
zonal_library(ZLIB zlib.h z zlib1g-dev)

# The tests use Debian's modules (python3-numpy, python3-mpmath), which only Debian's own
# interpreter sees; another python3 may well come first on PATH.
find_program(ZONAL_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH NO_CACHE)
find_program(ZONAL_PYTHON NAMES python3 NO_CACHE)
if(ZONAL_PYTHON)
    zonal_in_use(${ZONAL_PYTHON})
endif()
